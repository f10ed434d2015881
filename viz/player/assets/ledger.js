/**
 * Space-time diagram (ledger): one row per graph node of the open view, x is time. The upper part
 * of a row shows live outputs of its forward operators, the lower part those of its backward
 * operators; for a group, the height is the share of its maximum. Evaluations are marks. The future
 * is outlined.
 */

import { COMPUTE } from "./allocation.js";
import { placesOf, presentOf } from "./axis.js";
import { drawBars, drawEvaluations } from "./bars.js";
import { listAt } from "./columns.js";
import { counted } from "./format.js";
import { LedgerLights } from "./lights.js";
import { historyOfView, isResident } from "./model.js";
import { Overlay } from "./overlay.js";
import { LedgerPointer } from "./pointing.js";
import { Layers, colours } from "./raster.js";
import { readAt, readsOf } from "./reasons.js";
import { RowWindow } from "./rows.js";
import { GRADIENT, KEPT, ON_HOST, RECOMPUTED, grouped, homes, lastAtMost } from "./state.js";

/**
 * @import { View } from "./data.js"
 * @import { Panel } from "./panel.js"
 */

export const [UPPER, MIDDLE, LOWER] = [0.1, 0.62, 0.92]; // of a row's height: both parts
const TALLEST_ROW = 56; // pixels; the same in the style sheet
const TALL_ROW = 9; // from which a row has a ground of its own
const MOST_ARROWS = 40;
const INKS = [
  "background",
  "panel",
  "ink",
  "kept",
  "recomputed",
  "gradient",
  "recomputing",
  "staying",
  "recomputed-edge",
];

/** Which cells share a row; that of the first forward one is the lowest. @param {View} view */
function rowsOf(view) {
  const forward = [];
  const backward = [];
  const row = new Int32Array(view.labels.length).fill(-1);
  for (let cell = 0; cell < row.length; cell++) {
    if (view.mirrors[cell] >= 0) row[cell] = row[view.mirrors[cell]];
    else row[cell] = forward.push(-1) - 1;
    (view.backward[cell] ? backward : forward)[row[cell]] = cell;
  }
  const inside = `${view.title}/`; // of all that is in an opened group
  const own = (name) => (view.parent !== null && name.startsWith(inside) ? name.slice(inside.length) : name);
  const names = forward.map((cell, i) => own(view.rows[cell >= 0 ? cell : backward[i]]));
  return { count: forward.length, forward, backward: names.map((_, i) => backward[i] ?? -1), row, names };
}

export class Ledger {
  /** @param {Panel} panel @param {any} scales shared by all */
  constructor(panel, scales) {
    this.panel = panel;
    this.scales = scales;
    this.element = panel.part(".ledger");
    this.plot = this.element.querySelector(".plot");
    this.layers = new Layers(this.element.querySelector("canvas"));
    this.over = new Overlay(this.element.querySelector("canvas.over"));
    this.step = -1;
    this.hovered = this.selected = null; // a value's time in memory, or a cell
    this.pointer = this.makePointer();
    this.window = new RowWindow(this);
    this.lights = new LedgerLights(this);
  }

  makePointer() {
    return new LedgerPointer(this);
  }

  get model() {
    return this.panel.model;
  }

  /** Show a view's cells. @param {number} index */
  open(index) {
    this.view = this.model.graph.views[index];
    this.rows = rowsOf(this.view);
    this.index = index;
    this.cellOf = homes(this.model.graph.operators.names.length, this.view.operators);
    this.homeOf = homes(this.model.graph.data.names.length, this.view.data);
    this.element.style.setProperty("--rows", String(this.rows.count));
    this.take();
    if (!this.panel.isGraph) this.lights.find();
  }

  /** Load a schedule for the cells of this view. */
  take() {
    this.history = historyOfView(this.model, this.index);
    const { computes, targets } = this.model;
    const cells = this.view.labels.length;
    // What is not in this view comes last.
    const cellAt = (step) => this.cellOf[targets[step]];
    this.marks = grouped(
      cells + 1,
      computes.map((step) => (cellAt(step) < 0 ? cells : cellAt(step))),
    );
    this.most = new Float64Array(cells); // the largest share of each that is ever held
    const { first, shares } = this.history;
    for (let cell = 0; cell < cells; cell++) {
      for (let i = first[cell]; i < first[cell + 1]; i++) this.most[cell] = Math.max(this.most[cell], shares[i]);
    }
    this.hovered = this.selected = null;
    this.layers.canvas.setAttribute(
      "aria-label",
      `What ${counted(this.rows.count, "row")} of ${this.view.title} hold over ${counted(this.model.count, "step")}; the same as a table is beside it`,
    );
  }

  /** The evaluations of a cell, as positions among all. @param {number} cell */
  marksOf(cell) {
    const { first, order } = this.marks;
    return order.subarray(first[cell], first[cell + 1]);
  }

  /** Height of a row in pixels of the canvas. */
  get rowHeight() {
    const { past, ratio } = this.layers;
    if (this.window.scrolls) return this.window.least * ratio;
    return Math.min(past.height / this.rows.count, TALLEST_ROW * this.scales.large * ratio);
  }

  /** The upper edge of a row, in pixels of the canvas. */
  top(row) {
    return Math.round(this.ground - (row + 1) * this.rowHeight);
  }

  /** The lower edge of the lowest row, which may be out of sight, in pixels of the canvas. */
  get ground() {
    const { past, ratio } = this.layers;
    return past.height + this.window.below * ratio;
  }

  /** Whether anything of a cell's row is in sight. @param {number} cell */
  isInSight(cell) {
    const [first, end] = this.window.range;
    const row = this.rows.row[cell];
    return first <= row && row < end;
  }

  /** Upper and lower edge of a cell's bars. @param {number} cell @returns {[number, number]} */
  lane(cell) {
    const top = this.top(this.rows.row[cell]);
    const height = this.rowHeight;
    const [from, to] = this.view.backward[cell] ? [MIDDLE, LOWER] : [UPPER, MIDDLE];
    const high = Math.round(top + from * height);
    return [high, Math.max(high + 1, Math.round(top + to * height) - (height > 12 ? 1 : 0))];
  }

  /** Where a place on the axis is, in pixels of the canvas. @param {number} place */
  x(place) {
    return this.scales.extent.pixel(place, this.layers.past.width);
  }

  /** Where the present is, in pixels of the canvas. */
  get now() {
    return this.x(presentOf(this.model, this.scales, this.step));
  }

  /** Take on another size or other colours. */
  resized() {
    this.window.fit();
    if (!this.layers.resize()) return;
    this.over.resize();
    this.ink = colours(this.element, INKS);
  }

  /** Draw what is in sight now. @param {boolean} [isMoving] whether it is another in the next frame */
  redraw(isMoving = false) {
    if (!this.layers.past) return;
    const { extent } = this.scales;
    this.places = placesOf(this.model, extent.axis);
    const { width } = this.layers.past;
    this.sight = { from: extent.from, scale: extent.scale(width), width, step: extent.stepAt(this.model, extent.from) };
    this.layers.limit(isMoving ? this.now : null);
    for (const raster of [this.layers.past, this.layers.future]) this.stripes(raster);
    const [first, end] = this.window.range;
    for (let row = first; row < end; row++) {
      for (const cell of [this.rows.forward[row], this.rows.backward[row]]) {
        if (cell >= 0) this.draw(cell);
      }
    }
    this.scales.drawn(this);
    this.lights.find(); // what was freed while nothing was drawn
    this.show(this.step, true);
  }

  /** Every second row on a ground of its own, where rows are high enough. */
  stripes(raster) {
    raster.pixels.fill(this.ink.background);
    const tall = this.rowHeight >= TALL_ROW * this.layers.ratio;
    const [first, end] = this.window.range;
    for (let row = first; row < end; row++) {
      if (tall && row % 2) continue;
      raster.rect(0, this.top(row), raster.width, this.top(row - 1), this.ink.panel);
    }
  }

  /** Height of the marks of a group's evaluations, above its bars. @param {number} cell */
  markHeight(cell) {
    const [high, low] = this.lane(cell);
    return low - high >= 6 ? Math.max(2, Math.round((low - high) / 5)) : 0;
  }

  /** One bar: kept below recomputed, or results below temporary cotangents. */
  bar(left, top, right, bottom, fill, kept) {
    const { ink, layers } = this;
    const { past, future, ratio } = layers;
    const thick = Math.max(1, Math.round(ratio));
    if (fill === ON_HOST) {
      const middle = (top + bottom) >> 1;
      return layers.box(left, middle, right, middle + thick, ink.kept, thick);
    }
    const stays = fill === GRADIENT;
    const colour = stays ? ink.gradient : fill === KEPT ? ink.kept : ink.recomputed;
    // Bars that follow each other stay apart where there is room.
    const end = right - left > 4 * thick ? right - thick : right;
    if (left < past.end) {
      if (fill === RECOMPUTED && bottom - top >= 4 * thick)
        past.hatch(left, top, end, bottom - kept, colour, ink.kept, thick);
      else past.rect(left, top, end, bottom, colour);
      if (kept > 0 && stays && kept >= 4 * thick)
        past.hatch(left, bottom - kept, end, bottom, ink.staying, colour, thick);
      else if (kept > 0) past.rect(left, bottom - kept, end, bottom, stays ? ink.staying : ink.kept);
    }
    const edge = fill === RECOMPUTED ? ink["recomputed-edge"] : colour;
    if (right > future.first)
      future.outline(left, top, end, bottom, stays && kept === bottom - top ? ink.staying : edge, thick);
  }

  /** Draw a cell's live intervals and evaluations. @param {number} cell */
  draw(cell) {
    drawBars(this, cell);
    drawEvaluations(this, cell);
  }

  /** @param {number} step @param {boolean} [whole] */
  show(step, whole = false) {
    const moves = step !== this.step;
    this.step = step;
    if (!this.layers.past) return;
    if (moves && this.window.reveal(this.activeRow)) return this.window.moved();
    const column = this.now;
    if (!whole && this.layers.isPart && column !== this.layers.now) return this.redraw();
    this.layers.show(column, whole);
    this.overlay(column);
  }

  /** The row of the active operator; -1 if it is outside this view. */
  get activeRow() {
    const { step, model } = this;
    const cell = step >= 0 && model.verbs[step] === COMPUTE ? this.cellOf[model.targets[step]] : -1;
    return cell < 0 ? -1 : this.rows.row[cell];
  }

  /** Draw the cursor, the active and the selected node, and the arrows of the hovered one. @param {number} column */
  overlay(column) {
    const { over, model, step } = this;
    const { ink, halo, checkpoint } = this.panel.colours;
    over.clear();
    over.cursor(column, 6, ink);
    const marked = this.hovered ?? this.selected;
    if (this.selected) this.outlined(this.selected, checkpoint);
    if (this.hovered && this.hovered !== this.selected) this.outlined(this.hovered, ink);
    this.lights.draw();
    if (marked) this.arrowsOf(marked);
    if (step < 0 || model.verbs[step] !== COMPUTE) return;
    const cell = this.cellOf[model.targets[step]];
    if (cell < 0) return;
    const [high, low] = this.lane(cell);
    const [left, right] = [this.x(this.places[step]), this.x(this.places[step + 1])];
    const air = 3 * over.ratio;
    over.frame(left - air, high - air, Math.max(Math.min(right, left + 3 * air), left + 2) + air, low + air, ink, 1);
    over.frame(left - air, high - air, Math.max(Math.min(right, left + 3 * air), left + 2) + air, low + air, halo, 2);
    if (!marked) this.readArrows(step, ink, halo);
  }

  /** A frame around a value's bar, or around all of a cell. @param {any} bar @param {string} ink */
  outlined({ cell, begin, end }, ink) {
    if (cell < 0) return;
    const [high, low] = this.lane(cell);
    const air = 2 * this.over.ratio;
    const [left, right] =
      begin === undefined ? [0, this.layers.past.width] : [this.x(this.places[begin]), this.x(this.places[end])];
    this.over.frame(left - air, high - air, Math.max(right, left + 2) + air, low + air, ink, 2);
  }

  /** Arrows from the inputs of an evaluation to it. */
  readArrows(step, ink, halo = null) {
    const to = this.cellOf[this.model.targets[step]];
    const x = this.x((this.places[step] + this.places[step + 1]) / 2);
    for (const value of readAt(this.model, step).slice(0, MOST_ARROWS))
      this.arrow(x, this.homeOf[value], to, ink, halo);
  }

  /** Arrows from what a value was made of, and to whoever reads it while it is there; of a group, to
   * whoever reads what it holds now.
   */
  arrowsOf({ cell, value, begin, end }) {
    const { model, step } = this;
    if (value === undefined) {
      const held = (one) => isResident(model.spans, one, step);
      const values = this.view.groups[cell] ? listAt(this.view.data, cell).filter(held) : [];
      const reads = Array.from(values.slice(0, MOST_ARROWS), (one) => readsOf(model, one, step, model.count)[0]);
      for (const read of reads) if (read) this.readerArrow(cell, read);
      return;
    }
    if (model.verbs[begin] === COMPUTE) this.readArrows(begin, this.panel.colours.ink);
    for (const read of readsOf(model, value, begin, end, MOST_ARROWS).slice(0, MOST_ARROWS))
      this.readerArrow(this.homeOf[value], read);
  }

  /** An arrow from a cell to an evaluation that reads of it. */
  readerArrow(cell, { operator, step }) {
    const x = this.x((this.places[step] + this.places[step + 1]) / 2);
    this.arrow(x, cell, this.cellOf[operator], this.panel.colours.ink);
  }

  /** An arrow from a cell's bar to another's. */
  arrow(x, from, to, ink, halo = null) {
    if (from < 0 || to < 0 || from === to) return;
    const [[high, low], [top, bottom]] = [this.lane(from), this.lane(to)];
    const up = top < high;
    this.over.arrow(x, up ? high : low, up ? bottom : top, ink, halo);
  }

  /** Mark a cell, or a value of it at a step; -1 for none. @param {number} cell @param {number} value */
  select(cell, value) {
    const root = value;
    const home = value >= 0 ? this.homeOf[value] : cell;
    this.selected = home < 0 ? null : { cell: home };
    if (root >= 0 && home >= 0) {
      const { spans } = this.model;
      const at = Math.max(
        lastAtMost(spans.begins, Math.max(this.panel.step, 0), spans.first[value], spans.first[value + 1]),
        spans.first[value],
      );
      if (at < spans.first[value + 1])
        this.selected = { cell: home, value, begin: spans.begins[at], end: spans.ends[at] };
    }
    if (!this.layers.past) return;
    if (home >= 0 && this.window.reveal(this.rows.row[home])) this.window.moved();
    else this.show(this.step);
  }
}
