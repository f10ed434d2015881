/** The player: one current position in time for all policies, and the views that follow it. */

import { goToPlace, goToSelection, placeText } from "./address.js";
import { Extent, axesOf } from "./axis.js";
import { STAYING_BAND, WORKSPACE_BAND, blocksOf, leastBlock } from "./blocks.js";
import { stopsOf } from "./caption.js";
import { Controls, byId, firstSpeed } from "./controls.js";
import { Details, liveLines, tipLines } from "./details.js";
import { Differences } from "./difference.js";
import { SIDES } from "./difference_panel.js";
import { Filling } from "./filling.js";
import { explainHost } from "./host.js";
import { Reading } from "./lists.js";
import { Measurements } from "./measured.js";
import { measure, modelOf, stepOfTick, tickOfStep, ticksOf } from "./model.js";
import { Navigation } from "./navigation.js";
import { Panel } from "./panel.js";
import { Playback } from "./playback.js";
import { areComparable } from "./progress.js";
import { coarse, offerRows } from "./rows.js";
import { SCALES, breakOf } from "./scale.js";
import { LedgerTable } from "./table.js";
import { Throttle } from "./throttle.js";
import { Tip } from "./tip.js";

/**
 * @import { Model } from "./data.js"
 * @import { Axis, Scales } from "./axis.js"
 * @import { DifferencePanel } from "./difference_panel.js"
 */

const VIEWS = ["ledger", "graph"];
const LIVELY = 6; // ticks a second up to which things pulse and pop: faster, nobody would see it
const SLIVER = 3; // times as many steps in another policy, from which one's own are a sliver of the axis
const OBVIOUS = 4; // times what is usual, from which a peak's axis is broken unasked

export class Player extends Playback {
  /** @param {any} data as unpacked */
  constructor(data) {
    super();
    this.data = data;
    for (const trace of data.traces) trace.measured = data.measured?.[trace.measured];
    this.models = /** @type {any} */ (this.firstModels());
    const { show, stop } = data.opening ?? { show: 0, stop: "peak" };
    this.stop = stop; // where it is at first
    this.opening = typeof show === "number" && this.models.length > 1 ? show : -1; // which one alone is open; -1 for all
    // Policies meet in progress where steps would leave too little of the open one.
    const isShort = this.models.some(({ count }) => count > SLIVER * this.models[this.opening]?.count);
    this.align = /** @type {Axis} */ (isShort && areComparable(this.models) ? "progress" : "step");
    this.differs = show === "difference"; // whether the first two are shown as their difference
    this.solo = this.opening;
    this.motion = matchMedia("(prefers-reduced-motion: reduce)");
    this.saying = new Throttle(() => this.writeWords());
    this.listing = new Throttle(() => this.list());
    this.isReady = false; // whether all that is seen first has been drawn
    this.isAnother = false; // whether a schedule is shown that nothing beside it is about
    /** @type {Scales} */
    this.scales = {
      align: this.align,
      lively: false,
      moving: false,
      ticks: 0,
      tick: -1,
      highest: data.highest,
      host: data.host,
      several: this.models.length > 1,
      front: document.documentElement.dataset.front,
      extent: new Extent(),
      drawn: (ledger) => {},
      ghostOf: (model) => null,
      isMarked: (name, amount) => true,
      stacked: () => {},
      kind: "linear",
      broken: breakOf(this.models, data.highest),
      least: Math.min(...this.models.map(leastBlock)),
      buffer: 0,
      single: coarse.matches,
      large: 1,
    };
    if (this.scales.broken && this.scales.broken * OBVIOUS < data.highest) this.scales.kind = "broken";
    if (data.measured) this.measurements = new Measurements(this);
    this.measure();
    this.speed = firstSpeed(this.ticks, this.motion.matches);
    this.events = {
      choose: (panel, cell, value) => this.choose(panel, cell, value),
      hover: (event, panel, at) => this.hover(event, panel, at),
      say: (event, lines) => this.tip.show(event, lines),
      seek: (tick) => this.seek(tick),
      seekStep: (model, step) => this.seekStep(model, step),
      solo: (id) => this.setSolo(id),
      turn: (panel) => this.turn(panel),
      neighbour: (panel, by) => this.openNeighbour(panel, by),
      seekPlace: (place) => this.seek(this.navigation.tickAt(place)),
      flip: (panel, cell) => this.flip(panel, cell),
      captions: (texts) => this.captions(texts),
    };
    // Observers are told in the order in which they began: the panels' own find that all is drawn.
    new ResizeObserver(() => this.resized()).observe(byId("panels"));
    this.panels = this.models.map((model) => new Panel(model, this.scales, this.events));
    this.reading = new Reading((step) => this.seekStep(this.reading.model, step));
    this.details = new Details(
      (step) => this.seekStep(this.chosen.model, step),
      () => this.choose(this.chosen, -1),
    );
    this.tip = new Tip();
    this.filling = new Filling(
      (panel, value) => this.choose(panel, -1, value),
      () => this.seekStep(this.chosen.model, this.chosen.model.peakStep),
    );
    this.table = new LedgerTable();
    this.chosen = this.panels[Math.max(this.opening, 0)];
    this.navigation = new Navigation(this);
    this.controls = new Controls(this);
    if (this.scales.several) this.differences = new Differences(this);
    this.first = this.scales.front;
    byId("reading").open = this.first === "graph";
    if (data.host !== null) explainHost();
    this.place();
  }

  /** The schedules that are shown first. @returns {Model[]} */
  firstModels() {
    const { traces, graphs, in_nodes: inNodes } = this.data;
    return traces.map((trace, id) => modelOf(trace, graphs[trace.graph], id, inNodes));
  }

  /** Put everything onto the page. */
  place() {
    this.usualKind = this.scales.kind; // of an address that names none
    const holder = byId("panels");
    holder.replaceChildren(...this.panels.map((panel) => panel.element));
    holder.classList.toggle("several", this.panels.length > 1);
    const actions = { policy: (id) => this.read(this.models[id]), whose: (id) => this.turn(this.panels[id]) };
    for (const [id, action] of Object.entries(actions)) {
      const select = byId(id);
      select.append(...this.models.map((model) => new Option(model.title, String(model.id))));
      select.addEventListener("change", () => action(Number(select.value)));
      select.hidden = this.panels.length < 2;
    }
    byId("reading-title").classList.toggle("unseen", this.panels.length > 1);
    this.arrange();
    this.read(this.chosen.model);
    byId("whose").value = String(this.chosen.model.id);
    this.controls.rescale();
    this.scales.extent.watch(() => this.redraw(true));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour(), {
      signal: this.life.signal,
    });
    this.explain();
    if (!this.controls.follow()) this.toStop();
  }

  /** Go to the page's own stop, of the policy that it is about; of two, to the peak that sets them further apart, or
   * where both peaks are the same memory, to where they differ most. */
  toStop() {
    const { models } = this.visible[0];
    const apart = ({ tick }) => {
      const [one, other = 0] = models.map((model) => model.live[stepOfTick(model, tick, this.align)] ?? 0);
      return Math.abs(one - other);
    };
    const found = models.map((model) => {
      const own = stopsOf([model], [model.title], (_, step) => this.tickOf(model, step));
      return own.find(({ name }) => name.split(", ").includes(this.stop)) ?? own[0];
    });
    if (this.stop === "peak") {
      found.sort((a, b) => apart(a) - apart(b)); // the own one last, where they are equal
      if (models.length > 1 && !apart(found.at(-1)))
        for (const model of models)
          for (let step = 0; step < model.count; step++) {
            const here = { ...found[0], tick: this.tickOf(model, step) };
            if (apart(here) > apart(found.at(-1))) found.push(here);
          }
    }
    this.show(found.at(-1).tick);
  }

  /** Show another schedule of the same graph in the first one's place.
   * @param {Model} model @param {(model: any) => number} tickAt the position to show
   */
  replace(model, tickAt) {
    const [panel] = this.panels;
    const { extent } = this.scales;
    const inSight = [extent.from, extent.to].map((place) => place / extent.whole);
    this.scales.moving = this.isMoving;
    panel.hide(); // until all is known, so that it is drawn once
    byId("panels").classList.remove("stepped");
    this.models[0] = model;
    panel.take(model);
    this.measure();
    extent.go(inSight[0] * extent.whole, inSight[1] * extent.whole);
    this.go(tickAt(model));
    panel.show(this.tick, this.align);
    panel.select(panel.selected, panel.value); // of a value, the time in memory that is now
    panel.unhide();
    this.isAnother = true;
    this.beside();
  }

  /** Fit to another schedule what stands beside the policies: legend, minimap, scrubber. */
  refit() {
    this.isAnother = false;
    this.explain();
    this.navigation.fit();
    this.navigation.show();
    this.controls.rescale();
    this.controls.show();
  }

  /** Remove entries of the ledger's legend that do not occur on this page. */
  explain() {
    const there = (test) => this.models.some(test);
    const known = {
      recomputed: there((model) => model.again.includes(1)),
      trained: there((model) => model.graph.operators.names.length > model.graph.forward_count),
      staying: there((model) => blocksOf(model).bands.includes(STAYING_BAND)),
      workspace: there((model) => model.bands[WORKSPACE_BAND].live.some((amount) => amount > 0)),
      hosted: there((model) => Boolean(model.host)),
      checkpoint: there((model) => model.checkpoints.length > 0),
      measured: there((model) => Boolean(model.measured)),
    };
    /** @type {NodeListOf<HTMLElement>} */
    const items = document.querySelectorAll("[data-if]");
    for (const item of items) if (item.hidden === Boolean(known[item.dataset.if])) item.hidden = !item.hidden;
  }

  get ticks() {
    return this.scales.ticks;
  }

  measure() {
    this.scales.align = this.align;
    this.scales.ticks = measure(this.compared, this.align);
    this.scales.extent.fit(this.compared, this.align);
  }

  /** Show a position in everything. @param {number} tick */
  show(tick) {
    const isNear = this.playing ? this.speed <= LIVELY : Math.abs(tick - this.tick) === 1;
    this.scales.lively = isNear && !this.motion.matches;
    this.scales.moving = this.isMoving;
    this.go(tick);
    for (const panel of this.visible) panel.show(this.tick, this.align);
    for (const { spark } of this.rows) spark.show(this.tick, this.align);
    this.beside();
    this.controls.show();
  }

  /** Take on a position, or the nearest that there is. @param {number} tick */
  go(tick) {
    this.tick = this.scales.tick = Math.min(Math.max(tick, -1), this.ticks - 1);
  }

  /** Whether something is played or dragged, and is another in the next frame; or nothing has been drawn yet. */
  get isMoving() {
    return this.playing || !this.isReady;
  }

  /** What stands beside the policies: words and lists seldom, while something moves. */
  beside() {
    if (!this.isAnother) this.navigation.show();
    for (const due of [this.saying, this.listing]) due.ask(this.isMoving && this.isReady);
  }

  /** Words, of all policies that are shown. */
  writeWords() {
    for (const panel of this.visible) panel.say();
  }

  /** Lists, about the policy that was chosen last. */
  list() {
    const { chosen, reading } = this;
    if (this.isAnother) this.refit();
    if (chosen.selected >= 0 || chosen.value >= 0) this.details.show(chosen, chosen.selected, chosen.value);
    this.read(this.models[reading.model?.id ?? 0]);
    if (this.scales.front !== "graph") {
      this.filling.show(chosen, chosen.step);
      this.table.show(chosen);
    }
  }

  /** Show the ledger first, or the graph. @param {string} front */
  setFront(front) {
    if (front === "graph") this.differences?.close();
    this.scales.front = front;
    document.documentElement.dataset.front = front;
    byId("reading").open = front === "graph";
    for (const panel of this.visible) panel.show(this.tick, this.align);
    this.resized();
    this.show(this.tick);
    this.controls.rescale();
    this.settle();
  }

  /** Show memory along another vertical axis. @param {string} kind */
  setScale(kind) {
    this.scales.kind = kind;
    this.scales.buffer = 0;
    for (const panel of this.panels) {
      panel.strip.take();
      panel.measured?.tell();
    }
    this.controls.rescale();
    for (const panel of this.visible) {
      panel.strip.resized();
      panel.strip.redraw();
      panel.measured?.redraw();
    }
    for (const { spark } of this.rows) spark.redraw();
    this.navigation.minimap.draw();
    this.beside();
    this.settle();
  }

  /** The vertical axes that say something here. */
  get kinds() {
    return SCALES.filter((kind) => kind !== "broken" || this.scales.broken > 0);
  }

  /** The stops of all policies that are shown. */
  get stops() {
    const models = this.visible.flatMap((panel) => panel.models ?? [panel.model]);
    const { align } = this;
    if (
      this.known?.align !== align ||
      this.known.models.length !== models.length ||
      models.some((model, i) => this.known.models[i] !== model)
    ) {
      const titles = this.difference ? SIDES : models.map(({ id }) => String(id + 1));
      const stops = stopsOf(models, titles, (model, step) => this.tickOf(model, step));
      this.known = { models, align, stops };
    }
    return this.known.stops;
  }

  /** The tick at which a step of a policy is shown; -1 before the first one. @param {Model} model @param {number} step */
  tickOf(model, step) {
    return tickOfStep(model, step, this.align);
  }

  /** @param {number} tick */
  seek(tick) {
    // Colours fade from one step to the next alone: many nodes at once would take long to draw.
    byId("panels").classList.toggle("stepped", Math.abs(tick - this.tick) === 1);
    super.seek(tick);
  }

  seekStep(model, step) {
    this.seek(tickOfStep(model, step, this.align));
  }

  pause() {
    super.pause();
    this.rest();
  }

  /** Nothing moves any more: what waited is due. */
  rest() {
    this.scales.moving = this.isMoving;
    if (!this.isMoving) for (const panel of this.visible) panel.wake();
    this.beside();
  }

  ready() {
    this.isReady = true;
    this.rest();
  }

  play() {
    byId("panels").classList.remove("stepped");
    const { loop } = this.navigation;
    if (loop && (this.tick < loop.from - 1 || this.tick >= loop.to)) this.show(loop.from);
    super.play();
  }

  get ended() {
    return !this.navigation.loop && super.ended;
  }

  wrapped(tick) {
    return this.navigation.wrapped(tick);
  }

  words() {
    return this.visible.map((panel) => panel.words()).join(" ");
  }

  where() {
    return this.tick < 0 ? "before the first step" : `${this.align} ${this.tick}`;
  }

  address() {
    return `#${this.align}=${this.tick}${this.scales.front === this.first ? "" : `&view=${this.scales.front}`}${placeText(this)}`;
  }

  /** Go where an address says. @param {URLSearchParams} parameters @returns {boolean} whether it says anything */
  follow(parameters) {
    this.differences?.follow(parameters);
    const front = VIEWS.find((view) => view === parameters.get("view")) ?? this.first;
    if (front !== this.scales.front) this.setFront(front);
    const known = this.axes.find((align) => !Number.isNaN(Number.parseInt(parameters.get(align) ?? "", 10)));
    if (known) this.setAlign(known);
    goToPlace(this, parameters);
    if (known) {
      this.pause();
      this.seek(Number.parseInt(parameters.get(known), 10));
    }
    // Of a value, the time in memory that is marked is that of the moment.
    goToSelection(this, parameters.get("select") ?? "");
    return known !== undefined;
  }

  /** Go to the peak of the first policy that is open, or compared; from a peak, to that of the next. */
  toPeak() {
    // Each once: from a peak that two policies share, the way leads on to a third.
    const models = [...this.visible, ...this.rows].flatMap((panel) => panel.models);
    const ticks = models.map((model) => tickOfStep(model, model.peakStep, this.align));
    const peaks = [...new Set(ticks)];
    this.seek(peaks[(peaks.indexOf(this.tick) + 1) % peaks.length]);
  }

  /** @param {Axis} align */
  setAlign(align) {
    if (align === this.align) return;
    // At the place of the first policy that has not ended: that of an ended one would lead back.
    const running = [...this.visible, ...this.rows].find(({ model }) => this.tick < ticksOf(model, this.align));
    const { model } = running ?? this.visible[0];
    const step = stepOfTick(model, this.tick, this.align);
    const range = this.navigation.loopSteps;
    this.align = align;
    this.measure();
    this.navigation.loopSteps = range;
    this.navigation.slid();
    this.controls.rescale();
    this.tick = this.scales.tick = tickOfStep(model, step, align);
    this.redraw();
    this.show(this.tick);
    this.settle();
  }

  /** Show a policy's schedule and program. @param {Model} model */
  read(model) {
    byId("policy").value = String(model.id);
    this.reading.show(model, this.stepOf(model));
  }

  /** Select a cell of a panel, or a value; -1 for none. */
  choose(panel, cell, value = -1) {
    for (const other of new Set([...this.panels, ...this.visible]))
      other.select(...(other === panel ? [cell, value] : [-1, -1]));
    this.chosen = panel;
    for (const other of this.panels) other.element.classList.toggle("chosen", other === panel);
    byId("whose").value = String(panel.model.id);
    this.details.show(panel, panel.selected, value);
    this.beside();
    if (panel.selected >= 0) this.read(panel.model);
    this.settle();
  }

  /** Keep or drop what a cell holds, where that can be chosen. @returns {boolean} whether it was */
  flip(panel, cell) {
    return false;
  }

  /** What a policy's panel says of a step, given what happens. @param {string[]} texts each shorter than the last */
  captions(texts) {
    return texts;
  }

  /** Leave the innermost state: the selection, a view, the isolated policy. */
  up() {
    if (this.chosen.selected >= 0 || this.chosen.value >= 0) this.choose(this.chosen, -1);
    else if (this.visible.some((panel) => panel.up())) this.choose(this.chosen, -1);
    else if (this.difference) this.differences.close();
    else if (this.solo !== this.opening) this.setSolo(this.opening);
  }

  hover(event, panel, at) {
    if (at === null || event.pointerType === "touch") this.tip.hide();
    else if ("cell" in at) this.tip.show(event, tipLines(panel, at.cell));
    else this.tip.show(event, liveLines(panel.model, stepOfTick(panel.model, at.tick, this.align)));
  }

  resized() {
    for (const panel of [...this.visible, ...this.rows]) panel.resized();
    offerRows(this);
  }

  /** @param {boolean} [isMoving] */
  redraw(isMoving = false) {
    for (const panel of this.visible) panel.redraw(isMoving);
    for (const { spark } of this.rows) spark.redraw();
  }

  recolour() {
    this.resized();
    this.navigation.minimap.resized();
  }

  // Several policies: in full, one sparkline each, or the difference of two ---------------------------

  /** The difference of two policies, while that is shown. @returns {DifferencePanel | null} */
  get difference() {
    return this.differences?.panel ?? null;
  }

  /** The pair of an address that names none. */
  get usualPair() {
    return this.differs ? "1-2" : "none";
  }

  /** The policies that share the axis. */
  get compared() {
    return this.difference?.models ?? this.models;
  }

  get axes() {
    return axesOf(this.compared);
  }

  /** The panels shown in full: policies, or the difference of two. */
  get visible() {
    if (this.difference) return [this.difference];
    return this.solo < 0 ? this.panels : [this.panels[this.solo]];
  }

  /** The others, a row each. */
  get rows() {
    return this.solo < 0 || this.difference ? [] : this.panels.filter(({ model }) => model.id !== this.solo);
  }

  /** Others are compared, or along another axis: go to a step of one of those before.
   * @param {Axis} align @param {Model} model @param {number} step
   */
  recompare(align, model, step) {
    this.align = align;
    if (this.navigation.loop) this.navigation.toggleLoop();
    // What is not compared may have no place on the axis of what is.
    for (const panel of this.panels) if (!this.visible.includes(panel)) panel.hide();
    this.measure();
    const { extent } = this.scales;
    extent.set(0, extent.whole);
    this.controls.rescale();
    if (!this.compared.includes(this.reading.model)) this.read(this.compared[0]);
    const tick = this.compared.includes(model) ? tickOfStep(model, step, align) : this.tick;
    this.show(tick);
    this.resized();
    this.settle();
  }

  /** Open one policy, or compare it. @param {number} id -1 for all of them */
  pick(id) {
    if (this.difference) this.differences.take(id);
    else this.setSolo(id);
  }

  /** Open one policy, the others being a row each; asked again, or for none, open all of them.
   * @param {number} id
   */
  setSolo(id) {
    this.solo = id === this.solo ? -1 : id;
    this.arrange();
    if (this.solo >= 0) this.read(this.models[this.solo]);
    if (!this.visible.includes(this.chosen)) this.choose(this.visible[0], -1);
    this.show(this.tick);
    this.resized();
    this.settle();
  }

  /** The step that a policy is at; before the first one if it is not compared. @param {Model} model */
  stepOf(model) {
    return this.compared.includes(model) ? stepOfTick(model, this.tick, this.align) : -1;
  }

  /** Say of every policy in which form it is. */
  arrange() {
    const { solo } = this;
    byId("panels").classList.toggle("rows", solo >= 0);
    for (const panel of this.panels) panel.arrange(solo >= 0 && panel.model.id !== solo, panel.model.id === solo);
  }

  /** Open the policy above another one, or below it. */
  openNeighbour({ model }, by) {
    const panel = this.panels[model.id + by];
    if (!panel) return;
    if (this.solo >= 0) this.setSolo(panel.model.id);
    panel.part(".solo").focus();
  }

  /** Show the side cards for a policy: its memory breakdown, its table, its program. @param {Panel} panel */
  turn(panel) {
    if (!this.visible.includes(panel)) this.setSolo(panel.model.id);
    else if (panel !== this.chosen) this.choose(panel, -1);
    this.read(panel.model);
  }
}
