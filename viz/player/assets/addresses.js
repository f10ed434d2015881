/**
 * Memory map of a schedule: an offset in one buffer for every block and workspace.
 *
 * Offline dynamic storage allocation by first fit: blocks in order of size, or where that is lower in
 * order of lifetime, then of their first step, each at the lowest offset that is free for its whole
 * lifetime. What an operator computes in place stays where its operand was. Source: greedy by size,
 * Pisarchyk & Lee 2020, arXiv 2001.03288, which takes the smallest gap rather than the lowest.
 * ``tc.arena`` searches longer.
 */

import { rootOf } from "./allocation.js";
import { firstColumns } from "./axis.js";
import { BAND_FILLS, STRIPES, WORKSPACE_BAND, blocksOf } from "./blocks.js";
import { countText, shortLive, shortSize } from "./format.js";
import { APART, HATCHED, Stack } from "./stack.js";

/**
 * @import { Model } from "./data.js"
 *
 * @typedef {object} Rectangle
 * @property {number} value that it was allocated for; -1 for a workspace
 * @property {number} band
 * @property {number} amount bytes, or values where memory is counted in them
 * @property {number} begin the step that allocates it
 * @property {number} end the step that frees it
 * @property {number} offset
 *
 * @typedef {{rectangles: Rectangle[], height: number, isRounded: boolean}} Placed
 *
 * @typedef {{begin: number, end: number, size: number, offset: number, parts: Rectangle[]}} Place
 */

// Allocations of a schedule: each may be compared with all others twice, 100 million pairs, 0.6 s.
export const MOST_PLACED = 10_000;
const ALIGNMENT = 64; // bytes to which sizes are rounded up, as in tc.arena
const MOST_OFFSETS = 3; // of a value that are named
/** @type {((place: Place) => number)[]} */
const ORDERS = [({ size }) => size, ({ begin, end }) => end - begin]; // by what places are tried in order

/** How many allocations a schedule has. @param {Model} model */
function allocationCount(model) {
  return blocksOf(model).values.length + model.bands[WORKSPACE_BAND].live.reduce((n, live) => n + Number(live > 0), 0);
}

/** Where everything is in the buffer; null of too many allocations. @param {Model} model @returns {Placed | null} */
export function placedBlocks(model) {
  const { blocks } = model;
  if (blocks.placed === undefined) blocks.placed = allocationCount(model) > MOST_PLACED ? null : packed(model);
  return blocks.placed;
}

/** @param {Model} model @returns {Placed} */
function packed(model) {
  const rectangles = rectanglesOf(model);
  const unit = model.inNodes ? 1 : ALIGNMENT;
  const places = placesIn(rectangles, model.over, unit);
  const peak = model.live[model.peakStep];
  let height = Number.POSITIVE_INFINITY;
  for (const first of ORDERS) {
    const found = firstFit(places, first);
    if (found < height) for (const { offset, parts } of places) for (const part of parts) part.offset = offset;
    height = Math.min(height, found);
    if (height <= peak) break; // nothing is lower
  }
  return { rectangles, height, isRounded: rectangles.some(({ amount }) => amount % unit > 0) };
}

/** Blocks and workspaces that are not empty, by their first step. @param {Model} model @returns {Rectangle[]} */
function rectanglesOf(model) {
  const { values, begins, ends, bands, amounts } = blocksOf(model);
  const found = Array.from(values, (value, i) => {
    return { value, band: bands[i], amount: amounts[i], begin: begins[i], end: ends[i], offset: 0 };
  });
  model.bands[WORKSPACE_BAND].live.forEach((amount, step) => {
    found.push({ value: -1, band: WORKSPACE_BAND, amount, begin: step, end: step + 1, offset: 0 });
  });
  return found.filter(({ amount }) => amount > 0).sort((a, b) => a.begin - b.begin);
}

/** What needs a place of its own: a result in place has that of its operand.
 * @param {Rectangle[]} rectangles @param {Int32Array | null} over by step in place what it overwrites, -1 for others
 * @param {number} unit to which sizes are rounded up
 */
function placesIn(rectangles, over, unit) {
  /** @type {Place[]} */
  const places = [];
  const ending = new Map(); // by a step in place, the place of what it overwrites
  for (const part of rectangles) {
    const { begin, end, amount } = part;
    let own = part.value >= 0 ? ending.get(begin) : undefined;
    if (!own) places.push((own = { begin, end, size: 0, offset: 0, parts: [] }));
    own.end = end;
    own.size = Math.max(own.size, Math.ceil(amount / unit) * unit);
    own.parts.push(part);
    if (part.value >= 0 && over?.[end] >= 0) ending.set(end, own);
  }
  return places;
}

/** Give each place its offset. @param {Place[]} places by their first step
 * @param {(place: Place) => number} first of what the largest comes first @returns {number} the buffer's size
 */
function firstFit(places, first) {
  // Columns in that order, as nearly all pairs are looked at; and the places that have an offset, by it.
  const ordered = places.toSorted((a, b) => first(b) - first(a));
  const [begins, ends, sizes] = ["begin", "end", "size"].map((name) =>
    Float64Array.from(ordered, (each) => each[name]),
  );
  const offsets = new Float64Array(ordered.length);
  const sorted = new Int32Array(ordered.length);
  let height = 0;
  for (let i = 0; i < ordered.length; i++) {
    let [low, at] = [0, 0];
    for (let k = 0; k < i; k++) {
      const other = sorted[k];
      if (begins[other] >= ends[i] || ends[other] <= begins[i]) continue;
      if (offsets[other] - low >= sizes[i]) break;
      low = Math.max(low, offsets[other] + sizes[other]);
    }
    for (let high = i; at < high; ) {
      const middle = (at + high) >> 1;
      if (offsets[sorted[middle]] <= low) at = middle + 1;
      else high = middle;
    }
    sorted.copyWithin(at + 1, at, i);
    sorted[at] = i;
    ordered[i].offset = offsets[i] = low;
    height = Math.max(height, low + sizes[i]);
  }
  return height;
}

/** How far the buffer is above what is ever live, or why there is none, in words. @param {Model} model */
export function bufferWords(model) {
  const found = placedBlocks(model);
  if (!found)
    return `No addresses: ${countText(allocationCount(model))} allocations, of which at most ${countText(MOST_PLACED)} are placed.`;
  const ratio = (found.height / Math.max(model.live[model.peakStep], 1)).toFixed(2);
  const rounded = found.isRounded && ratio !== "1.00" ? `, sizes rounded up to ${ALIGNMENT} B` : "";
  const caching = model.reserved ? ` PyTorch's allocator would reserve ${shortSize(model.reserved)}.` : "";
  return `Buffer ${ratio} × peak of live bytes, by first fit${rounded}.${caching}`;
}

/** Where the memory of a value is, in words. @param {Model} model @param {number} value */
export function offsetWords(model, value) {
  const root = rootOf(model.graph.data, value);
  const own = (placedBlocks(model)?.rectangles ?? []).filter((each) => each.value === root);
  const words = own
    .slice(0, MOST_OFFSETS)
    .map(({ offset, begin }) => `${shortLive(offset, model.inNodes)} from step ${countText(begin)}`);
  if (own.length > MOST_OFFSETS) words.push(`${countText(own.length - MOST_OFFSETS)} more`);
  return words.join(", ");
}

/** Rectangles at their offsets over time: the past filled, the future outlined. */
export class AddressMap extends Stack {
  paint() {
    const { model, shown, layers, ink, thick } = this;
    const { past, future, ratio } = layers;
    const [lowest, highest] = [shown[0] ?? 0, shown[shown.length - 1] ?? -1];
    const columnOf = firstColumns(shown);
    for (const { begin, end, band, amount, offset } of placedBlocks(model).rectangles) {
      if (begin > highest || end <= lowest) continue;
      const left = begin <= lowest ? 0 : columnOf[begin - lowest];
      const right = end > highest ? shown.length : columnOf[end - lowest];
      const [top, bottom] = [this.top(offset + amount), this.top(offset)];
      if (left >= right || top >= bottom) continue;
      const high = (bottom - top) / ratio;
      const [fill, stripes] = [ink[BAND_FILLS[band]], ink[STRIPES[band]]];
      if (stripes !== undefined && high >= HATCHED) past.hatch(left, top, right, bottom, fill, stripes, thick);
      else past.rect(left, top, right, bottom, fill);
      if (high >= APART) {
        past.rect(left, top, right, top + thick, ink.background);
        if (right - left > 2 * thick) past.rect(left, top, left + thick, bottom, ink.background);
      }
      future.outline(left, top, right, bottom, this.edgeOf(band), thick);
    }
  }
}
