/** Memory breakdown of a step: every resident value, largest first, with the reason it is live. */

import { blocksAt } from "./blocks.js";
import { SIDES } from "./difference_panel.js";
import { counted, shortLive, shortSize } from "./format.js";
import { LongList, fillRow } from "./longlist.js";
import { reasonOf } from "./reasons.js";

/**
 * @import { Model } from "./data.js"
 * @import { Panel } from "./panel.js"
 */

const FILLING_ROW = 42; // pixels; the same in the style sheet

export class Filling {
  /** @param {(panel: Panel, value: number) => void} onChoose @param {() => void} onPeak */
  constructor(onChoose, onPeak) {
    this.onChoose = onChoose;
    this.element = document.getElementById("filling-list");
    this.title = document.getElementById("filling-title");
    this.total = document.getElementById("filling-total");
    this.list = new LongList(this.element, (row, index) => this.fill(row, index), FILLING_ROW, "option");
    this.items = [];
    this.active = 0;
    this.element.addEventListener("click", (event) => {
      const row = /** @type {any} */ (event.target).closest(".row");
      if (row) this.choose(Number(row.dataset.index));
    });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.none = document.getElementById("filling-none");
    this.peak = document.getElementById("filling-peak");
    this.peak.addEventListener("click", () => {
      onPeak();
      this.element.focus(); // the button is gone
    });
  }

  /** Show the live values of a policy after a step. @param {Panel} panel @param {number} step */
  show(panel, step) {
    const { model } = panel;
    if (this.panel === panel && this.model === model && this.step === step && this.value === panel.value && !panel.pair)
      return;
    this.panel = panel;
    this.model = model;
    this.step = step;
    this.value = panel.value;
    const { items, title, total } = panel.fills();
    this.items = items;
    this.title.textContent = title;
    this.total.textContent = total;
    this.none.hidden = items.length > 0;
    this.element.hidden = !this.none.hidden;
    this.peak.textContent = `What fills the peak of ${model.inNodes ? counted(model.live[model.peakStep], "value") : shortSize(model.live[model.peakStep])}?`;
    if (this.list.count !== this.items.length) this.list.reset(this.items.length);
    this.active = Math.max(0, Math.min(this.active, this.items.length - 1));
    this.list.refill();
    this.mark();
  }

  fill(row, index) {
    const item = this.items[index];
    const { model } = item;
    const { names } = model.graph.data;
    const name = item.value < 0 ? "workspace" : names[item.value];
    const size = shortLive(item.amount, model.inNodes);
    const who = item.side === undefined ? "" : `only ${SIDES[item.side]}: `;
    const why = who + reasonOf(model, item, item.step);
    row.dataset.band = String(item.band);
    row.dataset.side = item.side ?? "";
    row.title = why;
    row.id = `filling-${index}`;
    row.setAttribute("aria-label", `${name}, ${size}, ${why}`);
    row.setAttribute("aria-selected", String(item.value >= 0 && item.value === this.value));
    fillRow(row, [
      ["swatch", ""],
      ["name", name],
      ["size", model.inNodes ? "" : size],
      ["why", why],
    ]);
  }

  /** Mark the row that the keyboard is at. */
  mark() {
    if (this.items.length) this.element.setAttribute("aria-activedescendant", `filling-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
    for (const row of this.list.rows) row.classList.toggle("active", Number(row.dataset.index) === this.active);
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      this.active = Math.min(Math.max(this.active + by, 0), this.items.length - 1);
      this.list.follow(this.active);
      this.mark();
    } else if (event.key === "Enter") this.choose(this.active);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  choose(index) {
    const item = this.items[index];
    this.active = index;
    this.mark();
    if (item && item.value >= 0) this.onChoose(this.panel, item.value);
  }
}

/** The live values of a policy after a step, by size, and their total.
 * @param {Model} model @param {number} step
 */
export function filledBy(model, step) {
  const items = blocksAt(model, step).filter(({ amount }) => amount > 0);
  items.sort((a, b) => b.amount - a.amount || a.band - b.band || a.begin - b.begin);
  const [now, most] = [step < 0 ? 0 : model.live[step], model.live[model.peakStep]];
  const total = `${shortLive(now, model.inNodes)} of ${model.inNodes ? counted(most, "value") : shortSize(most)}`;
  return { items: items.map((item) => ({ ...item, model, step })), title: "what fills this moment", total };
}
