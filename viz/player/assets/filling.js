/**
 * Memory breakdown of a step as bars, largest first, opened level by level: scopes, then kinds of
 * operators, then values with the reason why each is live.
 */

import { blocksAt } from "./blocks.js";
import { SIDES } from "./difference_panel.js";
import { amountText, counted, shortLive, setText } from "./format.js";
import { ownName, reasonOf } from "./reasons.js";

/**
 * @import { Model } from "./data.js"
 * @import { Panel } from "./panel.js"
 *
 * @typedef {{value: number, band: number, amount: number, begin: number, end: number, model: Model,
 *     step: number, side?: number}} Item
 * @typedef {{name: string, depth: number, items: Item[], amount: number, opens: boolean, isRest?: boolean}} Bar
 */

const MOST_BARS = 8;
const MOST_LISTED = 100; // values of one kind that are listed

export class Filling {
  /** @param {(panel: Panel, value: number) => void} onChoose @param {() => void} onPeak */
  constructor(onChoose, onPeak) {
    this.onChoose = onChoose;
    this.element = document.getElementById("filling-list");
    this.title = document.getElementById("filling-title");
    this.total = document.getElementById("filling-total");
    this.back = document.getElementById("filling-back");
    this.path = /** @type {string[]} */ ([]); // what is open
    this.skipped = 0; // larger bars than those that are shown
    this.items = /** @type {Item[]} */ ([]);
    this.bars = /** @type {Bar[]} */ ([]);
    this.acts = /** @type {any} */ (null); // a lab's: what a button on a bar does
    this.element.addEventListener("click", (event) => {
      const button = /** @type {HTMLElement} */ (event.target).closest("button");
      const bar = button && this.bars[Number(/** @type {HTMLElement} */ (button.closest(".row")).dataset.index)];
      if (bar && button.classList.contains("act")) this.acts.act(this.panel, bar);
      else if (bar) this.choose(bar);
    });
    this.element.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!by) return;
      const row = /** @type {HTMLElement} */ (event.target).closest(".row");
      const next = by > 0 ? row.nextElementSibling : row.previousElementSibling;
      /** @type {HTMLElement | null} */ (next?.querySelector(".bar"))?.focus();
      event.preventDefault(); // it does not scroll
    });
    this.back.addEventListener("click", () => {
      if (this.skipped) this.skipped = 0;
      else this.path.pop();
      this.refill();
      this.element.querySelector("button")?.focus();
    });
    this.none = document.getElementById("filling-none");
    this.peak = document.getElementById("filling-peak");
    this.peak.addEventListener("click", () => {
      onPeak();
      this.element.querySelector("button")?.focus(); // the button is gone
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
    const { items, title, total, none = "Nothing is in memory yet." } = panel.fills();
    this.items = items;
    setText(this.title, title);
    setText(this.total, total);
    this.none.hidden = items.length > 0;
    this.none.firstChild.textContent = `${none} `;
    this.element.hidden = !this.none.hidden;
    this.peak.textContent = `What fills the peak of ${amountText(model.live[model.peakStep], model.inNodes)}?`;
    this.refill();
  }

  /** Show the bars of what is open; of the nearest above it that there is at this moment. */
  refill() {
    let inside = this.inside();
    while (this.path.length && !inside.length) {
      this.path.pop();
      this.skipped = 0;
      inside = this.inside();
    }
    const all = levelOf(inside, this.path.length);
    const most = all.some(({ opens }) => opens) ? MOST_BARS : MOST_LISTED;
    if (this.skipped >= all.length) this.skipped = 0;
    const shown = all.slice(this.skipped);
    this.bars = shown.length > most ? [...shown.slice(0, most - 1), restOf(shown.slice(most - 1))] : shown;
    this.back.hidden = !this.path.length && !this.skipped;
    setText(this.back, `‹ ${this.path.at(-1) ?? "larger ones"}`);
    this.back.setAttribute(
      "aria-label",
      `Back from ${[...this.path, this.skipped ? "the rest" : ""].filter(Boolean).join(", ")}`,
    );
    const largest = Math.max(...all.map(({ amount }) => amount), 1);
    while (this.element.childElementCount > this.bars.length) this.element.lastElementChild.remove();
    while (this.element.childElementCount < this.bars.length) this.element.append(this.build());
    this.bars.forEach((bar, i) => this.fill(/** @type {HTMLElement} */ (this.element.children[i]), bar, i, largest));
    this.acts?.show(this.panel, this.bars);
  }

  /** The live values in what is open. */
  inside() {
    return this.items.filter((item) => this.path.every((key, depth) => keysOf(item)[depth] === key));
  }

  build() {
    const row = document.createElement("li");
    row.className = "row";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "bar";
    for (const name of ["name", "track", "size", "why"]) {
      const span = document.createElement("span");
      span.className = name;
      button.append(span);
    }
    row.append(button);
    return row;
  }

  /** A label without the name in brackets, where no other bar has that label. @param {string} name */
  briefly(name) {
    const label = name.replace(/ \([a-z]\w*_\d+\)$/i, "");
    return this.bars.some((other) => other.name !== name && other.name.startsWith(label)) ? name : label;
  }

  /** @param {HTMLElement} row @param {Bar} bar @param {number} index @param {number} largest */
  fill(row, bar, index, largest) {
    const { items, opens, amount } = bar;
    const { inNodes } = this.model;
    const [item] = items;
    const size = shortLive(amount, inNodes);
    const who = item.side === undefined || opens ? "" : `only ${SIDES[item.side]}: `;
    const why = opens ? counted(items.length, "value") : who + reasonOf(item.model, item, item.step);
    row.dataset.index = String(index);
    const button = /** @type {HTMLElement} */ (row.firstElementChild);
    const [name, track, number, reason] = /** @type {HTMLElement[]} */ (Array.from(button.children));
    setText(name, opens ? `${bar.name} ›` : this.briefly(bar.name));
    setText(number, size);
    setText(reason, why);
    button.title = `${bar.name}: ${why}`;
    button.setAttribute("aria-label", `${bar.name}, ${size}, ${why}${opens ? ", opens" : ""}`);
    if (opens) button.removeAttribute("aria-pressed");
    else button.setAttribute("aria-pressed", String(item.value >= 0 && item.value === this.value));
    const parts = new Map(); // by look, what of the bar has it
    for (const { side, band, amount: own } of items) {
      const look = side === undefined ? `band-${band}` : `side-${side}`;
      parts.set(look, (parts.get(look) ?? 0) + own);
    }
    const wanted = [...parts].sort(([a], [b]) => (a < b ? -1 : 1));
    while (track.childElementCount > wanted.length) track.lastElementChild.remove();
    while (track.childElementCount < wanted.length) track.append(document.createElement("i"));
    wanted.forEach(([look, own], i) => {
      const part = /** @type {HTMLElement} */ (track.children[i]);
      part.className = look;
      part.style.width = `${(100 * own) / largest}%`;
    });
  }

  /** Open a bar, or select its value. @param {Bar} bar */
  choose(bar) {
    // The bar of the rest is the last one; all others of these are shown.
    if (bar.isRest) this.skipped += this.bars.length - 1;
    else if (bar.opens) {
      this.path = keysOf(bar.items[0]).slice(0, bar.depth + 1);
      this.skipped = 0;
    } else {
      if (bar.items[0].value >= 0) this.onChoose(this.panel, bar.items[0].value);
      return;
    }
    this.refill();
    this.element.querySelector("button")?.focus();
  }
}

/** What a value is in, from the outside in: scopes, or gradients and their scopes; then the kind of its operator.
 * @param {Item} item @returns {string[]}
 */
function keysOf({ value, model }) {
  if (value < 0) return ["workspace"];
  const { data, operators, forward_count: forward } = model.graph;
  const producer = data.producers[value];
  const isGradient = producer >= forward;
  const own = isGradient && operators.adjoints[producer] >= 0 ? operators.adjoints[producer] : producer;
  const scopes = operators.scopes[own] ? operators.scopes[own].split("/") : [];
  return [...(isGradient ? ["gradients"] : []), ...scopes, operators.kinds[own]];
}

/** The bars of some live values at a level, the largest first. One bar alone is opened; values of a kind stand by
 * themselves where there is room for all.
 * @param {Item[]} items @param {number} depth @returns {Bar[]}
 */
function levelOf(items, depth) {
  const groups = new Map();
  for (const item of items) {
    const key = keysOf(item)[depth] ?? "";
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  if (groups.size === 1 && items.some((item) => keysOf(item).length > depth + 1)) return levelOf(items, depth + 1);
  const single = (item) => ({
    name: item.value < 0 ? "workspace" : ownName(item.model.graph.data.names[item.value]),
    depth,
    items: [item],
    amount: item.amount,
    opens: false,
  });
  let count = groups.size;
  const bars = [...groups].flatMap(([name, own]) => {
    const isKind = own.every((item) => keysOf(item).length <= depth + 1);
    const all = count + own.length - 1;
    if (own.length === 1 || (isKind && (all <= MOST_BARS || groups.size === 1))) {
      count = all;
      return own.map(single);
    }
    const amount = own.reduce((sum, item) => sum + item.amount, 0);
    return [{ name, depth, items: own, amount, opens: true }];
  });
  return bars.sort((a, b) => b.amount - a.amount);
}

/** Smaller bars than those that are shown, as one. @param {Bar[]} bars @returns {Bar} */
function restOf(bars) {
  const items = bars.flatMap((bar) => bar.items);
  const amount = items.reduce((sum, item) => sum + item.amount, 0);
  return { name: `${bars.length} more`, depth: bars[0].depth, items, amount, opens: true, isRest: true };
}

/** The live values of a policy after a step, by size, and their total.
 * @param {Model} model @param {number} step
 */
export function filledBy(model, step) {
  const items = blocksAt(model, step).filter(({ amount }) => amount > 0);
  items.sort((a, b) => b.amount - a.amount || a.band - b.band || a.begin - b.begin);
  const [now, most] = [step < 0 ? 0 : model.live[step], model.live[model.peakStep]];
  const total = `${shortLive(now, model.inNodes)} of ${amountText(most, model.inNodes)}`;
  const title = `What is in memory ${step === model.peakStep ? "at the peak" : "now"}`;
  return { items: items.map((item) => ({ ...item, model, step })), title, total };
}
