/** Difference panel of two policies: space-time diagram, memory plot and counters. */

import { COMPUTE } from "./allocation.js";
import { placesOf, total } from "./axis.js";
import { captionsOf, fitting } from "./caption.js";
import { listAt } from "./columns.js";
import { MOST_STEPS, evaluationsOf, factsOf } from "./details.js";
import { DifferenceLedger, DifferenceRail } from "./difference_ledger.js";
import { DifferenceStrip, liveOf, savedText } from "./difference_strip.js";
import { amountOf, differenceAt, heavyCells } from "./differing.js";
import { DASH, amountText, changeText, countText, counted, listed, shortLive } from "./format.js";
import { historyOfView, isResident, stepOfTick } from "./model.js";
import { Panel } from "./panel.js";

/**
 * @import { Axis } from "./axis.js"
 * @import { Pair } from "./differing.js"
 */

export const SIDES = ["A", "B"];
const HOW = {
  progress: "aligned at each operator's first evaluation; before it, the one with less to do waits",
  step: "steps of each, from its own beginning",
  evaluation: "evaluations of each, from its own beginning",
  FLOPs: "FLOPs of each, from its own beginning",
  time: "time of each, from its own beginning",
};

export class DifferencePanel extends Panel {
  /** @param {Pair} pair @param {any} scales @param {any} events @param {number} index of the view */
  constructor(pair, scales, events, index) {
    super(pair.a, scales, events, index, pair);
    this.element.classList.add("difference");
    this.element.setAttribute("aria-label", `Difference of ${this.title}`);
    this.part(".title").textContent = `Difference of ${this.title}`;
    this.part(".title").classList.add("unseen");
    this.part(".solo").remove();
    this.part(".subtitle").textContent = this.subtitle;
    this.how = document.createElement("p");
    this.how.className = "subtitle how";
    this.part(":scope > header").after(this.part(".subtitle"), this.how);
    this.lines = SIDES.map((side) => {
      const line = document.createElement("span");
      this.caption.append(line);
      return line;
    });
  }

  makeLedger(scales) {
    return new DifferenceLedger(this, scales);
  }

  makeRail() {
    return new DifferenceRail(this.ledger, (cell) => this.chosen(cell));
  }

  makeStrip(scales) {
    return new DifferenceStrip(this, scales);
  }

  get isGraph() {
    return false;
  }

  get models() {
    return [this.pair.a, this.pair.b];
  }

  /** How both are called here. */
  get titles() {
    return this.models.map(({ title }, side) => `${SIDES[side]} ${title}`);
  }

  get title() {
    return this.titles.join(" and ");
  }

  /** Total bytes that the other saves, and evaluations that it adds. */
  get subtitle() {
    const { a, b } = this.pair;
    const [peaks, counts] = [
      [a, b].map((one) => one.live[one.peakStep]),
      [a, b].map(({ computes }) => computes.length),
    ];
    const change = changeText(peaks[1] - peaks[0], a.inNodes);
    const signed = (amount) => (amount ? `${amount < 0 ? "\u2212" : "+"}${countText(Math.abs(amount))}` : "\u00b10");
    const percent = `${signed(Math.round((100 * (peaks[1] - peaks[0])) / Math.max(peaks[0], 1)))} %`;
    const evaluations = signed(counts[1] - counts[0]);
    const memory =
      peaks[0] === peaks[1]
        ? `the same peak of ${amountText(peaks[0], a.inNodes)}`
        : `peak ${shortLive(peaks[1], a.inNodes)} instead of ${amountText(peaks[0], a.inNodes)} (${change}, ${percent})`;
    return `B against A: ${memory}, ${countText(counts[1])} evaluations instead of ${countText(counts[0])} (${evaluations})`;
  }

  /** The step of each at the present. */
  get steps() {
    return this.moment?.steps ?? [-1, -1];
  }

  /** Live memory at the current step: in both, and in only one. */
  get held() {
    this.moment ??= { steps: [-1, -1] };
    this.moment.held ??= differenceAt(this.pair, this.moment.steps);
    return this.moment.held;
  }

  /** The steps of those that evaluate something at the present; -1 of one that does not. */
  get active() {
    const { align, tick } = this.scales;
    return this.models.map((model, side) => {
      const step = this.steps[side];
      if (step < 0 || model.verbs[step] !== COMPUTE) return -1;
      return align === "progress" && placesOf(model, align)[step] !== tick ? -1 : step;
    });
  }

  /** Live memory of cells at the current step: in both, only in A, only in B. */
  get amounts() {
    if (this.moment?.amounts) return this.moment.amounts;
    const { homeOf, view } = this.ledger;
    const sums = [0, 1, 2].map(() => new Float64Array(view.labels.length));
    const { both, only } = this.held;
    [both, ...only].forEach((blocks, kind) => {
      for (const { value, amount } of blocks) if (homeOf[value] >= 0) sums[kind][homeOf[value]] += amount;
    });
    for (const value of weightless(this.model.graph, this.index, homeOf)) {
      const [one, other] = this.models.map((model, side) => isResident(model.spans, value, this.steps[side]));
      if (one || other) sums[one && other ? 0 : one ? 1 : 2][homeOf[value]]++;
    }
    this.moment.amounts = sums;
    return sums;
  }

  /** Which halves of a cell's node are filled with what: words of the style sheet. @param {number} cell */
  lookOf(cell) {
    const [both, a, b] = this.amounts.map((sums) => sums[cell] > 0);
    return [both && "both", a && "a", b && "b"].filter(Boolean).join(" ");
  }

  /** Live memory of a cell at the current step, as text. @param {number} cell */
  heldWords(cell) {
    const isHeavy = /** @type {DifferenceLedger} */ (this.ledger).along?.isHeavy[cell];
    const texts = this.amounts.map((sums) =>
      isHeavy === 0 ? countText(sums[cell]) : shortLive(sums[cell], this.model.inNodes),
    );
    const words = ["in both", "only in A", "only in B"].filter((_, kind) => this.amounts[kind][cell] > 0);
    if (!words.length) return "in neither";
    return words.map((word) => `${word} ${texts[["in both", "only in A", "only in B"].indexOf(word)]}`).join(", ");
  }

  open(index) {
    if (this.moment) this.moment.amounts = null;
    super.open(index);
  }

  /** @param {number} tick @param {Axis} align */
  show(tick, align) {
    const steps = this.models.map((model) => stepOfTick(model, tick, align));
    this.moment = { steps };
    this.step = steps[0];
    this.showLedger();
    this.strip.show(this.step);
    if (this.how.textContent !== this.howWords) this.how.textContent = this.howWords;
  }

  /** Write the counters, of both. */
  count() {
    const { inNodes } = this.model;
    const both = (text) => this.models.map((model, side) => text(model, this.steps[side])).join(" | ");
    this.write(
      "step",
      both((_, step) => (step < 0 ? DASH : countText(step))),
    );
    this.write(
      "evaluations",
      both((model, step) => (step < 0 ? "0" : countText(model.evaluations[step]))),
    );
    this.write(
      "live",
      both((model, step) => (step < 0 ? "0" : shortLive(model.live[step], inNodes))),
    );
    this.write(
      "peak",
      both((model, step) => (step < 0 ? "0" : shortLive(model.peaks[step], inNodes))),
    );
  }

  /** Write both captions, one line each. */
  describe() {
    this.lines?.forEach((line, side) => {
      const texts = this.does(side).map((text) => `${SIDES[side]}: ${text}`);
      const shown = fitting(texts, this.captionSize, this.captionRoom);
      if (line.textContent !== shown) line.textContent = shown;
      line.title = shown === texts[0] ? "" : texts[0];
    });
  }

  /** Captions of one of them at the current step, each shorter than the last. @returns {string[]} */
  does(side) {
    const [model, step, other] = [this.models[side], this.steps[side], SIDES[1 - side]];
    const { align, tick } = this.scales;
    if (align === "progress" && tick >= 0 && this.active[side] < 0)
      return [tick < total(model, align) ? `waits for ${other}` : "has ended"];
    return step < 0 ? ["before the first step"] : captionsOf(model, step);
  }

  /** How the two are aligned. */
  get howWords() {
    const { align } = this.scales;
    const { anchors, a, b } = this.pair;
    const firsts = Math.max(...[a, b].map(({ again }) => again.length - again.reduce((sum, one) => sum + one, 0)));
    const rest =
      align === "progress" && firsts > anchors
        ? `; ${counted(firsts - anchors, "operator")} of ${countText(firsts)} in another order, and not aligned`
        : "";
    return HOW[align] + rest;
  }

  /** What the card of the moment lists: what only A holds, then what only B does, by size. */
  fills() {
    const { only } = this.held;
    const { inNodes } = this.model;
    const items = only.flatMap((blocks, side) => {
      const own = blocks
        .filter(({ amount }) => amount > 0)
        .sort((x, y) => y.amount - x.amount || x.band - y.band || x.begin - y.begin);
      return own.map((block) => ({ ...block, side, model: this.models[side], step: this.steps[side] }));
    });
    const sums = only.map((blocks) => shortLive(amountOf(blocks), inNodes));
    const total = items.length ? `A ${sums[0]}, B ${sums[1]}${inNodes ? " values" : ""}` : "";
    const live = this.models.some((model, side) => model.live[this.steps[side]] > 0);
    return {
      items,
      title: "In memory in only one",
      total,
      none: live ? "The same values are in memory in both." : undefined,
    };
  }

  /** The ledger as a table: what each row holds now, in which of the two, and its evaluations. */
  table() {
    const { rows, view } = this.ledger;
    const lines = rows.names.map((name, row) => {
      const cells = [rows.forward[row], rows.backward[row]];
      const operators = cells.flatMap((cell) => (cell < 0 ? [] : Array.from(listAt(view.operators, cell))));
      const evaluated = this.models.map((model, side) => {
        const { sofar, all } = evaluationsOf(model, operators, this.steps[side]);
        return `${countText(sofar)} of ${countText(all)}`;
      });
      return [name, ...cells.map((cell) => (cell < 0 ? DASH : this.heldWords(cell))), ...evaluated];
    });
    return { head: ["row", "forward", "backward", "evaluated in A", "in B"], lines };
  }

  /** The facts about a cell or a value, once where they are the same in both.
   * @returns {[string, string | number[]][]}
   */
  facts(cell, value) {
    const [one, other] = this.models.map((model, side) => {
      const ledger = { history: historyOfView(model, this.index) };
      return factsOf({ model, step: this.steps[side], view: this.view, ledger }, cell, value);
    });
    const text = (fact) => (typeof fact === "string" ? fact : listed(Array.from(fact, countText), MOST_STEPS));
    return one.flatMap(([term, fact], i) => {
      const [own, others] = [text(fact), text(other[i][1])];
      /** @type {[string, string][]} */
      const said =
        own === others
          ? [[term, own]]
          : [
              [`${term} in A`, own],
              [`${term} in B`, others],
            ];
      return said;
    });
  }

  words() {
    const { inNodes } = this.model;
    const live = this.steps.map((step, side) => liveOf(this.pair, side, step));
    return `${this.lines.map((line) => line.textContent).join("; ")}; ${savedText(live, inNodes)}.`;
  }
}

const WEIGHTLESS = new WeakMap(); // by view: values of cells without memory of their own

/** The values in those cells of a view that have no memory of their own. */
function weightless(graph, index, homeOf) {
  const view = graph.views[index];
  if (!WEIGHTLESS.has(view)) {
    const isHeavy = heavyCells(graph, homeOf, view.labels.length);
    const values = [];
    homeOf.forEach((cell, value) => cell >= 0 && !isHeavy[cell] && values.push(value));
    WEIGHTLESS.set(view, values);
  }
  return WEIGHTLESS.get(view);
}
