/** Toggling of saved values: what a click on a graph node changes in the chosen schedule. */

import { AGAIN_BAND, KEPT_BAND } from "../../player/assets/blocks.js";
import { listAt } from "../../player/assets/columns.js";
import { cellName } from "../../player/assets/details.js";

/**
 * @import { Choice, Offers } from "./offers.js"
 */

const IDLE_BEFORE_EFFECTS = 150; // milliseconds without a change before effects are planned

/** The values that a cell would keep or drop. @param {Offers} offers @returns {number[]} */
function valuesOf(offers, view, cell) {
  const { operators, forward_count: forward } = offers.graph;
  const own = Array.from(listAt(view.data, cell)).filter((value) => offers.canKeep(value));
  if (!view.groups[cell]) return own;
  // Of a group, outputs read outside it in the forward pass; else all that the backward pass reads.
  const inside = new Set(listAt(view.operators, cell));
  const leaving = new Set();
  for (let i = 0; i < forward; i++) {
    if (!inside.has(i)) for (const value of listAt(operators.inputs, i)) leaving.add(value);
  }
  const out = own.filter((value) => leaving.has(value));
  return out.length ? out : own.filter((value) => offers.graph.firstReader?.[value] >= 0);
}

/** What keeps or drops a cell, or one value; null if there is nothing to keep.
 * @param {Offers} offers @param {Choice[]} choices so far; the last one is shown
 * @returns {Toggle | null}
 */
export function toggled(offers, choices, panel, cell, value) {
  const whole = value < 0 && cell >= 0 ? Array.from(listAt(panel.view.data, cell)) : [value];
  const values =
    value >= 0 ? [value].filter((each) => offers.canKeep(each)) : cell < 0 ? [] : valuesOf(offers, panel.view, cell);
  const name = value < 0 && cell >= 0 ? cellName(panel.model, panel.view, cell) : offers.graph.data.names[value];
  return toggledValues(offers, choices, values, whole, name);
}

/** What keeps some values, or drops all of a whole if they are kept. To keep what was dropped last is to go back,
 * but not to a policy: what is picked by hand has no policy's name.
 * @typedef {{choice: Choice, keeps: boolean, values: number[], name: string, change: string}} Toggle
 * @param {Offers} offers @param {Choice[]} choices @param {number[]} values @param {number[]} whole
 * @returns {Toggle | null}
 */
export function toggledValues(offers, choices, values, whole, name) {
  if (!values.length) return null;
  const now = choices.at(-1);
  const kept = new Set(offers.keptBy(now));
  const keeps = !values.every((each) => kept.has(each));
  const before = choices.at(-2);
  const isDropped = keeps && now.kind === "kept" && before && before.kind !== "named";
  const undoes = isDropped && areEqual(without(offers.keptBy(before), whole), kept);
  if (keeps) for (const each of values) kept.add(each);
  else for (const each of whole) kept.delete(each);
  const choice = undoes ? before : offers.keeping(kept);
  const own = choice.kind === now.kind || offers.isByHand(now);
  const change = offers.difference(offers.plan(now), offers.plan(choice)) + (own ? "" : ", as the policy retain");
  return { choice, keeps, values, name, change };
}

/** Buttons on the bars of what is in memory: each keeps or drops what its bar stands for, and says what that changes. */
export class BarActs {
  /** @param {any} lab */
  constructor(lab) {
    this.lab = lab;
    this.known = new Map(); // toggles of the present choice, by their values
  }

  /** Say on each bar what can be done; planned one after the other while nothing else happens.
   * @param {any} panel @param {any[]} bars
   */
  show(panel, bars) {
    clearTimeout(this.waiting);
    const { lab } = this;
    if (this.choice !== lab.choice) this.known.clear();
    this.choice = lab.choice;
    const rows = Array.from(lab.filling.element.children);
    const { classList } = lab.filling.element;
    const next = (at) => {
      if (at >= bars.length)
        return void classList.toggle(
          "acts",
          rows.some((row) => row.querySelector(".act")),
        );
      const key = keyOf(bars[at]);
      const isKnown = this.known.has(key);
      // What is dragged or played is not planned for; nothing else comes back to it once it rests.
      if (!isKnown && lab.isMoving) return void (this.waiting = setTimeout(() => next(at), IDLE_BEFORE_EFFECTS));
      if (!isKnown) this.known.set(key, this.toggle(bars[at]));
      this.fill(/** @type {HTMLElement} */ (rows[at]), bars[at], this.known.get(key));
      if (isKnown) next(at + 1);
      else this.waiting = setTimeout(() => next(at + 1));
    };
    for (const row of rows) {
      const act = row.querySelector(".act");
      if (act && act === document.activeElement) /** @type {HTMLElement} */ (row.querySelector(".bar")).focus();
      act?.remove();
    }
    this.waiting = setTimeout(() => next(0), bars.every((bar) => this.known.has(keyOf(bar))) ? 0 : IDLE_BEFORE_EFFECTS);
  }

  /** Drop what is kept, or keep what was recomputed: what helps, else what changes anything; null if nothing does.
   * @returns {Toggle | null}
   */
  toggle(bar) {
    const { offers } = this.lab;
    const now = offers.plan(this.choice);
    const legal = [KEPT_BAND, AGAIN_BAND].map((band) => this.toggleOf(bar, band)).filter(Boolean);
    const changes = ({ choice }) => offers.plan(choice).peak !== now.peak || offers.plan(choice).cost !== now.cost;
    return legal.find((found) => this.helps(found)) ?? legal.find(changes) ?? null;
  }

  /** Whether dropping lowers the peak, or keeping saves work. @param {Toggle} found */
  helps({ keeps, choice }) {
    const [now, then] = [this.choice, choice].map((each) => this.lab.offers.plan(each));
    return keeps ? then.cost < now.cost : then.peak < now.peak;
  }

  /** @returns {Toggle | null} */
  toggleOf(bar, band) {
    const { lab } = this;
    const { results } = lab.offers.graph.data; // they stay in any case
    const own = valuesIn(bar, band).filter((value) => lab.offers.canKeep(value) && !results.includes(value));
    // Of a group what leaves its blocks stays: from there the rest is recomputed, block by block.
    const inner = bar.opens ? own.filter((value) => !lab.offers.leaves(value)) : own;
    const values = inner.length ? inner : own;
    return toggledValues(lab.offers, lab.choicesSoFar, values, values, bar.name);
  }

  /** Why nothing can be done about a bar. */
  reason({ items, isRest }) {
    if (isRest) return "open it to keep or drop a value";
    if (items.every(({ value }) => value < 0)) return "workspace: it is freed when this evaluation ends";
    if (!items.some(({ value }) => this.lab.offers.canKeep(value)))
      return "gradients are not dropped: the backward pass reads them, or they are results";
    if (items.every(({ value }) => this.lab.offers.graph.data.results.includes(value)))
      return "a result: it stays to the end";
    return "whether it is kept by hand or dropped, memory and work are the same";
  }

  fill(row, bar, found) {
    if (!found || bar.isRest) {
      const own = /** @type {HTMLElement} */ (row.querySelector(".bar"));
      own.title = `${own.title.split("\n")[0]}\nNo button: ${this.reason(bar)}.`;
      return;
    }
    const { offers } = this.lab;
    const [from, to] = [this.choice, found.choice].map((choice) => offers.plan(choice));
    const button = document.createElement("button");
    button.type = "button";
    button.className = "act";
    const verb = found.keeps ? "keep" : "drop";
    // In two lines, on a phone, the break is after the comma.
    const change = this.helps(found) ? offers.shortDifference(from, to).replace(/(?<!,) /g, "\u00a0") : "no\u00a0gain";
    button.textContent = `${verb}: ${change}`;
    button.setAttribute("aria-label", `${found.keeps ? "Keep" : "Recompute"} ${bar.name}: ${found.change}`);
    button.title = /** @type {string} */ (button.getAttribute("aria-label"));
    row.append(button);
  }

  /** Do what a bar's button says. The button goes, and the focus stays: on the bar, or on the next. */
  act(panel, bar) {
    const found = this.known.get(keyOf(bar));
    if (!found) return;
    const { filling } = this.lab;
    const at = filling.bars.indexOf(bar);
    this.lab.takeFlipped(found);
    const same = filling.bars.findIndex(({ name }) => name === bar.name);
    const row = filling.element.children[same < 0 ? Math.min(at, filling.bars.length - 1) : same];
    /** @type {HTMLElement | null} */ (row?.querySelector(".bar"))?.focus();
  }
}

/** The values of a bar in a band. @param {any} bar @param {number} band */
function valuesIn({ items }, band) {
  return items.filter((item) => item.band === band).map(({ value }) => value);
}

/** What the change of a bar depends on: what of it is kept, and what was recomputed. */
function keyOf(bar) {
  return [KEPT_BAND, AGAIN_BAND].map((band) => valuesIn(bar, band)).join("|");
}

/** Some values without others, as a set. @param {Iterable<number>} some @param {number[]} values */
function without(some, values) {
  const left = new Set(some);
  for (const value of values) left.delete(value);
  return left;
}

/** @param {Set<number>} one @param {Set<number>} other */
function areEqual(one, other) {
  return one.size === other.size && [...one].every((value) => other.has(value));
}
