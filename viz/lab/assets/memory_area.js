/**
 * The lab's first screen: store-all's memory, or the best answer's to a task, as a ghost under the plan's, and the budget as a line upon
 * it that mouse, finger and arrow keys drag.
 */

import { COMPUTE } from "../../player/assets/allocation.js";
import { placesOf } from "../../player/assets/axis.js";
import { amountText, setText } from "../../player/assets/format.js";
import { pointByKey } from "./frontier.js";
import { percentText } from "./texts.js";

/**
 * @import { Model } from "../../player/assets/data.js"
 * @import { Lab } from "./lab.js"
 * @import { Choice, Offers } from "./offers.js"
 */

const [CALLOUT_ROOM, WRAPPED_ROOM, CUT_ROOM] = [66, 78, 60]; // pixels of words above the line: two lines, three, two cut
const BOTH_WIDE = 460; // pixels, below which they wrap and have no room beside "everything saved"
const WRAPPED_WIDE = 250; // pixels, below which they are cut
const FORWARD_ROOM = 76; // pixels that "forward" needs beside "loss"
const LINE_ROOM = 12; // pixels from the line within which no other line is named
const HALF = 0.02; // of store-all's peak: nearer to a half, it is called one

/** What another plan has in memory where a policy is, by step of that: at the same number of first evaluations.
 * @param {any} plan @param {number} size of a value @param {Model} model
 */
export function ghostOf({ steps, replay }, size, model) {
  const most = []; // by first evaluation, the most memory until the next one
  const seen = new Set();
  steps.verbs.forEach((verb, step) => {
    if (verb === COMPUTE && !seen.has(steps.targets[step])) most.push(0);
    if (verb === COMPUTE) seen.add(steps.targets[step]);
    if (most.length) most[most.length - 1] = Math.max(most.at(-1), replay.bytes[step] / size);
  });
  let first = 0; // evaluations
  return Float64Array.from({ length: model.count }, (_, step) => {
    if (model.verbs[step] === COMPUTE) first += 1 - model.again[model.evaluations[step] - 1];
    return most[Math.min(first, most.length) - 1] ?? 0;
  });
}

/** Bytes as values where all have one size. @param {Offers} offers @param {number} bytes */
export function valuesText({ inNodes, size }, bytes) {
  return amountText(Math.floor(bytes / size), inNodes);
}

export class MemoryArea {
  /** @param {Lab} lab */
  constructor(lab) {
    this.lab = lab;
    this.strip = lab.panels[0].strip;
    const make = (tag, name, parent) => {
      const element = document.createElement(tag);
      element.className = name;
      parent.append(element);
      return element;
    };
    this.line = make("div", "budget-line", this.strip.plot);
    for (const [name, value] of Object.entries({
      role: "slider",
      tabindex: "0",
      "aria-orientation": "vertical",
      "aria-label": "Memory budget",
      "aria-valuemin": "0",
      "aria-valuemax": String(lab.offers.points.length - 1),
    }))
      this.line.setAttribute(name, value);
    make("i", "knob", this.line);
    this.callout = make("div", "callout", this.line);
    this.head = make("b", "", this.callout);
    this.rest = make("span", "", this.callout);
    this.stored = make("span", "stored", this.strip.plot);
    this.phases = make("div", "phases", this.strip.element);
    for (const name of ["forward", "loss", "backward"]) make("span", name, this.phases).textContent = name;
    this.listen();
  }

  listen() {
    const { line } = this;
    line.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || this.isFixed) return;
      line.setPointerCapture(event.pointerId);
      this.dragged = this.lab.choice;
      event.preventDefault();
      line.focus({ preventScroll: true });
    });
    line.addEventListener("pointermove", (event) => {
      if (this.dragged) this.drag(event);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      line.addEventListener(name, () => {
        const choice = this.dragged;
        this.dragged = this.at = null;
        if (choice) this.lab.drag(choice, true);
        this.show();
      });
    }
    line.addEventListener("keydown", (event) => {
      const choice = this.isFixed ? null : pointByKey(this.lab.offers, this.lab.plot.plan.peak, event);
      if (choice) this.lab.drag(choice, true);
    });
  }

  /** Whether the budget is a challenge's, which nobody moves. */
  get isFixed() {
    return this.lab.asked.hidden;
  }

  drag(event) {
    const { offers } = this.lab;
    const { bottom, height } = this.strip.plot.getBoundingClientRect();
    const share = (bottom - event.clientY) / (height - this.strip.head);
    const amount = this.strip.scale.amountAt(Math.min(Math.max(share, 0), 1)) * offers.size;
    this.at = Math.min(Math.max(amount, offers.points[0].peak), offers.stored.peak);
    this.dragged = offers.within(this.at);
    this.lab.drag(this.dragged, false);
    this.place();
  }

  /** Show the schedule that is chosen. */
  show() {
    const { lab, line } = this;
    const { offers, choice } = lab;
    const plan = offers.plan(choice);
    this.peak = lab.budget ?? lab.asked.budget ?? plan.peak;
    const { beside } = lab.asked;
    const name = beside === offers.stored ? "everything saved" : "the best";
    setText(this.stored, `${name}: ${valuesText(offers, beside.peak)}`);
    const at = offers.points.findLastIndex((point) => point.peak <= plan.peak);
    setText(this.head, `${valuesText(offers, plan.peak)} · ${shareWords(plan.peak / offers.stored.peak)}`);
    setText(this.rest, this.costWords(plan));
    line.setAttribute("aria-valuenow", String(Math.max(at, 0)));
    line.setAttribute("aria-valuetext", `${this.head.textContent}, ${this.rest.textContent}`);
    line.setAttribute("aria-disabled", String(this.isFixed));
    line.classList.toggle("fixed", this.isFixed);
    this.place();
  }

  /** Whether an amount is so near to the line that its name would be under it. @param {number} amount */
  covers(amount) {
    const { strip, lab } = this;
    const far = strip.scale.at(amount) - strip.scale.at(this.peak / lab.offers.size);
    return Math.abs(far) * strip.high < LINE_ROOM * lab.scales.large;
  }

  /** What a plan costs, and how far it is from the best. */
  costWords({ cost, peak }) {
    const { offers, asked } = this.lab;
    const more = offers.least ? (100 * (cost - offers.least)) / offers.least : 0;
    const work = more > 0 ? `${percentText(more).slice(1)} more work` : "no work is repeated";
    if (asked.hidden) return work;
    const best = offers.bestWithin(peak);
    if (offers.isProven(cost, peak)) return `${work} · nothing costs less`;
    const bound = Math.max(offers.boundAt(peak), offers.least);
    const [above, what] = best < cost ? [best, "best known"] : [bound, "best possible"];
    return `${work} · within ${percentText((100 * (cost - above)) / above).slice(1)} of the ${what}`;
  }

  /** Put everything where it is on the axes. */
  place() {
    const { strip, lab, line } = this;
    if (!strip.scale || this.peak === undefined) return;
    const { high } = strip;
    const { size } = lab.offers;
    const bottom = strip.scale.at((this.at ?? this.peak) / size) * high;
    line.style.transform = `translateY(${-bottom}px)`; // moved without a layout
    const stored = strip.scale.at(lab.asked.beside.peak / size) * high;
    const isNarrow = strip.wide < BOTH_WIDE * lab.scales.large;
    const isCut = strip.wide < WRAPPED_WIDE * lab.scales.large;
    const room = isCut ? CUT_ROOM : isNarrow ? WRAPPED_ROOM : CALLOUT_ROOM;
    const isUnder = bottom > high + strip.head - room;
    line.classList.toggle("under", isUnder);
    // The plan is what the words are about; what everything takes is in the headline too.
    this.stored.classList.toggle("covered", isNarrow && !isUnder && bottom > stored - room);
    this.stored.style.bottom = `${stored}px`;
    const { model } = strip;
    const loss = model.computes.find((step) => model.targets[step] >= model.graph.forward_count) ?? model.count;
    const { extent } = lab.scales;
    const share = (placesOf(model, extent.axis)[loss] - extent.from) / (extent.to - extent.from);
    this.phases.style.setProperty("--loss", `${100 * Math.min(Math.max(share, 0), 1)}%`);
    this.phases.classList.toggle("brief", share * strip.wide < FORWARD_ROOM * lab.scales.large);
  }
}

/** @param {number} share of store-all's peak */
function shareWords(share) {
  if (!(share < 1)) return "all of the memory"; // of nothing too
  if (Math.abs(share - 0.5) <= HALF) return "half the memory";
  return `${Math.round(100 * share)} % of the memory`;
}
