/**
 * Difference of two policies as a space-time diagram (ledger). In the upper or lower part of a row,
 * live bytes of the first policy extend above a middle line, those of the other below it: in grey
 * as far as both have them, and beyond that each in a colour of its own, the other's hatched.
 */

import { COUNTED, placesOf, presentOf } from "./axis.js";
import { WIDEST_MARK } from "./bars.js";
import { cellName } from "./details.js";
import { differencesAlong } from "./differing.js";
import { amountText, counted } from "./format.js";
import { svgElement } from "./graph.js";
import { Ledger } from "./ledger.js";
import { LedgerPointer } from "./pointing.js";
import { Rail } from "./rail.js";
import { colours } from "./raster.js";
import { firstAfter } from "./reasons.js";
import { grouped, lastAtMost } from "./state.js";

/**
 * @import { DifferencePanel } from "./difference_panel.js"
 */

const LANES_OF_TWO = [
  [0.05, 0.65],
  [0.68, 0.97],
]; // of a row's height: forward, backward
const THIN_LANE = 4; // pixels, below which a lane has no two halves
const [BOTH_MARK, ADDED] = [2, 2]; // pixels: how wide a mark of both is; how far one's own stands out
export const DIFFERENCE_INKS = ["background", "panel", "ink", "in-both", "only-a", "only-b", "only-b-stripe"];

/** The panel of a difference that a ledger is in. @param {Ledger} ledger @returns {DifferencePanel} */
function differenceOf(ledger) {
  return /** @type {any} */ (ledger.panel);
}

/** The ledger of a pointer. @param {LedgerPointer} pointer @returns {DifferenceLedger} */
function ledgerOf(pointer) {
  return /** @type {any} */ (pointer.ledger);
}

export class DifferenceLedger extends Ledger {
  /** @param {number} index */
  open(index) {
    super.open(index);
    const { pair } = this.panel;
    const cells = this.view.labels.length;
    const cellAt = (model, step) => (this.cellOf[model.targets[step]] < 0 ? cells : this.cellOf[model.targets[step]]);
    this.evaluated = [pair.a, pair.b].map((model) =>
      grouped(
        cells + 1,
        model.computes.map((step) => cellAt(model, step)),
      ),
    );
    this.layers.canvas.setAttribute(
      "aria-label",
      `What ${counted(this.rows.count, "row")} of ${this.view.title} hold in ${differenceOf(this).titles.join(" and ")}; the same as a table is beside it`,
    );
  }

  makePointer() {
    return new DifferencePointer(this);
  }

  resized() {
    super.resized();
    if (this.layers.past) this.ink = colours(this.element, DIFFERENCE_INKS);
  }

  redraw(isMoving = false) {
    if (!this.layers.past) return;
    const { pair, index } = this.panel;
    const { axis } = this.scales.extent;
    this.along = differencesAlong(pair, axis, index);
    this.sides = [pair.a, pair.b].map((model) => placesOf(model, axis));
    super.redraw(isMoving);
  }

  get now() {
    const { pair, steps } = this.panel;
    return Math.max(...[pair.a, pair.b].map((model, side) => this.x(presentOf(model, this.scales, steps[side]))));
  }

  /** Upper and lower edge of what a cell holds: as much of its row as there is, for two halves.
   * @param {number} cell @returns {[number, number]}
   */
  lane(cell) {
    const [from, to] = LANES_OF_TWO[this.view.backward[cell]];
    const top = this.top(this.rows.row[cell]);
    const high = Math.round(top + from * this.rowHeight);
    return [high, Math.max(high + 1, Math.round(top + to * this.rowHeight))];
  }

  /** Live bytes of a cell over time; equal records are merged.
   * @param {number} cell @param {(from: number, to: number, amounts: number[], record?: number) => boolean} visit whether to go on
   */
  eachBar(cell, visit) {
    const { first, places, both, onlyA, onlyB } = this.along;
    const last = first[cell + 1];
    const { from, whole } = this.scales.extent;
    for (let i = Math.max(first[cell], lastAtMost(places, from, first[cell], last)), next = i; i < last; i = next) {
      next = i + 1;
      while (next < last && both[next] === both[i] && onlyA[next] === onlyA[i] && onlyB[next] === onlyB[i]) next++;
      const amounts = [both[i], onlyA[i], onlyB[i]];
      if (amounts.some(Boolean) && !visit(places[i], next < last ? places[next] : whole, amounts)) return;
    }
  }

  draw(cell) {
    this.bars(cell);
    this.evaluations(cell);
  }

  bars(cell) {
    const { width } = this.layers.past;
    const [high, low] = this.lane(cell);
    const isThin = low - high < THIN_LANE * this.layers.ratio;
    const middle = (high + low) >> 1;
    const room = Math.max(1, middle - high - this.markHeight(cell));
    let drawn = -1;
    this.eachBar(cell, (from, to, amounts) => {
      const left = this.x(from);
      if (left >= width) return false;
      const right = Math.max(this.x(to), left + 1);
      if (right <= 0 || (right === drawn && right - left === 1)) return true;
      drawn = right;
      if (isThin) this.thinBar(left, high, right, low, amounts);
      else
        this.halves(
          left,
          right,
          middle,
          amounts.map((amount) => this.heightOf(amount, cell, room)),
        );
      return true;
    });
  }

  /** How high an amount is in a cell's half: what there is, is seen. */
  heightOf(amount, cell, room) {
    return amount ? Math.max(1, Math.round((amount / this.along.most[cell]) * room)) : 0;
  }

  /** The bar of one side upon that of the other.
   * @param {number} left @param {number} right @param {number} middle @param {number[]} amounts
   */
  halves(left, right, middle, [both, a, b]) {
    const { ink, layers } = this;
    const thick = Math.max(1, Math.round(layers.ratio));
    const end = right - left > 4 * thick ? right - thick : right;
    if (both) layers.box(left, middle - both, end, middle + both, ink["in-both"], thick);
    if (a) layers.box(left, middle - both - a, end, middle - both, ink["only-a"], thick);
    if (!b) return;
    layers.past.hatch(left, middle + both, end, middle + both + b, ink["only-b"], ink["only-b-stripe"], thick);
    layers.future.outline(left, middle + both, end, middle + both + b, ink["only-b-stripe"], thick);
  }

  /** A bar in a row without room for two halves: as whoever alone holds more.
   * @param {number} left @param {number} top @param {number} right @param {number} bottom @param {number[]} amounts
   */
  thinBar(left, top, right, bottom, [both, a, b]) {
    const colour = this.ink[!a && !b ? "in-both" : a >= b ? "only-a" : "only-b"];
    this.layers.box(left, top, right, bottom, colour, Math.max(1, Math.round(this.layers.ratio)));
  }

  evaluations(cell) {
    const [high, low] = this.lane(cell);
    const thick = Math.max(1, Math.round(this.layers.ratio));
    const middle = (high + low) >> 1;
    const mark = this.markHeight(cell);
    const isGroup = this.view.groups[cell];
    if (isGroup ? !mark : low - high < THIN_LANE * thick) return;
    // Those that one adds stand out of its half.
    const boxes = isGroup
      ? [
          [high, high + mark],
          [low - mark, low],
        ]
      : [
          [high, middle],
          [middle, low],
        ];
    const out = isGroup ? 0 : ADDED * thick;
    this.marksOfSide(cell, 0, boxes[0], [boxes[0][0] - out, boxes[0][1]], thick);
    this.marksOfSide(cell, 1, boxes[1], [boxes[1][0], boxes[1][1] + out], thick);
  }

  /** The marks of one side, each between two heights: those that the other has too, and its own. */
  marksOfSide(cell, side, shared, own, thick) {
    const { ink, layers, scales } = this;
    const { a, b, only } = this.panel.pair;
    const model = side ? b : a;
    const places = this.sides[side];
    const { first, order } = this.evaluated[side];
    const all = order.subarray(first[cell], first[cell + 1]);
    const isCounted = COUNTED.includes(scales.extent.axis);
    for (let i = firstAfter(model, all, scales.extent.stepAt(model, scales.extent.from) - 1); i < all.length; i++) {
      const step = model.computes[all[i]];
      const left = this.x(places[step]);
      if (left >= layers.past.width) break;
      const isAdded = only[side][all[i]];
      const widest = isCounted ? (isAdded ? WIDEST_MARK : BOTH_MARK) * layers.ratio : Infinity;
      const right = Math.max(Math.min(this.x(places[step + 1]), left + widest), left + Math.min(2, thick));
      const colour = isAdded ? ink[side ? "only-b-stripe" : "only-a"] : ink.ink;
      const [top, bottom] = isAdded ? own : shared;
      layers.box(left, top, right, bottom, colour, thick);
    }
  }

  overlay(column) {
    const { over, panel } = this;
    const { ink, halo, checkpoint } = panel.colours;
    over.clear();
    over.cursor(column, 6, ink);
    if (this.selected) this.outlined(this.selected, checkpoint);
    if (this.hovered) this.outlined(this.hovered, ink);
    differenceOf(this).active.forEach((step, side) => step >= 0 && this.frameOf(step, side, ink, halo));
  }

  /** A frame around the operator that one side evaluates now. */
  frameOf(step, side, ink, halo) {
    const { over } = this;
    const { a, b } = this.panel.pair;
    const cell = this.cellOf[(side ? b : a).targets[step]];
    if (cell < 0 || !this.isInSight(cell)) return;
    const [high, low] = this.lane(cell);
    const middle = (high + low) >> 1;
    const [top, bottom] = side ? [middle, low] : [high, middle];
    const air = 3 * over.ratio;
    const left = this.x(this.sides[side][step]);
    const right = Math.max(Math.min(this.x(this.sides[side][step + 1]), left + 3 * air), left + 2) + air;
    over.frame(left - air, top - air, right, bottom + air, ink, 1);
    over.frame(left - air, top - air, right, bottom + air, halo, 2);
  }

  /** A frame around a bar, or around all of a row. @param {any} bar @param {string} ink */
  outlined({ cell, from, to }, ink) {
    if (!this.isInSight(cell)) return;
    const [high, low] = this.lane(cell);
    const air = 2 * this.over.ratio;
    const [left, right] = from === undefined ? [0, this.layers.past.width] : [this.x(from), this.x(to)];
    this.over.frame(left - air, high - air, Math.max(right, left + 2) + air, low + air, ink, 2);
  }

  /** Mark a cell, or that of a value; -1 for none. @param {number} cell @param {number} value */
  select(cell, value) {
    const home = value >= 0 ? this.homeOf[value] : cell;
    this.selected = home < 0 ? null : { cell: home };
    if (this.layers.past) this.show(this.step);
  }
}

/** Hit testing in a difference. */
class DifferencePointer extends LedgerPointer {
  /** The place on the axis at a point of the screen. */
  placeAt(event) {
    const { plot, scales } = this.ledger;
    const box = plot.getBoundingClientRect();
    return scales.extent.place(event.clientX - box.left, box.width);
  }

  clicked(event) {
    const { panel } = this.ledger;
    const found = this.barAt(event);
    if (found) panel.events.choose(panel, found.cell);
    else panel.events.seekPlace(this.placeAt(event));
  }

  heldIn(cell, event) {
    const place = this.placeAt(event);
    let found = null;
    ledgerOf(this).eachBar(cell, (from, to, amounts) => {
      if (from <= place && place < to) found = { cell, from, to, begin: from, amounts };
      return from <= place;
    });
    return found;
  }

  /** @param {any} found */
  lines({ cell, amounts: [both, a, b] }) {
    const { panel, view, rows } = this.ledger;
    const { inNodes } = panel.model;
    const name = view.groups[cell] ? rows.names[rows.row[cell]] : cellName(panel.model, view, cell);
    const size = (amount) =>
      ledgerOf(this).along.isHeavy[cell] ? amountText(amount, inNodes) : counted(amount, "view");
    const [one, other] = differenceOf(this.ledger).titles;
    return [
      `${name}${view.backward[cell] && view.groups[cell] ? ", backward" : ""}`,
      ...(both ? [`in both: ${size(both)}`] : []),
      ...(a ? [`only in ${one}: ${size(a)}`] : []),
      ...(b ? [`only in ${other}: ${size(b)}`] : []),
    ];
  }
}

/** The rail of a difference: what a row's cells hold now, in the one above, in the other below. */
export class DifferenceRail extends Rail {
  isRinged() {
    return false;
  }

  node(cell, x, parent) {
    const node = svgElement("g", { class: "halves", "data-of": cell, transform: `translate(${x} 0)` }, parent);
    svgElement("rect", { class: "ground", x: -6.5, y: -6.5, width: 13, height: 13, rx: 3 }, node);
    for (const [name, y] of [
      ["upper", -6],
      ["lower", 0.5],
    ])
      svgElement("rect", { class: name, x: -6, y, width: 12, height: 5.5, rx: 1.5 }, node);
  }

  show(step, whole = false) {
    const { rows } = this.ledger;
    for (const [row, element] of this.shown) {
      let changed = whole;
      for (const node of element.querySelectorAll(".halves")) {
        const look = differenceOf(this.ledger).lookOf(Number(node.dataset.of));
        if (!whole && node.dataset.held === look) continue;
        changed = true;
        node.dataset.held = look;
      }
      if (changed) element.setAttribute("aria-label", this.words(rows, row));
      element.setAttribute("aria-pressed", String(row === this.selectedRow()));
    }
  }

  words(rows, row) {
    const { view } = this.ledger;
    const words = [
      [rows.forward[row], "forward"],
      [rows.backward[row], "backward"],
    ]
      .filter(([cell]) => cell >= 0)
      .map(([cell, half]) => `${half} ${differenceOf(this.ledger).heldWords(cell)}`);
    return `${rows.names[row]}${this.cellOf(row) in view.opens ? ", opens" : ""}: ${words.join("; ")}`;
  }
}
