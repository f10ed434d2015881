/**
 * Stacked memory blocks over time (memory strip). Blocks too thin to be told from their neighbours
 * are summed and painted together: most of a hundred thousand.
 */

import { firstColumns } from "./axis.js";
import { AGAIN_BAND, BAND_FILLS, STRIPES, WORKSPACE_BAND, blocksOf } from "./blocks.js";

/**
 * @import { Strip } from "./strip.js"
 */

// Pixels of height from which a block is set apart, carries a hatch, has an outline in the future.
export const [APART, HATCHED] = [4, 7];
const OUTLINED = 9;

export class Stack {
  /** @param {Strip} strip with the step that each of its columns shows @param {boolean} isPlain whether no block is
   * set apart
   */
  constructor({ layers, ink, room, scale, model, shown }, isPlain = false) {
    this.layers = layers;
    this.ink = ink;
    this.model = model;
    this.shown = shown;
    this.floor = layers.past.height;
    this.thick = Math.max(1, Math.round(layers.ratio));
    this.sums = new Float64Array(shown.length); // what every column holds
    this.tops = new Int32Array(shown.length).fill(this.floor); // how high that is, in pixels
    this.thin = new Float64Array(shown.length + 1); // thin blocks upon it, as changes from column to column
    [this.left, this.right] = [shown.length, 0]; // the columns that these change
    this.edges = null; // the tops of the band below
    /** @param {number} sum */
    this.top = (sum) => this.floor - Math.round(scale.at(sum) * room);
    /** Whether a block cannot be as high as one that is set apart, wherever it stands. */
    this.isThin = (amount) => scale.at(amount) * room + 1 <= APART * layers.ratio;
    this.isPlain = isPlain;
  }

  /** Paint past and future. */
  paint() {
    const { model, shown } = this;
    const { values, begins, ends, bands, amounts } = blocksOf(model);
    const [lowest, highest] = [shown[0] ?? 0, shown[shown.length - 1] ?? -1];
    const columnOf = firstColumns(shown);
    let band = -1;
    let [amount, isThin] = [-1, false];
    for (let i = 0; i < values.length; i++) {
      if (bands[i] !== band) {
        this.close(band);
        band = bands[i];
      }
      if (begins[i] > highest || ends[i] <= lowest) continue;
      const left = begins[i] <= lowest ? 0 : columnOf[begins[i] - lowest];
      const right = ends[i] > highest ? shown.length : columnOf[ends[i] - lowest];
      if (left >= right) continue;
      if (amounts[i] !== amount) [amount, isThin] = [amounts[i], this.isThin(amounts[i])];
      if (isThin) this.addThin(left, right, amount);
      else this.block(left, right, amount, band);
    }
    this.close(band);
    this.workspace();
  }

  /** A block that is painted later. */
  addThin(left, right, amount) {
    this.thin[left] += amount;
    this.thin[right] -= amount;
    if (left < this.left) this.left = left;
    if (right > this.right) this.right = right;
  }

  /** Paint the thin blocks. */
  settle(band) {
    const { thin, sums, tops, layers, left, right } = this;
    if (left >= right) return;
    const fill = this.ink[BAND_FILLS[band]];
    let [begin, low, top] = [left, -1, -1]; // of columns that look alike
    for (let x = left, amount = 0; x < right; x++) {
      amount += thin[x];
      thin[x] = 0;
      sums[x] += amount;
      const high = !amount ? tops[x] : x > left && sums[x] === sums[x - 1] ? tops[x - 1] : this.top(sums[x]);
      if (tops[x] !== low || high !== top) {
        if (top < low) layers.past.rect(begin, top, x, low, fill);
        [begin, low, top] = [x, tops[x], high];
      }
      tops[x] = high;
    }
    if (top < low) layers.past.rect(begin, top, right, low, fill);
    thin[right] = 0;
    [this.left, this.right] = [sums.length, 0];
  }

  /** Stack one block over some columns. */
  block(left, right, amount, band) {
    this.settle(band);
    const { sums, tops } = this;
    for (let x = left; x < right; ) {
      const [low, sum] = [tops[x], sums[x]];
      const top = this.top(sum + amount);
      let end = x;
      for (; end < right && sums[end] === sum; end++) [sums[end], tops[end]] = [sum + amount, top];
      if (top < low) this.box(x, top, end, low, band, x === left, end === right);
      x = end;
    }
  }

  /** The colour of an outline. @param {number} band */
  edgeOf(band) {
    return this.ink[band === AGAIN_BAND ? "recomputed-edge" : BAND_FILLS[band]];
  }

  /** A part of a block over columns that hold the same. */
  box(left, top, right, bottom, band, begins, ends) {
    const { thick, ink } = this;
    const { past, future, ratio } = this.layers;
    const fill = ink[BAND_FILLS[band]];
    const high = (bottom - top) / ratio;
    const stripes = ink[STRIPES[band]];
    if (stripes !== undefined && high >= HATCHED) past.hatch(left, top, right, bottom, fill, stripes, thick);
    else past.rect(left, top, right, bottom, fill);
    if (high < APART || this.isPlain) return;
    past.rect(left, top, right, top + thick, ink.background);
    if (begins && right - left > 2 * thick) past.rect(left, top, left + thick, bottom, ink.background);
    if (high < OUTLINED) return;
    const edge = this.edgeOf(band);
    future.rect(left, top, right, top + thick, edge);
    if (begins) future.rect(left, top, left + thick, bottom, edge);
    if (ends) future.rect(right - thick, top, right, bottom, edge);
  }

  /** The workspace of each column's step, upon all blocks. */
  workspace() {
    const { model, shown } = this;
    const needs = model.bands[WORKSPACE_BAND].live;
    for (let x = 0, end = 0; x < shown.length; x = end) {
      while (end < shown.length && shown[end] === shown[x]) end++;
      if (needs[shown[x]]) this.block(x, end, needs[shown[x]], WORKSPACE_BAND);
    }
    this.close(WORKSPACE_BAND);
  }

  /** All blocks of a band are there: outline it in the future, whatever its blocks are. */
  close(band) {
    if (band < 0) return;
    this.settle(band);
    const { tops, floor, thick } = this;
    const { future } = this.layers;
    const fill = this.edgeOf(band);
    let before = floor;
    for (let x = 0; x < tops.length; x++) {
      const top = tops[x];
      if (top < floor && (this.edges?.[x] ?? floor) !== top) {
        future.rect(x, top, x + 1, top + thick, fill);
        if (before !== top) future.rect(x, Math.min(before, top), x + thick, Math.max(before, top), fill);
      }
      before = top;
    }
    this.edges = tops.slice();
  }
}
