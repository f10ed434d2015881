/**
 * Pareto frontier plot with a draggable handle: peak against cost, and the infeasible region below
 * the bound.
 */

import { UNITS, countText } from "../../player/assets/format.js";
import { svgElement } from "../../player/assets/graph.js";
import { textWidth } from "../../player/assets/ruler.js";
import { costText } from "./texts.js";

/**
 * @import { Choice, Offers } from "./offers.js"
 */

const [PLOT_LEFT, PLOT_RIGHT, PLOT_TOP, PLOT_BOTTOM] = [46, 12, 24, 34];
const MOST_TICKS = 5;
const MOST_POWERS = 7; // of two, on an axis of bytes
const HUNDREDTH = 0.01; // of store-all's cost, as costs that are not counted are written
const WIDE = 30; // a ratio of peaks from which the axis is logarithmic
const STEEP = 3; // a ratio of costs from which the axis is logarithmic
const NEAR = 16; // pixels around a policy's mark that still mean it
const STILL = 4; // pixels that a pointer may move and still press
const PAGE = 5; // points that Page Up and Page Down go
const MOST_COUNTED = 1e5; // evaluations; of more an axis says how many times store-all's they are
const LABEL_HEIGHT = 13; // pixels
const HIGHEST_LABEL = 8; // pixels from the plot's edge
const HANDLE = 12; // pixels around a policy's mark that the handle covers where it stands there
const FARTHEST = 2; // of the range of costs along the frontier, what a policy may be to be in scale
const PLACES = [-8, -21, -34, -47, 18, 31]; // of a label, in pixels below its mark, the best first

export class FrontierPlot {
  /**
   * @param {HTMLElement} holder @param {Offers} offers
   * @param {(choice: Choice, settled: boolean) => void} onChoose settled: not while it is dragged
   */
  constructor(holder, offers, onChoose) {
    this.holder = holder;
    this.offers = offers;
    this.onChoose = onChoose;
    this.budget = null;
    this.element = svgElement("svg", { class: "frontier", role: "group", "aria-label": "Peak against cost" }, holder);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  listen() {
    const { element } = this;
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      this.dragging = true;
      this.pressed = this.namedAt(event); // to be chosen, unless the pointer moves on
      this.from = event.clientX;
      this.last = this.pressed ?? this.last;
      if (!this.pressed) this.drag(event);
      this.handle.focus({ preventScroll: true });
      event.preventDefault();
    });
    element.addEventListener("pointermove", (event) => {
      if (this.pressed && Math.abs(event.clientX - this.from) > STILL) this.pressed = null;
      if (this.dragging && !this.pressed) this.drag(event);
      element.classList.toggle("at-policy", !this.dragging && Boolean(this.namedAt(event)));
    });
    for (const name of ["pointerup", "pointercancel"]) {
      element.addEventListener(name, () => {
        if (!this.dragging) return;
        this.dragging = false;
        this.pressed = null;
        this.onChoose(this.last, true);
      });
    }
    element.addEventListener("keydown", (event) => this.key(event));
  }

  drag(event) {
    const { left } = this.element.getBoundingClientRect();
    const budget = this.budgetAt(event.clientX - left);
    this.last = this.offers.within(budget);
    this.onChoose(this.last, false);
  }

  /** The policy whose mark is at the pointer. */
  namedAt(event) {
    const { left, top } = this.element.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const far = (named) => Math.hypot(this.x(named.peak) - x, this.y(named.cost) - y);
    const [nearest] = [...this.offers.named].sort((a, b) => far(a) - far(b));
    // A point of the frontier that is nearer is what is meant.
    const others = this.offers.points.map(far);
    return nearest && far(nearest) < NEAR && far(nearest) <= Math.min(...others) ? nearest : null;
  }

  key(event) {
    if (this.element.closest(".asking")) return; // the points would give the answer away
    const choice = pointByKey(this.offers, this.plan.peak, event);
    if (choice) this.onChoose(choice, true);
  }

  /** Show the position of a schedule. @param {any} plan @param {number | null} budget in bytes */
  show(plan, budget) {
    this.plan = plan;
    this.budget = budget;
    if (this.width) this.place();
  }

  // Scales ----------------------------------------------------------------------------------------

  scale() {
    const { offers } = this;
    // A policy that is many times more expensive would flatten the plot: it is drawn at the top.
    const costs = offers.points.map(({ cost }) => cost);
    const low = Math.min(...costs);
    this.counts = (offers.unit === "evaluations" && Math.max(...costs) < MOST_COUNTED) || !offers.least;
    const far = low + FARTHEST * (Math.max(...costs) - low);
    const high = Math.max(...costs, ...offers.named.map(({ cost }) => cost).filter((cost) => cost <= far));
    const { lowest, highest } = offers;
    this.wide = lowest > 0 && highest / lowest > WIDE;
    this.steep = low > 0 && high / low > STEEP;
    const room = Math.max(highest - lowest, 0.05 * highest);
    this.xs = this.wide ? [lowest / 1.25, highest * 1.15] : [Math.max(0, lowest - 0.1 * room), highest + 0.05 * room];
    const tall = Math.max(high - low, 0.02 * high, 1e-9);
    this.ys = this.steep ? [low / 1.06, high * 1.06] : [low - 0.1 * tall, high + 0.06 * tall];
  }

  x(peak) {
    const share = shareOf(peak, this.xs, this.wide);
    return PLOT_LEFT + Math.min(Math.max(share, 0), 1.02) * (this.width - PLOT_LEFT - PLOT_RIGHT);
  }

  y(cost) {
    const share = shareOf(cost, this.ys, this.steep);
    return this.height - PLOT_BOTTOM - Math.min(Math.max(share, 0), 1.03) * (this.height - PLOT_TOP - PLOT_BOTTOM);
  }

  budgetAt(x) {
    const share = (x - PLOT_LEFT) / (this.width - PLOT_LEFT - PLOT_RIGHT);
    const [low, high] = this.xs;
    return this.wide ? low * (high / low) ** share : low + share * (high - low);
  }

  // The picture -----------------------------------------------------------------------------------

  draw() {
    const [width, height] = [this.holder.clientWidth, this.holder.clientHeight];
    if (!width || (width === this.width && height === this.height)) return;
    this.width = width;
    this.height = height;
    this.scale();
    const { element } = this;
    element.replaceChildren();
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
      element.setAttribute(name, String(value));
    }
    this.hatch();
    this.axes();
    this.known();
    const high = [...this.offers.named].sort((a, b) => b.cost - a.cost);
    for (const named of high) this.mark(named);
    this.gap = svgElement("path", { class: "gap" }, element);
    this.line = svgElement("path", { class: "budget" }, element);
    this.handle = svgElement(
      "g",
      {
        class: "handle",
        role: "slider",
        tabindex: 0,
        "aria-label": "Budget, along the frontier",
        "aria-valuemin": 0,
        "aria-valuemax": this.offers.points.length - 1,
      },
      element,
    );
    svgElement("circle", { r: 10 }, this.handle);
    svgElement("circle", { class: "heart", r: 4.5 }, this.handle);
    if (this.plan) this.place();
  }

  /** Where nothing can be: below the bound of every budget. */
  hatch() {
    const { element, offers } = this;
    const pattern = svgElement(
      "pattern",
      { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" },
      svgElement("defs", {}, element),
    );
    svgElement("path", { class: "stroke", d: "M0 3.5H7" }, pattern);
    const [left, ground] = [PLOT_LEFT, this.height - PLOT_BOTTOM];
    const corners = [[offers.lab.smallest - 1, null], ...offers.lab.bounds];
    let d = `M${left} ${ground}`;
    for (const [budget, bound] of corners) {
      const y = bound === null ? PLOT_TOP : this.y(bound);
      d += `V${y.toFixed(1)}H${this.x(budget).toFixed(1)}`;
    }
    svgElement("path", { class: "impossible", d: `${d}V${ground}z` }, element);
  }

  axes() {
    const ground = this.height - PLOT_BOTTOM;
    const { offers, element } = this;
    const costs = this.counts ? 1 : offers.least;
    for (const tick of ticksBetween(
      this.ys.map((cost) => cost / costs),
      this.steep,
      this.counts ? 1 : HUNDREDTH,
    )) {
      const [y, words] = [this.y(tick * costs), this.costTick(tick * costs)];
      svgElement("path", { class: "grid", d: `M${PLOT_LEFT} ${y}H${this.width - PLOT_RIGHT}` }, element);
      this.text(PLOT_LEFT - 6, y + 4, words, "tick end");
    }
    const units = offers.inNodes ? offers.size : 1;
    const range = this.xs.map((amount) => amount / units);
    let free = PLOT_LEFT - 10;
    const ticks = offers.inNodes ? ticksBetween(range, this.wide, 1) : byteTicksBetween(range, this.wide);
    const texts = offers.inNodes ? ticks.map(countText) : roundSizes(ticks, this.wide);
    for (const [i, tick] of ticks.entries()) {
      const words = texts[i];
      const [x, half] = [this.x(tick * units), textWidth(words, 11) / 2 + 4];
      if (x - half < free || x + half > this.width) continue;
      free = x + half;
      svgElement("path", { class: "grid", d: `M${x} ${ground}v4` }, element);
      this.text(x, ground + 16, words, "tick middle");
    }
    this.text(this.width - PLOT_RIGHT, this.height - 4, offers.inNodes ? "peak, values" : "peak", "tick end");
    this.text(4, 10, this.counts ? "evaluations" : `${offers.unit}, × store-all`, "tick");
  }

  costTick(cost) {
    return this.counts ? countText(Math.round(cost)) : `${(cost / this.offers.least).toFixed(2)}×`;
  }

  /** The frontier as a step line: the least known cost at every budget. */
  known() {
    const { peaks, costs } = this.offers.lab.known;
    let d = "";
    costs.forEach((cost, i) => {
      const [x, y] = [this.x(peaks[i]).toFixed(1), this.y(cost).toFixed(1)];
      d += d ? `H${x}V${y}` : `M${x} ${PLOT_TOP}V${y}`;
    });
    svgElement("path", { class: "stairs", d: `${d}H${this.width - PLOT_RIGHT}` }, this.element);
    this.dots = this.offers.points.map(({ peak, cost }) =>
      svgElement("circle", { class: "dot", cx: this.x(peak), cy: this.y(cost), r: 3 }, this.element),
    );
    this.labels = [];
  }

  /** A policy: a mark, and its name where there is room. */
  mark(named) {
    const [x, y] = [this.x(named.peak), this.y(named.cost)];
    svgElement("path", { class: "policy", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` }, this.element);
    const words = named.cost > this.ys[1] ? `${named.title} ↑ ${this.costTick(named.cost)}` : named.title;
    const wide = textWidth(words, 11.5);
    const right = x + 10 + wide < this.width - 4;
    const left = right ? x + 10 : x - 10 - wide;
    // The handle may come to stand on any of the others' marks.
    const marks = this.offers.named
      .filter((other) => other !== named)
      .map((other) => [this.x(other.peak), this.y(other.cost)])
      .filter(([at]) => at + HANDLE > left && at - HANDLE < left + wide);
    const meets = (top) =>
      top < HIGHEST_LABEL ||
      marks.some(([, at]) => at + HANDLE > top - LABEL_HEIGHT / 2 && at - HANDLE < top + LABEL_HEIGHT / 2) ||
      top > this.height - PLOT_BOTTOM - 4 ||
      this.labels.some(
        (other) => Math.abs(other.top - top) < LABEL_HEIGHT && other.left < left + wide && left < other.right,
      );
    const top = PLACES.map((below) => y + below - (right ? 0 : 8)).find((each) => !meets(each)) ?? y - 8;
    this.labels.push({ left, right: left + wide, top });
    this.text(left, top + 2, words, "name");
  }

  text(x, y, words, name) {
    const text = svgElement("text", { x, y, class: name }, this.element);
    text.textContent = words;
    return text;
  }

  /** Put the handle at the schedule's position. */
  place() {
    const { offers, plan } = this;
    const [x, y] = [this.x(plan.peak), this.y(plan.cost)];
    this.handle.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    const best = offers.bestWithin(plan.peak);
    this.gap.setAttribute("d", best < plan.cost ? `M${x} ${y}V${this.y(best)}` : "");
    const line = this.budget === null ? "" : `M${this.x(this.budget)} ${PLOT_TOP}V${this.height - PLOT_BOTTOM}`;
    this.line.setAttribute("d", line);
    const at = offers.points.findLastIndex((point) => point.peak <= plan.peak);
    this.handle.setAttribute("aria-valuenow", String(Math.max(at, 0)));
    this.handle.setAttribute("aria-valuetext", `peak ${offers.memory(plan.peak)}, ${costText(plan.cost, offers.unit)}`);
  }
}

/** The point of the frontier that a key leads to from a peak; null if the key means nothing here.
 * @param {Offers} offers @param {number} peak @param {KeyboardEvent} event
 */
export function pointByKey({ points }, peak, event) {
  const at = points.findLastIndex((point) => point.peak <= peak);
  const less = peak > points[at]?.peak ? 0 : -1;
  const moves = {
    ArrowRight: 1,
    ArrowUp: 1,
    ArrowLeft: less,
    ArrowDown: less,
    PageUp: PAGE,
    PageDown: -PAGE,
    Home: -points.length,
    End: points.length,
  };
  if (!Object.hasOwn(moves, event.key) || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  event.stopPropagation();
  return points[Math.min(Math.max(at + moves[event.key], 0), points.length - 1)];
}

/** Where a value is between two, 0 to 1.
 * @param {number} value @param {number[]} limits @param {boolean} logarithmic
 */
function shareOf(value, [low, high], logarithmic) {
  return logarithmic ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}

/** A few round numbers between two.
 * @param {number[]} range @param {boolean} logarithmic @param {number} least the finest that is written: 1 for what is counted
 */
function ticksBetween([from, to], logarithmic, least) {
  const ticks = [];
  if (logarithmic) {
    for (let power = Math.max(least, 10 ** Math.floor(Math.log10(from))); power <= to; power *= 10) {
      for (const digit of [1, 2, 3, 5]) if (digit * power >= from && digit * power <= to) ticks.push(digit * power);
    }
    return ticks.length < 2 ? ticksBetween([from, to], false, least) : ticks;
  }
  const rough = Math.max((to - from) / MOST_TICKS, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= rough);
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

/** A few amounts of bytes between two: multiples or powers of a power of two. @param {number[]} range */
function byteTicksBetween([from, to], logarithmic) {
  const ticks = [];
  if (logarithmic) {
    const times = 2 ** Math.ceil(Math.log2(to / from) / MOST_POWERS);
    for (let tick = 2 ** Math.ceil(Math.log2(Math.max(from, 1))); tick <= to; tick *= times) ticks.push(tick);
    return ticks;
  }
  const step = 2 ** Math.max(0, Math.round(Math.log2((to - from) / (MOST_TICKS - 1))));
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(tick);
  return ticks;
}

/** Round amounts of bytes, exactly: 1.25 MiB, but 1088 KiB. Beside each other they are in one unit,
 * unless each is a multiple of the one before.
 * @param {number[]} amounts ascending @param {boolean} logarithmic
 */
function roundSizes(amounts, logarithmic) {
  const unitOf = (some) => {
    let unit = 0;
    const fits = (size) => some.at(-1) >= size && some.every((nbytes) => (1000 * nbytes) % size === 0);
    while (unit < UNITS.length - 1 && fits(1024 ** (unit + 1))) unit++;
    return unit;
  };
  const shared = unitOf(amounts);
  return amounts.map((nbytes) => {
    const unit = logarithmic ? unitOf([nbytes]) : shared;
    return `${countText(nbytes / 1024 ** unit)} ${UNITS[unit]}`;
  });
}
