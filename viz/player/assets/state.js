/**
 * State of every graph node (its look) at a step: pure functions of the data. No DOM here.
 *
 * One pass over the steps records the changes of every cell. The look at any step is found by
 * binary search, so that stepping back shows the same as stepping forward.
 *
 * A look is packed into one integer: the fill in the lowest three bits, the activity in the next
 * two, then the level in eighths (LEVELS) of a group's resident memory, in four bits, the kept part
 * of it where the rest is recomputed, in four, and the part in host memory.
 */

import { COMPUTE } from "./allocation.js";
import { Column, listAt } from "./columns.js";
import { hostedLevel, hostedShare } from "./host.js";
import { Memory } from "./memory.js";

/**
 * @import { Graph, Trace, View } from "./data.js"
 * @import { Lists } from "./columns.js"
 */

const FILLS = ["not yet", "dropped", "kept", "recomputed", "gradient", "on the host"];
const ACTIVITIES = ["", " computing", " recomputing"];
export const [NOT_YET, DROPPED, KEPT, RECOMPUTED, GRADIENT, ON_HOST] = FILLS.keys();
export const LEVELS = 8; // of a group's fill
const MOST_SINGLE_STEPS = 64; // beyond, it is cheaper to look at every cell

/** The text of a look. @param {number} look @param {boolean} ringed @returns {string} */
export function lookText(look, ringed) {
  const [fill, held, kept, hosted] = [FILLS[look & 7], (look >> 5) & 15, (look >> 9) & 15, look >> 13];
  let level = (held ? ` ${held}/${LEVELS}` : "") + (kept ? `, ${kept}/${LEVELS} kept` : "");
  if (hosted) level += (look & 7) === ON_HOST ? ` ${hosted}/${LEVELS}` : `, ${hosted}/${LEVELS} on the host`;
  return fill + level + (ringed ? "*" : "") + ACTIVITIES[(look >> 3) & 3];
}

/** The last position whose value is at most x; -1 if there is none.
 * @param {ArrayLike<number>} values ascending
 * @param {number} x
 * @param {number} [low] where to begin
 * @param {number} [high] where to end
 */
export function lastAtMost(values, x, low = 0, high = values.length) {
  const begin = low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low > begin ? low - 1 : -1;
}

/** Sort entries by key, those of a key in their order: a counting sort.
 * @param {number} count of keys
 * @param {ArrayLike<number>} keys one an entry
 * @returns {{first: Int32Array, order: Int32Array}} entries of key k: order[first[k]..first[k+1]]
 */
export function grouped(count, keys) {
  const first = new Int32Array(count + 1);
  for (let i = 0; i < keys.length; i++) first[keys[i] + 1]++;
  for (let k = 0; k < count; k++) first[k + 1] += first[k];
  const next = first.slice();
  const order = new Int32Array(keys.length);
  for (let i = 0; i < keys.length; i++) order[next[keys[i]]++] = i;
  return { first, order };
}

/** For every node of a list of lists, which list it is in; -1 where in none.
 * @param {number} count of nodes @param {Lists} lists
 */
export function homes(count, lists) {
  const home = new Int32Array(count).fill(-1);
  for (let i = 0; i + 1 < lists.first.length; i++) for (const node of listAt(lists, i)) home[node] = i;
  return home;
}

/**
 * The changes of every cell of a view over a trace.
 *
 * @typedef {object} History
 * @property {Int32Array} first changes of cell c are first[c]..first[c+1]
 * @property {Int32Array} steps when; -1 for how it begins
 * @property {Uint32Array} looks what it looks like from then on
 * @property {Float64Array} shares which part of its memory is held from then on, 0 to 1
 * @property {Float64Array} keeps which part was kept, where the rest of what is held is recomputed; of
 *     gradients, which part stays to the end
 * @property {Float64Array} waits which part is on the host
 * @property {Uint8Array} ringed per cell, whether it holds a checkpoint; of a group, whether one leaves it
 * @property {{steps: Int32Array, cells: Int32Array}} touched which cells change when, in order
 * @property {any} [bars] of the ledger, when they are first drawn
 *
 * @param {Trace} trace @param {Graph} graph @param {View} view
 * @returns {History}
 */
export function historyOf(trace, graph, view) {
  const cells = view.labels.length;
  const cellOfOperator = homes(graph.operators.names.length, view.operators);
  const touched = new Touched(cells);
  const memory = new Memory(graph, view, touched);
  const evaluated = new Uint8Array(cells);
  const [cellOf, at, looks] = [new Column(), new Column(), new Column(Uint32Array)];
  const [amounts, keeps, waits] = [1, 2, 3].map(() => new Column(Float64Array));
  const last = new Int32Array(cells).fill(-1);
  let active = -1;
  let again = false;

  const note = (cell, step) => {
    if (cell < 0) return;
    let fill = memory.waiting[cell] ? ON_HOST : evaluated[cell] ? DROPPED : NOT_YET;
    if (memory.values[cell] || (view.groups[cell] && memory.bytes[cell])) {
      fill = view.backward[cell] ? GRADIENT : memory.isRecomputed(cell, view.groups[cell]) ? RECOMPUTED : KEPT;
    }
    const activity = active === cell ? (again ? 2 : 1) : 0;
    const level = view.groups[cell] ? memory.level(cell) : 0;
    const kept = fill === RECOMPUTED ? memory.keptLevel(cell, level) : 0;
    const wait = memory.waiting[cell] ? hostedShare(memory, cell) : 0;
    const hosted = memory.waiting[cell] && view.groups[cell] ? hostedLevel(wait) : 0;
    const look = fill | (activity << 3) | (level << 5) | (kept << 9) | (hosted << 13);
    const share = memory.share(cell);
    const keep = fill === GRADIENT ? memory.stayingShare(cell, view.groups[cell]) : kept ? memory.keptShare(cell) : 0;
    const before = last[cell];
    const same = before >= 0 && looks.items[before] === look && amounts.items[before] === share;
    if (same && keeps.items[before] === keep && waits.items[before] === wait) return;
    last[cell] = cellOf.push(cell);
    at.push(step);
    looks.push(look);
    amounts.push(share);
    keeps.push(keep);
    waits.push(wait);
  };

  for (let cell = 0; cell < cells; cell++) note(cell, -1);
  for (let step = 0; step < trace.verbs.length; step++) {
    const [verb, target] = [trace.verbs[step], trace.targets[step]];
    touched.clear();
    touched.add(active);
    active = verb === COMPUTE ? cellOfOperator[target] : -1;
    touched.add(active);
    if (active >= 0) evaluated[active] = 1;
    memory.take(verb, target, trace.over?.[step]);
    again = verb === COMPUTE && memory.times[target] > 1;
    for (let i = 0; i < touched.count; i++) note(touched.cells[i], step);
  }

  const { first, order } = grouped(cells, cellOf.done());
  return {
    first,
    steps: taken(at, order),
    looks: taken(looks, order),
    shares: taken(amounts, order),
    keeps: taken(keeps, order),
    waits: taken(waits, order),
    ringed: ringedCells(trace, graph, view, memory.home, cellOfOperator),
    touched: { steps: at.done(), cells: cellOf.done() },
  };
}

/** A column in another order. @param {Column} column @param {Int32Array} order */
export function taken({ items }, order) {
  const found = new items.constructor(order.length);
  for (let i = 0; i < order.length; i++) found[i] = items[order[i]];
  return found;
}

/** The cells that a step touches, each once. */
export class Touched {
  /** @param {number} cells how many there are */
  constructor(cells) {
    this.seen = new Int32Array(cells);
    this.cells = new Int32Array(cells);
    this.turn = 0;
    this.count = 0;
  }

  clear() {
    this.turn++;
    this.count = 0;
  }

  /** @param {number} cell -1 for none */
  add(cell) {
    if (cell < 0 || this.seen[cell] === this.turn) return;
    this.seen[cell] = this.turn;
    this.cells[this.count++] = cell;
  }
}

/** The cells that hold a checkpoint; for groups, those that a checkpoint leaves. */
function ringedCells(trace, graph, view, home, cellOfOperator) {
  const ringed = new Uint8Array(view.labels.length);
  const checkpoints = new Set(trace.checkpoints);
  for (const data of checkpoints) if (home[data] >= 0 && !view.groups[home[data]]) ringed[home[data]] = 1;
  for (let operator = 0; operator < graph.forward_count; operator++) {
    for (const data of listAt(graph.operators.inputs, operator)) {
      const cell = home[data];
      if (cell >= 0 && cellOfOperator[operator] !== cell && checkpoints.has(data)) ringed[cell] = 1;
    }
  }
  return ringed;
}

/** Where in a history a cell's state at a step is. @param {History} history */
export function changeAt(history, cell, step) {
  return lastAtMost(history.steps, step, history.first[cell], history.first[cell + 1]);
}

/** Whether all resident values of a cell are result gradients. @param {History} history @param {number} change */
export function isStaying({ looks, shares, keeps }, change) {
  return (looks[change] & 7) === GRADIENT && keeps[change] > 0 && keeps[change] >= shares[change];
}

/** The cells that may look different at two steps, or null for all of them.
 * @param {History} history @param {number} from @param {number} to
 */
export function changedBetween(history, from, to) {
  const { steps, cells } = history.touched;
  const low = Math.min(from, to);
  const high = Math.max(from, to);
  if (high - low > MOST_SINGLE_STEPS) return null;
  return new Set(cells.subarray(lastAtMost(steps, low) + 1, lastAtMost(steps, high) + 1));
}
