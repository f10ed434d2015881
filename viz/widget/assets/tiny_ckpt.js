/** The element tiny-ckpt: the explainer of a trace, live: two policies in step, with play and a slider. */

import {
  checkedData,
  memoryText,
  sentenceOf,
  intervalsOf,
  inStep,
  RESULTS,
  WORKSPACE,
  resultsOf,
  secondsOf,
  STOP_NAMES,
  stopNamed,
  stopPlaces,
} from "./moments.js";
import { BAR_HIGH, memoryMarks, TANK_HIGH, tankWide, tileBoxes, TILES_HIGH, tilesMarks } from "./tiles.js";

/**
 * @import { Moment, RowData, TraceData } from "./moments.js"
 */

const ELEMENT = "tiny-ckpt";
const WIDGET_STYLES = "{{styles}}";
const DRIVEN = ["stop", "budget", "policy", "compare"]; // attributes that links set, as data-ckpt-stop
const LINKS = DRIVEN.map((name) => `[data-ckpt-${name}]`).join();
const NARROW = 480; // pixels of a font of 16: the memory lies below the tiles
const PLAY_ICON = '<svg viewBox="0 0 16 16" aria-hidden="true"><path fill="currentColor" d="M3 1l11 7-11 7z"/></svg>';
const PAUSE_ICON =
  '<svg viewBox="0 0 16 16" aria-hidden="true"><path fill="currentColor" d="M3 1h4v14H3zM9 1h4v14H9z"/></svg>';
const LEGEND = [
  ["in memory", '<rect class="kept" width="16" height="16" rx="3"/>'],
  ["thrown away", '<rect class="dropped" x="1" y="1" width="14" height="14" rx="3"/>'],
  [
    "computed again",
    '<rect class="recomputed" width="16" height="16" rx="3"/><path class="hatching" d="M2 14L9 2M8 15L14 5"/>' +
      '<rect class="outline-recomputed" x="1" y="1" width="14" height="14" rx="3"/>',
  ],
  ["gradient, going back", '<rect class="gradient" width="16" height="16" rx="3"/>'],
  ["result", '<rect class="staying" width="16" height="16" rx="3"/>'],
  ["workspace", '<rect class="workspace" width="16" height="16" rx="3"/>'],
];
const SOMETIMES = [RESULTS, WORKSPACE]; // the last of the legend: shown where the data have them
const FACTORS = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40 };

/** A budget as an amount: a number of values or bytes, "50 %" of store-all's peak, "1.5 GiB".
 * @param {string} text @param {TraceData} data @returns {number}
 */
function budgetAsAmount(text, data) {
  const found = /^\s*([\d.]+(?:e\d+)?)\s*(%|([kmgt]i?)?b|)\s*$/i.exec(text);
  if (!found) return Number.NaN;
  if (/b$/i.test(found[2]) && data.unit === "values") return Number.NaN;
  if (found[2] === "%") return (Number(found[1]) / 100) * data.rows[0].peak;
  return Number(found[1]) * FACTORS[(found[3] ?? "").toLowerCase()];
}

/** The widget that a link drives: the one it names, or the nearest in the document.
 * @param {HTMLElement} link @returns {Element | null}
 */
function drivenBy(link) {
  if (link.dataset.ckptFor) return document.getElementById(link.dataset.ckptFor);
  for (let scope = link.parentElement; scope; scope = scope.parentElement) {
    const found = scope.querySelector(ELEMENT);
    if (found) return found;
  }
  return null;
}

/** Follow a link that drives a widget. @param {Event} event */
function followLink(event) {
  const link = event.target instanceof Element ? event.target.closest(LINKS) : null;
  if (!(link instanceof HTMLElement)) return;
  const widget = drivenBy(link);
  if (!widget) return;
  event.preventDefault();
  for (const name of DRIVEN) {
    const value = link.getAttribute(`data-ckpt-${name}`);
    if (value !== null) widget.setAttribute(name, value);
  }
}

/** Follow a link that has no address of its own by keyboard. @param {KeyboardEvent} event */
function followKey(event) {
  const link = event.target;
  if (![" ", "Enter"].includes(event.key) || !(link instanceof HTMLElement)) return;
  if (!link.matches(LINKS) || link.matches("[href], button")) return;
  event.preventDefault();
  link.click();
}

/** Let the keyboard reach links that have no address of their own. */
function reachLinks() {
  for (const link of document.querySelectorAll(LINKS)) {
    if (link instanceof HTMLElement && !link.matches("[href], [tabindex]")) {
      link.tabIndex = 0;
      link.setAttribute("role", "button");
    }
  }
}

/** Whether text of a colour stands on a dark ground; a canvas reads every notation. @param {string} colour as computed */
function isLight(colour) {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  return 0.3 * red + 0.59 * green + 0.11 * blue > 127;
}

/** Fires ckpt-step, ckpt-schedule, ckpt-play, ckpt-pause, ckpt-keep and ckpt-error. */
class TinyCkpt extends HTMLElement {
  static observedAttributes = ["src", "keep", "theme", ...DRIVEN];

  constructor() {
    super();
    /** @type {TraceData | null} */
    this.traceData = null;
    /** @type {number[]} */
    this.shownRows = [];
    /** @type {Moment[]} */
    this.moments = [];
    /** @type {number | null} */
    this.picked = null; // the row that was chosen as such, and not by an attribute
    this.place = 0;
    this.timer = 0;
    this.attachShadow({ mode: "open" });
    const entries = LEGEND.map(
      ([words, marks]) => `<li><svg viewBox="0 0 16 16" aria-hidden="true">${marks}</svg>${words}</li>`,
    );
    this.shadowRoot.innerHTML = `<style>${WIDGET_STYLES}</style><div class="widget">
<svg width="0" height="0" aria-hidden="true"><defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(32)"><path class="hatching" d="M4 0V8"/></pattern></defs></svg>
<div class="rows"></div><ul class="legend">${entries.join("")}</ul><p class="result"></p><p class="problem" role="status"></p>
<div class="controls"><button class="play" type="button"></button>
<input class="slider" type="range" min="0" step="1" aria-label="moment">
<select class="schedules" aria-label="budget"></select></div></div>`;
    /** @param {string} name @returns {any} */
    const part = (name) => this.shadowRoot.querySelector(`.${name}`);
    this.parts = {
      ...{ widget: part("widget"), rows: part("rows"), result: part("result"), play: part("play") },
      ...{ slider: part("slider"), schedules: part("schedules"), problem: part("problem") },
    };
    this.parts.play.addEventListener("click", () => (this.timer ? this.pause() : this.play()));
    this.parts.slider.addEventListener("input", () => {
      this.pause();
      this.show(Number(this.parts.slider.value));
    });
    this.parts.schedules.addEventListener("change", () => this.pick(Number(this.parts.schedules.value)));
    this.sizes = new ResizeObserver(() => this.draw());
    this.themes = new MutationObserver(() => this.takeTheme());
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.themeChanged = () => this.takeTheme();
  }

  connectedCallback() {
    this.sizes.observe(this);
    for (const above of [document.documentElement, document.body]) this.themes.observe(above, { attributes: true });
    this.scheme.addEventListener("change", this.themeChanged);
    this.takeTheme();
    this.setPlaying(false);
    if (this.traceData) this.choose();
    else if (document.readyState === "loading") {
      document.addEventListener("DOMContentLoaded", () => this.load(), { once: true });
    } else this.load();
  }

  disconnectedCallback() {
    this.pause();
    this.sizes.disconnect();
    this.themes.disconnect();
    this.scheme.removeEventListener("change", this.themeChanged);
  }

  /** @param {string} name */
  attributeChangedCallback(name) {
    if (name === "theme") this.takeTheme();
    else if (name === "src" && this.isConnected && document.readyState !== "loading") this.load();
    else if (name === "stop") this.goTo(this.getAttribute("stop"));
    else {
      this.picked = null;
      if (this.traceData) this.choose();
    }
  }

  /** The data that are shown. @returns {TraceData | null} */
  get data() {
    return this.traceData;
  }

  set data(data) {
    this.pause();
    this.traceData = checkedData(data);
    const entries = this.shadowRoot.querySelectorAll(".legend li");
    SOMETIMES.forEach((symbol, place) => {
      const isThere = data.rows.some(({ moments }) => moments.includes(symbol));
      entries[entries.length - SOMETIMES.length + place].toggleAttribute("hidden", !isThere);
    });
    this.moments = [];
    this.picked = null;
    if (this.isConnected) this.choose();
  }

  /** Read the data: of the file in src, or as JSON in the element. */
  async load() {
    reachLinks();
    const source = this.getAttribute("src");
    const isPast = () => source !== this.getAttribute("src"); // another was asked for meanwhile
    try {
      if (source) {
        const answer = await fetch(source);
        if (!answer.ok) throw new Error(`${source}: ${answer.status}`);
        const data = await answer.json();
        if (!isPast()) this.data = data;
      } else {
        const inside = this.querySelector('script[type="application/json"]');
        if (!inside || this.traceData) return;
        this.data = JSON.parse(inside.textContent);
      }
    } catch (error) {
      if (isPast()) return;
      const message = error instanceof Error ? error.message : String(error);
      this.pause();
      [this.traceData, this.moments] = [null, []];
      this.parts.rows.textContent = "";
      this.complain([`The trace could not be read: ${message}`]);
    }
  }

  /** The row that is shown, below the one that it is compared with. @returns {number} */
  get row() {
    return this.shownRows[this.shownRows.length - 1];
  }

  set row(row) {
    this.picked = row;
    if (this.isConnected) this.choose();
  }

  /** Choose a schedule of the list: by its peak as a budget, if that chooses it. @param {number} row */
  pick(row) {
    const { peak } = this.traceData.rows[row];
    if (this.within(peak) === row) this.setAttribute("budget", String(peak));
    else {
      this.removeAttribute("budget");
      this.row = row;
    }
  }

  /** The attribute budget as an amount; not a number without one. @returns {number} */
  get budgetAmount() {
    return this.hasAttribute("budget") ? budgetAsAmount(this.getAttribute("budget"), this.traceData) : Number.NaN;
  }

  /** Choose the rows by policy, compare and budget; the moment stays the same share of all. */
  choose() {
    const { rows } = this.traceData;
    const named = (name) => rows.findIndex(({ policy }) => policy === name);
    const budget = this.budgetAmount;
    let shown = named(this.getAttribute("policy"));
    if (shown < 0) shown = Math.min(1, rows.length - 1);
    if (!Number.isNaN(budget)) shown = this.within(budget);
    if (this.picked !== null) shown = this.picked;
    const compared = this.getAttribute("compare");
    const upper = Math.max(0, named(compared));
    const chosen = compared === "none" || upper === shown ? [shown] : [upper, shown];
    const first = !this.moments.length;
    const changed = first || String(chosen) !== String(this.shownRows);
    if (changed) {
      this.shownRows = chosen;
      const share = this.place / Math.max(this.moments.length - 1, 1);
      this.moments = inStep(chosen.map((row) => intervalsOf(this.traceData, rows[row])));
      this.stops = stopPlaces(this.moments);
      this.seconds = secondsOf(this.moments);
      this.place = Math.round(share * (this.moments.length - 1));
    }
    this.build();
    this.complain(this.problems(budget));
    if (first) this.place = this.stops[stopNamed(this.getAttribute("stop"))] ?? this.stops["first recomputation"];
    if (changed && !first) {
      const { policy, peak, work } = rows[shown];
      this.emit("ckpt-schedule", { row: shown, policy, peak, work, budget: this.getAttribute("budget") });
    }
    this.show(this.place);
  }

  /** What the attributes ask for that the data have not. @param {number} budget @returns {string[]} */
  problems(budget) {
    const { rows } = this.traceData;
    const policies = rows.map(({ policy }) => policy);
    const least = Math.min(...rows.map(({ peak }) => peak));
    /** @type {[string, (value: string) => boolean, string][]} */
    const legal = [
      ["stop", (value) => STOP_NAMES.includes(stopNamed(value)), `expected one of ${STOP_NAMES.join(", ")}`],
      ["policy", (value) => policies.includes(value), `the data have ${policies.join(", ")}`],
      ["compare", (value) => value === "none" || policies.includes(value), `the data have ${policies.join(", ")}`],
      ["budget", () => !Number.isNaN(budget), "expected values as in 9, a share as in 50 %, or bytes as in 1.5 GiB"],
      [
        "budget",
        () => Number.isNaN(budget) || budget * (1 + 1e-9) >= least,
        `the least here is ${memoryText(this.traceData, least)}`,
      ],
    ];
    return legal.flatMap(([name, isLegal, expected]) => {
      const value = this.getAttribute(name);
      return value === null || isLegal(value) ? [] : [`${name} ${value}: ${expected}`];
    });
  }

  /** Say what is wrong, and fire ckpt-error; nothing where nothing is. @param {string[]} problems */
  complain(problems) {
    const message = problems.join("; ");
    if (message === this.parts.problem.textContent) return;
    this.parts.problem.textContent = message;
    if (message) this.emit("ckpt-error", { message });
  }

  /** The row that costs least within a budget, or the one with the smallest peak. @param {number} budget */
  within(budget) {
    const { rows } = this.traceData;
    const places = rows.map((_, place) => place);
    const fitting = places.filter((place) => rows[place].peak <= budget * (1 + 1e-9));
    const least = (candidates, by) => candidates.reduce((a, b) => (by(rows[b]) < by(rows[a]) ? b : a));
    return fitting.length ? least(fitting, ({ work }) => work) : least(places, ({ peak }) => peak);
  }

  /** Lay out the rows that are chosen, and the list of schedules. */
  build() {
    const { rows, noun } = this.traceData;
    const focused = this.shadowRoot.activeElement?.getAttribute("aria-label");
    this.parts.rows.replaceChildren(
      ...this.shownRows.map((row) => {
        const section = document.createElement("div");
        section.className = "row";
        section.innerHTML = `<div class="words"><p class="heading"></p><p class="subtitle"></p></div>
<div class="tiles"><svg class="marks" role="img"></svg><div class="keeps"></div></div>
<svg class="memory" aria-hidden="true"></svg><p class="caption"></p>`;
        section.querySelector(".heading").textContent = rows[row].heading;
        section.querySelector(".subtitle").textContent = rows[row].subtitle;
        return section;
      }),
    );
    const shown = this.row;
    const upper = rows[this.shownRows[0]];
    const { host, kept } = rows[shown];
    const [, hollow] = this.shadowRoot.querySelectorAll(".legend li");
    hollow.lastChild.textContent = host && kept === null ? "on the host" : "thrown away";
    const { schedules, result, slider } = this.parts;
    schedules.hidden = rows.length < 3;
    schedules.replaceChildren(
      ...rows.map(({ peak, work }, row) => {
        const more = Math.round(100 * (work / rows[0].work - 1));
        const words = `peak ${memoryText(this.traceData, peak)}, ${more ? `${more} % more` : "no more"} work`;
        return new Option(words, String(row), row === shown, row === shown);
      }),
    );
    const names = ["memory", "work", "same"];
    result.replaceChildren();
    if (this.shownRows.length > 1) {
      resultsOf(upper, rows[shown]).forEach((sentence, place) => {
        const span = document.createElement("span");
        span.className = names[place];
        span.textContent = sentence;
        result.append(span, " ");
      });
    }
    slider.max = String(this.moments.length - 1);
    const keeps = this.parts.rows.lastElementChild.querySelector(".keeps");
    if (!this.hasAttribute("keep")) return;
    for (let tile = 0; tile < this.traceData.tiles; tile++) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", `keep ${noun} ${tile + 1}`);
      button.setAttribute("aria-pressed", String(kept === null || kept.includes(tile)));
      button.addEventListener("click", () => this.toggle(tile));
      keeps.append(button);
      if (button.getAttribute("aria-label") === focused) button.focus();
    }
  }

  /** Keep a tile, or no longer: whoever listens to ckpt-keep plans anew. @param {number} tile */
  toggle(tile) {
    const { rows, tiles } = this.traceData;
    const { kept } = rows[this.row];
    const before = kept ?? Array.from({ length: tiles }, (_, each) => each);
    const after = before.includes(tile) ? before.filter((each) => each !== tile) : [...before, tile];
    this.emit("ckpt-keep", { kept: after.sort((a, b) => a - b).map((each) => each + 1) });
  }

  /** Show a moment. @param {number} place */
  show(place) {
    if (!this.traceData) return;
    this.place = Math.max(0, Math.min(place, this.moments.length - 1));
    this.draw();
    const { slider } = this.parts;
    slider.value = String(this.place);
    slider.setAttribute("aria-valuetext", this.caption);
    const stop = STOP_NAMES.find((name) => this.stops[name] === this.place) ?? null;
    const { policy } = this.traceData.rows[this.row];
    const { phase } = this.moments[this.place];
    const detail = { last: this.moments.length - 1, step: this.step, stop, phase, policy, caption: this.caption };
    this.emit("ckpt-step", { place: this.place, ...detail });
  }

  /** What the last row does. @returns {string} */
  get caption() {
    const { phase, rows } = this.moments[this.place];
    const row = this.traceData.rows[this.row];
    return this.place ? sentenceOf(this.traceData, row, rows[rows.length - 1], phase) : "before the first step";
  }

  /** The step of the trace that is shown, where the data say it. @returns {number | null} */
  get step() {
    const rows = this.moments[this.place]?.rows;
    return rows ? rows[rows.length - 1].step : null;
  }

  set step(step) {
    if (step === this.step) return;
    this.pause();
    const found = this.moments.findIndex(({ rows }) => rows[rows.length - 1].step >= step);
    this.show(found < 0 ? this.moments.length - 1 : found);
  }

  draw() {
    if (!this.moments.length || !this.isConnected) return;
    const { rows } = this.traceData;
    const moment = this.moments[this.place];
    const unit = parseFloat(getComputedStyle(this).fontSize) / 16;
    const all = this.parts.rows.clientWidth / unit;
    if (!all) return;
    const lying = all < NARROW ? all : 0;
    const tank = tankWide(this.traceData);
    const wide = lying || all - tank - 25.6;
    const highest = Math.max(...rows.map(({ peak }) => peak));
    const mostWork = Math.max(...this.shownRows.map((row) => rows[row].work));
    [...this.parts.rows.children].forEach((section, place) => {
      const row = rows[this.shownRows[place]];
      const state = moment.rows[place];
      const words = this.place ? sentenceOf(this.traceData, row, state, moment.phase) : "";
      const tiles = section.querySelector(".marks");
      sized(tiles, wide, TILES_HIGH, unit);
      tiles.innerHTML = tilesMarks(this.traceData, row, state, mostWork, wide);
      tiles.setAttribute("aria-label", `${row.heading}. ${words}`);
      const memory = section.querySelector(".memory");
      if (lying) sized(memory, wide, BAR_HIGH, unit);
      else sized(memory, tank, TANK_HIGH, unit);
      memory.innerHTML = memoryMarks(this.traceData, state, highest, lying);
      const caption = section.querySelector(".caption");
      caption.textContent = words;
      caption.className = `caption${state.waits ? " waits" : state.run ? " again" : ""}`;
      const boxes = tileBoxes(this.traceData.tiles, wide - 1);
      section.querySelectorAll(".keeps button").forEach((button, tile) => {
        const [x, tileWide] = boxes[tile];
        if (button instanceof HTMLElement) {
          Object.assign(button.style, { left: `${x * unit}px`, width: `${(tileWide + 1.5) * unit}px` });
        }
      });
    });
  }

  /** Go to a stop: start, peak, first recomputation or end. @param {string | null} name */
  goTo(name) {
    const stop = stopNamed(name);
    if (!this.traceData || !this.moments.length) return;
    this.complain(this.problems(this.budgetAmount));
    if (!STOP_NAMES.includes(stop)) return;
    this.pause();
    this.show(this.stops[stop]);
  }

  play() {
    if (!this.traceData || this.timer) return;
    if (this.place === this.moments.length - 1) this.show(0);
    this.setPlaying(true);
    this.emit("ckpt-play", {});
    const next = () => {
      if (this.place === this.moments.length - 1) this.pause();
      else {
        this.show(this.place + 1);
        this.timer = window.setTimeout(next, 1000 * this.seconds[this.place]);
      }
    };
    this.timer = window.setTimeout(next, 1000 * this.seconds[this.place]);
  }

  pause() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.timer = 0;
    this.setPlaying(false);
    this.emit("ckpt-pause", {});
  }

  /** @param {boolean} playing */
  setPlaying(playing) {
    this.parts.play.innerHTML = playing ? PAUSE_ICON : PLAY_ICON;
    this.parts.play.setAttribute("aria-label", playing ? "pause" : "play");
  }

  /** Take the theme of the text around: light text stands on a dark ground. */
  takeTheme() {
    if (!this.isConnected) return;
    const asked = this.getAttribute("theme");
    const dark = asked === "dark" || (asked !== "light" && isLight(getComputedStyle(this).color));
    this.parts.widget.classList.toggle("dark", dark);
  }

  /** @param {string} name @param {object} detail */
  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

/** Give a picture its size. @param {Element} picture */
function sized(picture, wide, high, unit) {
  picture.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  picture.setAttribute("width", String(wide * unit));
  picture.setAttribute("height", String(high * unit));
}

if (!customElements.get(ELEMENT)) {
  customElements.define(ELEMENT, TinyCkpt);
  document.addEventListener("click", followLink);
  document.addEventListener("keydown", followKey);
}
