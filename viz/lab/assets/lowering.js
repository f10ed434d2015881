/**
 * Lowering in the browser: an order of evaluations to steps, and a set of saved values to an order.
 *
 * The same as ``tinyckpt.core.lowering.from_order`` and ``tinyckpt.core.cuts.retaining_order``, to
 * the step, on the page's graph and ``graph.planning``: operators that may not be evaluated twice,
 * operators that update a source. No DOM here.
 *
 * @typedef {{verbs: Int32Array, targets: Int32Array}} Steps
 */

import { COMPUTE, FREE } from "../../player/assets/allocation.js";
import { listAt } from "../../player/assets/columns.js";

/**
 * @import { Graph } from "../../player/assets/data.js"
 */

/** The order that saves some forward values and recomputes all others once, at their first read in the
 * backward pass.
 * @param {Graph} graph @param {Iterable<number>} keep data ids @returns {number[]} operators
 */
export function retainingOrder(graph, keep) {
  const { data, operators, forward_count: forward } = graph;
  const count = operators.names.length;
  const order = Array.from({ length: forward }, (_, i) => i);
  if (!forward || forward === count) return Array.from({ length: count }, (_, i) => i);
  const resident = Uint8Array.from(data.producers, (p) => Number(p < 0 || p >= forward));
  for (const value of graph.data.results) resident[value] = 1;
  const pinned = Array.from(graph.planning.once, (i) => Array.from(listAt(operators.outputs, i))).flat();
  // A view holds the memory of what it is a view of, so that both are there.
  for (let value of [...keep, ...pinned]) for (; value >= 0; value = data.bases[value]) resident[value] = 1;
  let evaluated = forward - 1;
  for (let target = forward; target < count; target++) {
    const atHand = new Set([...listAt(operators.inputs, evaluated), ...listAt(operators.outputs, evaluated)]);
    const wanted = Array.from(listAt(operators.inputs, target)).filter((value) => !atHand.has(value));
    for (const operator of producersOf(graph, wanted, resident)) {
      order.push(operator);
      for (const value of listAt(operators.outputs, operator)) resident[value] = 1;
    }
    order.push(target);
    evaluated = target;
  }
  return order;
}

/** The operators that compute some values from resident ones, in order.
 * @param {Graph} graph @param {number[]} wanted @param {Uint8Array} resident
 */
export function producersOf(graph, wanted, resident) {
  const needed = new Set();
  const todo = [...wanted];
  while (todo.length) {
    const value = todo.pop();
    const producer = graph.data.producers[value];
    if (producer < 0 || resident[value] || needed.has(producer)) continue;
    needed.add(producer);
    todo.push(...listAt(graph.operators.inputs, producer));
  }
  return [...needed].sort((a, b) => a - b);
}

/** The order without second evaluations of operators that may be evaluated only once.
 * @param {Graph} graph @param {ArrayLike<number>} order @returns {number[]}
 */
function withoutRepeats(graph, order) {
  const once = new Set(graph.planning.once);
  const done = new Set();
  return Array.from(order).filter((i) => !once.has(i) || (!done.has(i) && done.add(i)));
}

/** The order as it is carried out: nothing twice that may not be, and updates last.
 * @param {Graph} graph @param {ArrayLike<number>} order @returns {number[]}
 */
function settledOrder(graph, order) {
  const positions = withoutRepeats(graph, order);
  return graph.planning.updates.length ? new Updates(graph).last(positions) : positions;
}

/** The steps of an order: each evaluation, then frees of values after their last use (liveness).
 * @param {Graph} graph @param {ArrayLike<number>} order of operators @returns {Steps}
 */
export function loweredSteps(graph, order) {
  const { operators, data } = graph;
  const positions = settledOrder(graph, order);
  const wanted = new Uint8Array(data.names.length);
  for (const value of data.results) wanted[value] = 1;
  const freed = [];
  let count = positions.length;
  // Backwards from the end: a value without a later reader is freed after the evaluation.
  for (let at = positions.length - 1; at >= 0; at--) {
    const ends = new Set();
    for (const value of listAt(operators.outputs, positions[at])) {
      if (!wanted[value]) ends.add(value);
      wanted[value] = 0;
    }
    for (const value of listAt(operators.inputs, positions[at])) {
      if (data.producers[value] < 0 || wanted[value]) continue;
      ends.add(value);
      wanted[value] = 1;
    }
    freed[at] = Array.from(ends).sort((a, b) => a - b);
    count += ends.size;
  }
  const steps = { verbs: new Int32Array(count), targets: new Int32Array(count) };
  let place = 0;
  const add = (verb, target) => {
    steps.verbs[place] = verb;
    steps.targets[place++] = target;
  };
  positions.forEach((operator, at) => {
    add(COMPUTE, operator);
    for (const value of freed[at]) add(FREE, value);
  });
  return steps;
}

/** The forward values that an order computes once and saves; none where nothing is recomputed.
 * @param {Graph} graph @param {ArrayLike<number>} order @returns {{kept: number[], checkpoints: number[]}}
 * The checkpoints are those of them that others are recomputed from.
 */
export function keptValues(graph, order) {
  const { operators, data, forward_count: forward } = graph;
  const positions = withoutRepeats(graph, order);
  if (new Set(positions).size === positions.length) return { kept: [], checkpoints: [] };
  const turn = positions.findIndex((i) => i >= forward);
  const outputs = new Set(data.results);
  const times = new Int32Array(data.names.length);
  const early = new Uint8Array(data.names.length); // made before the turn
  const late = new Uint8Array(data.names.length); // and read from there on
  const again = new Set(); // read by a recomputation
  const seen = new Set();
  positions.forEach((operator, at) => {
    for (const value of listAt(operators.inputs, operator)) {
      if (at >= turn) late[value] = 1;
      if (seen.has(operator)) again.add(value);
    }
    seen.add(operator);
    for (const value of listAt(operators.outputs, operator)) {
      times[value]++;
      if (at < turn) early[value] = 1;
    }
  });
  const kept = [];
  for (let value = 0; value < times.length; value++) {
    if (times[value] === 1 && early[value] && late[value] && !outputs.has(value)) kept.push(value);
  }
  return { kept, checkpoints: kept.filter((value) => again.has(value)) };
}

/** Operators that update a source, and readers of its old value; see planner/model/update_order. */
class Updates {
  constructor(graph) {
    const { operators } = graph;
    this.graph = graph;
    this.source = new Map(Array.from(graph.planning.updates, (i) => [i, listAt(operators.inputs, i)[0]]));
    const updated = new Set(this.source.values());
    this.reads = new Map(); // by operator, the sources that it reads as they were
    for (let i = 0; i < operators.names.length; i++) {
      const shown = new Set(Array.from(listAt(operators.inputs, i), (value) => this.oldSource(value)));
      const old = [...shown].filter((source) => updated.has(source) && this.source.get(i) !== source);
      if (old.length) this.reads.set(i, old);
    }
  }

  /** The source whose memory a value shows as the caller gave it; -1 if it shows none. @param {number} value */
  oldSource(value) {
    const { bases, producers } = this.graph.data;
    for (; bases[value] >= 0; value = bases[value]) if (this.source.has(producers[value])) return -1;
    return producers[value] < 0 ? value : -1;
  }

  /** The order with each update after the last evaluation that reads the old value; what reads the
   * result of one that has to wait, waits with it. @param {number[]} order
   */
  last(order) {
    if (!this.isEarly(order)) return order;
    this.awaited = new Map(Array.from(this.source.values(), (source) => [source, 0]));
    for (const i of order) {
      for (const source of this.reads.get(i) ?? []) this.awaited.set(source, this.awaited.get(source) + 1);
    }
    this.done = [];
    this.waiting = [];
    for (const i of order) {
      this.waiting.push(i);
      let freed = this.settle(this.waiting.length - 1);
      while (freed) freed = this.settle(0);
    }
    return [...this.done, ...this.waiting];
  }

  /** Whether an update comes before a reader of the old value. */
  isEarly(order) {
    const last = new Map(order.map((i, at) => [i, at]));
    const ends = new Map();
    for (const [reader, sources] of this.reads) {
      for (const source of sources) ends.set(source, Math.max(ends.get(source) ?? -1, last.get(reader) ?? -1));
    }
    return [...this.source].some(([update, source]) => (last.get(update) ?? -1) < (ends.get(source) ?? -1));
  }

  /** Emit the operators that no longer have to wait. @returns {boolean} whether an old value was read for the last time */
  settle(first) {
    const { operators } = this.graph;
    const still = this.waiting.slice(0, first);
    const withheld = new Set(still.flatMap((i) => Array.from(listAt(operators.outputs, i))));
    let freed = false;
    for (const i of this.waiting.slice(first)) {
      const waits = Array.from(listAt(operators.inputs, i)).some((value) => withheld.has(value));
      if (waits || this.awaited.get(this.source.get(i))) {
        still.push(i);
        for (const value of listAt(operators.outputs, i)) withheld.add(value);
        continue;
      }
      this.done.push(i);
      for (const source of this.reads.get(i) ?? []) {
        const left = this.awaited.get(source) - 1;
        this.awaited.set(source, left);
        freed ||= left === 0;
      }
    }
    this.waiting = still;
    return freed;
  }
}
