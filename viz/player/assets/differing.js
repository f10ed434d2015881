/**
 * Difference of two traces of one graph: of two steps, per memory block, and over time, per graph
 * node. Pure functions; all amounts are integers and add up.
 *
 * A block is in both as often as both have one for its value; the rest is only in one. Workspace is
 * in both up to the smaller of the two.
 */

import { placesOf } from "./axis.js";
import { blocksAt, blocksOf } from "./blocks.js";
import { Column } from "./columns.js";
import { onlyEvaluated } from "./progress.js";
import { grouped, homes, taken } from "./state.js";

/**
 * @import { Axis } from "./axis.js"
 */

/**
 * @typedef {object} Pair
 * @property {any} a @property {any} b
 * @property {Uint8Array[]} only by trace and evaluation: whether the other has none for it
 * @property {number} anchors first evaluations that stand at one place
 * @property {Map<string, any>} sweeps what is made when it is first asked for
 *
 * @param {any} a @param {any} b @returns {Pair}
 */
export function pairOf(a, b) {
  return { a, b, ...onlyEvaluated(a, b), sweeps: new Map() };
}

/** Live memory of two traces after a step of each.
 * @param {Pair} pair @param {number[]} steps
 * @returns {{both: any[], only: any[][], shared: number}} blocks of both, in the first trace, and of
 *     each alone; and how much is in both
 */
export function differenceAt({ a, b }, steps) {
  const [own, others] = [blocksAt(a, steps[0]), blocksAt(b, steps[1])];
  const left = new Map();
  for (const { value } of others) left.set(value, (left.get(value) ?? 0) + 1);
  const both = [];
  const only = [[], []];
  for (const block of own) {
    const count = left.get(block.value) ?? 0;
    left.set(block.value, count - 1);
    if (block.value >= 0) (count > 0 ? both : only[0]).push(block);
  }
  for (const block of others) {
    if (block.value < 0) continue;
    const count = left.get(block.value);
    if (count > 0) only[1].push(block);
    left.set(block.value, count - 1);
  }
  const spaces = [own, others].map((blocks) => blocks.find(({ value }) => value < 0));
  const common = Math.min(...spaces.map((space) => space?.amount ?? 0));
  spaces.forEach((space, side) => {
    if (space && space.amount > common) only[side].push({ ...space, amount: space.amount - common });
  });
  return { both, only, shared: amountOf(both) + common };
}

/** How much some blocks are. */
export function amountOf(blocks) {
  return blocks.reduce((sum, { amount }) => sum + amount, 0);
}

/** When a trace begins to hold each of the values of a view's cells, and when it no longer does; of
 * cells without memory of their own, when their values are resident.
 * @returns {{values: Int32Array, signs: Int8Array, first: Int32Array, order: Int32Array}} those of
 *     step s are order[first[s]..first[s+1]]
 */
function changesOf(model, home, isHeavy) {
  const [values, steps, signs] = [new Column(), new Column(), new Column(Int8Array)];
  const note = (value, step, sign) => {
    if (step >= model.count) return; // it stays to the end
    values.push(value);
    steps.push(step);
    signs.push(sign);
  };
  const notes = (value, begin, end) => {
    note(value, begin, 1);
    note(value, end, -1);
  };
  const blocks = blocksOf(model);
  blocks.values.forEach((value, i) => isHeavy[home[value]] && notes(value, blocks.begins[i], blocks.ends[i]));
  const { first, begins, ends } = model.spans;
  for (let value = 0; value < home.length; value++) {
    if (home[value] < 0 || isHeavy[home[value]]) continue;
    for (let i = first[value]; i < first[value + 1]; i++) notes(value, begins[i], ends[i]);
  }
  return { values: values.done(), signs: signs.done(), ...grouped(model.count, steps.done()) };
}

/** Whether each cell of a view has memory of its own. */
export function heavyCells(graph, home, cells) {
  const isHeavy = new Uint8Array(cells);
  home.forEach((cell, value) => cell >= 0 && graph.data.nbytes[value] > 0 && (isHeavy[cell] = 1));
  return isHeavy;
}

/** What every cell of a view holds along an axis: in both traces, in the first alone, in the other
 * alone. Records of cell c are first[c]..first[c+1], each from its place on.
 * @param {Pair} pair @param {Axis} axis @param {number} index of the view
 */
export function differencesAlong(pair, axis, index) {
  const key = `${axis} ${index}`;
  const places = [pair.a, pair.b].map((model) => placesOf(model, axis));
  const known = pair.sweeps.get(key);
  // Places are others where others are compared.
  if (known?.along.every((own, side) => own === places[side])) return known;
  const found = { ...sweep(pair, places, index), along: places };
  pair.sweeps.set(key, found);
  return found;
}

function sweep({ a, b }, places, index) {
  const { graph } = a;
  const view = graph.views[index];
  const cells = view.labels.length;
  const home = homes(graph.data.names.length, view.data);
  const isHeavy = heavyCells(graph, home, cells);
  const { sizes } = graph.data;
  const changes = [a, b].map((model) => changesOf(model, home, isHeavy));
  const held = [a, b].map(() => new Int32Array(home.length));
  const sums = [0, 1, 2].map(() => new Float64Array(cells)); // in both, in one, in the other
  const most = new Float64Array(cells);
  const last = new Int32Array(cells).fill(-1);
  const [cellOf, at] = [new Column(), new Column(Float64Array)];
  const columns = sums.map(() => new Column(Float64Array));

  const take = (side, step) => {
    const { values, signs, first, order } = changes[side];
    const place = places[side][step];
    for (let i = first[step]; i < first[step + 1]; i++) {
      const value = values[order[i]];
      const cell = home[value];
      const weight = isHeavy[cell] ? sizes[value] / a.unit : 1;
      const count = (sign) => {
        const [one, other] = [held[0][value], held[1][value]];
        const common = Math.min(one, other);
        sums[0][cell] += sign * weight * common;
        sums[1][cell] += sign * weight * (one - common);
        sums[2][cell] += sign * weight * (other - common);
      };
      count(-1);
      held[side][value] += signs[order[i]];
      count(1);
      record(cell, place);
    }
  };
  const record = (cell, place) => {
    let i = last[cell];
    // Intervals of no width on the axis are not visible.
    if (i < 0 || at.items[i] !== place) {
      i = last[cell] = cellOf.push(cell);
      at.push(place);
      for (const column of columns) column.push(0);
    }
    columns.forEach((column, k) => (column.items[i] = sums[k][cell]));
  };
  for (let i = 0, k = 0; i < a.count || k < b.count; ) {
    if (k >= b.count || (i < a.count && places[0][i] <= places[1][k])) take(0, i++);
    else take(1, k++);
  }
  const { first, order } = grouped(cells, cellOf.done());
  const [both, onlyA, onlyB] = columns.map((column) => taken(column, order));
  order.forEach((i) => {
    const [common, one, other] = columns.map(({ items }) => items[i]);
    const cell = cellOf.items[i];
    most[cell] = Math.max(most[cell], common + Math.max(one, other));
  });
  return { first, places: taken(at, order), both, onlyA, onlyB, most, isHeavy };
}
