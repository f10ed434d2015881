/** Panel of one policy: heading, counters, graph and timeline, at one step. */

import { freedSince } from "./action.js";
import { captionOf, captionsOf, fitting } from "./caption.js";
import { factsOf } from "./details.js";
import { filledBy } from "./filling.js";
import { DASH, countText, counted, liveText, sizeText, setText } from "./format.js";
import { GraphView } from "./graph.js";
import { HostPart } from "./host.js";
import { Ledger } from "./ledger.js";
import { MeasuredLine } from "./measured.js";
import { isAgain, stepOfTick, stepWords, ticksOf } from "./model.js";
import { Rail } from "./rail.js";
import { textWidth } from "./ruler.js";
import { isInSight, watchSight } from "./sight.js";
import { Sparkline } from "./sparkline.js";
import { Strip } from "./strip.js";
import { Timeline } from "./timeline.js";

/**
 * @import { Model } from "./data.js"
 * @import { Axis } from "./axis.js"
 * @import { Pair } from "./differing.js"
 */

const LONGEST_SIZE = "1000.0 MiB";
const COUNTER = 16; // pixels of its letters; the same in the style sheet

export class Panel {
  /**
   * @param {Model} model
   * @param {any} scales shared by all timelines
   * @param {Record<string, Function>} events
   * @param {number} [index] of the view that is open
   * @param {Pair | null} [pair] of which this is the difference
   */
  constructor(model, scales, events, index = 0, pair = null) {
    this.model = model;
    this.pair = pair;
    this.scales = scales;
    this.events = events;
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("panel"));
    this.element = /** @type {HTMLElement} */ (template.content.firstElementChild.cloneNode(true));
    this.part(".solo").textContent = String(model.id + 1);
    this.part(".solo").addEventListener("click", () => events.solo(model.id));
    this.part(".title").addEventListener("click", () => events.turn(this));
    this.counters = Object.fromEntries(
      Array.from(this.parts("[data-counter]"), (element) => [element.dataset.counter, element]),
    );
    this.heading();
    this.caption = this.part(".caption");
    this.timeline = new Timeline(this.part(".timeline"), model, scales);
    this.ledger = this.makeLedger(scales);
    this.rail = this.makeRail();
    this.strip = this.makeStrip(scales);
    this.listen();
    this.selected = this.value = -1;
    this.step = -1;
    this.since = 0; // the first step of which it shows what is freed
    this.beyond = /** @type {any} */ (null); // what is active elsewhere
    this.isSeen = true; // whether anything of the ledger is in sight
    if (scales.host !== null && !pair) this.host = new HostPart(this, scales);
    if (scales.several && !pair) this.spark = new Sparkline(this, scales);
    if (model.measured && !pair) this.measured = new MeasuredLine(this, scales);
    this.open(index);
  }

  /** Take on another schedule of the same graph, on a page of one; the view stays open.
   * @param {Model} model
   */
  take(model) {
    this.model = model;
    this.step = -1;
    this.since = 0;
    this.host?.take();
    this.ledger.take();
    this.strip.take();
    this.measured?.tell();
    this.forgetGraph();
  }

  /** The policy's name and cost. */
  heading() {
    this.headed = this.model;
    const { title, subtitle } = this.model;
    this.element.setAttribute("aria-label", title);
    setText(this.part(".title"), title);
    setText(this.part(".subtitle"), subtitle);
    this.reserve();
  }

  /** Show all of it, or a row. @param {boolean} isCompact @param {boolean} isAlone */
  arrange(isCompact, isAlone) {
    if (!this.spark) return;
    this.element.classList.toggle("compact", isCompact);
    const solo = this.part(".solo");
    solo.setAttribute("aria-pressed", String(isAlone));
    const { title } = this.model;
    solo.setAttribute(
      "aria-label",
      isCompact ? `Open ${title}: ${this.spark.costs}` : isAlone ? `${title} is open; show all` : `Show ${title} alone`,
    );
  }

  makeLedger(scales) {
    return new Ledger(this, scales);
  }

  makeRail() {
    return new Rail(this.ledger, (cell) => this.chosen(cell));
  }

  makeStrip(scales) {
    return new Strip(this, scales);
  }

  /** The traces that it shows, and the step of each at the present. */
  get models() {
    return [this.model];
  }

  get steps() {
    return [this.step];
  }

  get title() {
    return this.model.title;
  }

  get subtitle() {
    return this.model.subtitle;
  }

  get isGraph() {
    return this.scales.front === "graph";
  }

  /** The graph of the view that is open, built when it is first wanted. */
  get graph() {
    if (!this.drawn) {
      this.drawn = new GraphView(this.model, this.index, (cell) => this.chosen(cell));
      this.part(".holder").replaceChildren(this.drawn.element);
      this.drawn.show(this.step, this.since);
      this.drawn.select(this.selected);
    }
    return this.drawn;
  }

  /** The graph is another, or its schedule: draw it anew, with the keyboard where it was. */
  forgetGraph() {
    const holder = this.part(".holder");
    const focused = holder.contains(document.activeElement) ? this.drawn.focused : -1;
    this.drawn = null;
    holder.replaceChildren();
    if (focused >= 0) this.graph.focus(focused, true);
  }

  /** @param {string} selector @returns {NodeListOf<HTMLElement>} */
  parts(selector) {
    return this.element.querySelectorAll(selector);
  }

  /** @param {string} selector @returns {any} */
  part(selector) {
    return this.element.querySelector(selector);
  }

  /** Give counters the room of their longest text: below them nothing moves from step to step. */
  reserve() {
    const { model, counters } = this;
    const of = (count) => `${countText(count)} / ${countText(count)}`;
    const live = model.inNodes ? countText(model.live[model.peakStep]) : LONGEST_SIZE;
    const longest = { step: of(model.count - 1), evaluations: of(model.computes.length), live, peak: live };
    for (const [name, text] of Object.entries(longest))
      counters[name].style.setProperty("--longest", `${Math.ceil(textWidth(text, COUNTER))}px`);
  }

  listen() {
    // Whatever gives the ledger another height: its rows stand beside its bars.
    const observer = new ResizeObserver(
      () => this.isGraph || (this.ledger.layers.fits && this.strip.layers.fits) || this.resized(),
    );
    for (const { element } of [this.ledger, this.strip]) observer.observe(element);
    watchSight(this.ledger.element, (isSeen) => {
      this.isSeen = isSeen;
      if (isSeen) this.wake();
    });
    const { canvas } = this.timeline;
    const seek = (event) => this.events.seek(this.timeline.tickAt(event.clientX));
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      seek(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) seek(event);
      this.events.hover(event, this, { tick: this.timeline.tickAt(event.clientX) });
    });
    const holder = this.part(".holder");
    holder.addEventListener("pointermove", (event) => {
      const cell = event.pointerType === "touch" ? -1 : this.graph.cellAt(event.clientX, event.clientY);
      holder.style.cursor = cell < 0 ? "" : "pointer";
      this.events.hover(event, this, cell < 0 ? null : { cell });
    });
    for (const element of [canvas, holder]) {
      element.addEventListener("pointerleave", (event) => this.events.hover(event, this, null));
    }
  }

  /** Open one of the graph's views. @param {number} index */
  open(index) {
    const back = this.index;
    this.index = index;
    this.view = this.model.graph.views[index];
    this.drawn = null;
    this.part(".holder").replaceChildren();
    this.selected = this.value = -1;
    this.ledger.open(index);
    this.rail.open();
    this.path();
    this.resized();
    if (back === undefined) return;
    // Whoever went back stands where they went in.
    const from = Object.entries(this.view.opens).find(([, view]) => view === back);
    const cell = from ? Number(from[0]) : 0;
    if (this.isGraph) this.graph.focus(cell, true);
    else this.rail.focus(this.ledger.rows.row[cell]);
  }

  /** Show the way from the whole graph to the present view. */
  path() {
    const nav = this.part(".path");
    const { views } = this.model.graph;
    const way = [];
    for (let i = this.index; i !== null; i = views[i].parent) way.unshift(i);
    nav.hidden = way.length < 2;
    nav.replaceChildren(
      ...way.map((index) => {
        const crumb = document.createElement("button");
        crumb.type = "button";
        crumb.textContent = views[index].title;
        if (index === this.index) crumb.setAttribute("aria-current", "page");
        else crumb.addEventListener("click", () => this.left(index));
        return crumb;
      }),
    );
  }

  /** Leave the present view for one that it is in. @param {number} index */
  left(index) {
    this.open(index);
    this.events.choose(this, -1);
  }

  /** Go back to the view that this one was opened from. @returns {boolean} whether there is one */
  up() {
    const { parent } = this.view;
    if (parent === null) return false;
    this.open(parent);
    return true;
  }

  chosen(cell) {
    if (cell >= 0 && this.events.flip(this, cell)) return;
    const opened = this.view.opens[cell];
    if (opened !== undefined) {
      this.open(opened);
      this.events.hover(null, this, null);
    }
    this.events.choose(this, opened === undefined ? cell : -1);
  }

  /** Mark a cell, or a value and the cell that it is in; -1 for none. */
  select(cell, value = -1) {
    this.selected = cell < 0 && value >= 0 ? this.ledger.homeOf[value] : cell;
    this.value = value;
    this.drawn?.select(this.selected);
    this.ledger.select(this.selected, value);
    this.rail.select(this.selected);
    this.strip.select(value);
  }

  /** @param {number} tick @param {Axis} align */
  show(tick, align) {
    const { model } = this;
    const step = stepOfTick(model, tick, align);
    this.step = step;
    this.since = freedSince(model, tick, align);
    if (this.isGraph) this.graph.show(step, this.since, this.scales.lively);
    else {
      this.ledger.lights.show(this.since);
      this.showLedger();
      this.strip.show(step);
    }
    this.timeline.show(Math.min(tick, ticksOf(model, align) - 1));
    this.host?.show(step);
  }

  /** Write the counters. */
  count() {
    const { model, step } = this;
    const before = step < 0;
    this.write("step", `${before ? DASH : countText(step)} / ${countText(model.count - 1)}`);
    const evaluations = before ? 0 : model.evaluations[step];
    this.write("evaluations", `${countText(evaluations)} / ${countText(model.computes.length)}`);
    this.write("live", liveText(before ? 0 : model.live[step], model.inNodes));
    this.write("peak", liveText(before ? 0 : model.peaks[step], model.inNodes));
  }

  /** Show the step in the ledger: out of sight not while something moves. */
  showLedger() {
    const { ledger, step, waits } = this;
    if (!waits) this.wake();
    else ledger.layers.forget();
    ledger.plot.classList.toggle("waits", waits); // its canvases cost time in every frame
    ledger.show(step);
  }

  get waits() {
    return this.scales.moving && !this.isSeen;
  }

  /** Draw the ledger that waited: it comes into sight, or nothing moves any more. */
  wake() {
    const { ledger, rail } = this;
    ledger.plot.classList.remove("waits");
    if (this.isGraph || !this.strip.layers.past || !ledger.layers.recall()) return;
    ledger.redraw();
    rail.redraw();
    rail.reveal(ledger.activeRow);
  }

  /** Write what is there and what happens. While something moves, this is seldom: words cost a layout. */
  say() {
    if (this.headed !== this.model) this.heading();
    this.count();
    if (!this.isGraph) this.sayLedger();
    this.describe();
  }

  /** Write what is in ledger and strip, where they are seen. */
  sayLedger() {
    this.strip.count();
    if (!this.ledger.layers.past) return;
    if (this.scales.moving) this.ledger.lights.place();
    this.rail.show(this.step);
  }

  /** Write what happens: in fewer letters where there is less room, and then whole as a tip. */
  describe() {
    const texts = this.events.captions(captionsOf(this.model, this.step));
    const shown = fitting(texts, this.captionSize, this.captionRoom);
    setText(this.caption, shown);
    const title = shown === texts[0] ? "" : texts[0];
    if (this.caption.title !== title) this.caption.title = title;
  }

  write(counter, text) {
    setText(this.counters[counter], text);
  }

  /** No longer be seen, until it is given its size again: what it shows has no place on the axis. */
  hide() {
    for (const { layers } of [this.ledger, this.strip]) layers.forget();
  }

  /** Be seen again, in the size that it had. */
  unhide() {
    if (this.isGraph) return this.resized();
    this.strip.layers.recall();
    this.strip.rescale();
    this.redraw();
    this.showLedger();
  }

  resized() {
    if (this.spark?.isShown) {
      this.element.style.setProperty("--rail", `${this.rail.widthFor(this.element.clientWidth)}px`);
      this.spark.redraw();
      return;
    }
    const style = getComputedStyle(this.element);
    this.colours = Object.fromEntries(
      ["ink", "halo", "checkpoint", "background"].map((name) => [name, style.getPropertyValue(`--${name}`)]),
    );
    this.captionSize = Number.parseFloat(getComputedStyle(this.caption).fontSize) || 14;
    // One pixel less, as canvas and page round widths in ways of their own. Where it is hidden all fits.
    this.captionRoom = this.caption.clientWidth ? this.caption.clientWidth - 1 : Number.POSITIVE_INFINITY;
    if (this.element.isConnected) this.say();
    if (this.isGraph) this.graph.resized();
    else {
      this.element.style.setProperty("--rail", `${this.rail.widthFor(this.ledger.element.offsetWidth)}px`);
      this.isSeen = isInSight(this.ledger.element);
      this.ledger.resized();
      if (this.waits) this.ledger.layers.forget();
      this.strip.resized();
    }
    this.redraw();
    if (!this.isGraph) this.rail.redraw();
  }

  /** Redraw everything on the time axis. @param {boolean} [isMoving] */
  redraw(isMoving = false) {
    if (!this.isGraph) {
      this.ledger.redraw(isMoving);
      this.strip.redraw(isMoving);
    }
    if (this.isGraph) {
      if (this.timeline.model !== this.model) this.timeline.take(this.model);
      this.timeline.redraw();
    } else for (const lane of this.timeline.lanes) lane.redraw();
    this.measured?.redraw();
  }

  /** What the card of the moment lists. */
  fills() {
    return filledBy(this.model, this.step);
  }

  /** The facts about a cell, or a value. @returns {[string, string | number[]][]} */
  facts(cell, value) {
    return factsOf(this, cell, value);
  }

  /** The present state in a sentence. */
  words() {
    const { model, step } = this;
    if (step < 0) return `${model.title}: before the first step.`;
    const live = model.inNodes ? counted(model.live[step], "value") : sizeText(model.live[step]);
    const again = isAgain(model, step) ? " again" : "";
    const does = captionOf(model, step);
    return `${model.title}, step ${step} of ${model.count - 1}: ${stepWords(model, step)}${again}. ${does}; ${live} live.`;
  }
}
