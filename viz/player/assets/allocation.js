/**
 * Accounting of memory, the one place of it in JavaScript: the machine without arrays. After every
 * step it knows which values are resident, and in which blocks.
 *
 * A computed value allocates a block, and a view lies in that of its base; what comes back from the
 * host allocates one, a view too. A block is live while any value in it is resident. In place, a
 * block ends with the value that is overwritten, and another begins. The memory of sources is the
 * caller's. What counts something (bytes per graph node, blocks over time, bands of memory, or
 * whether a schedule is legal) extends this class, and is told what changes.
 */

import { Column } from "./columns.js";

/**
 * @import { Graph } from "./data.js"
 */

export const [COMPUTE, FREE, OFFLOAD, FETCH] = [0, 1, 2, 3];
export const VERBS = ["compute", "free", "offload", "fetch"];

/** The value whose memory a value's view is in, itself if it is no view. */
export function rootOf(data, value) {
  while (data.bases[value] >= 0) value = data.bases[value];
  return value;
}

/** By value, whether it is the memory of a gradient that stays to the end. @param {Graph} graph */
export function stayingGradients(graph) {
  if (graph.staying) return graph.staying;
  const { data, forward_count: forward } = graph;
  graph.staying = new Uint8Array(data.names.length);
  for (const value of data.results) {
    const root = rootOf(data, value);
    if (data.producers[root] >= forward) graph.staying[value] = graph.staying[root] = 1;
  }
  return graph.staying;
}

export class Allocation {
  /** @param {Graph} graph */
  constructor({ data, operators }) {
    this.data = data;
    this.operators = operators;
    this.times = new Int32Array(operators.names.length); // evaluations of each operator
    this.resident = new Uint8Array(data.names.length); // 2 for values that were recomputed
    this.block = new Int32Array(data.names.length).fill(-1); // a source's is not ours
    this.owner = new Column(); // by block, the value that it was allocated for
    this.again = new Column(Uint8Array); // by block, whether a recomputation allocated it
    this.holders = new Column(); // by block, resident values in it
  }

  /** Do a step.
   * @param {number} verb @param {number} target an operator, or a value
   * @param {number} over the value whose memory the result takes, in place, or -1
   */
  take(verb, target, over = -1) {
    if (verb === COMPUTE) {
      const again = this.times[target]++ > 0;
      const { first, items } = this.operators.outputs;
      for (let i = first[target]; i < first[target + 1]; i++) this.hold(items[i], again, false);
      if (over >= 0) {
        this.letGo(over);
        this.become(over, this.resident[over]); // still there by name, until it is freed
        this.block[over] = -1;
      }
    } else if (verb === FETCH) {
      this.hold(target, this.times[this.data.producers[target]] > 1, true);
      this.move(target, -1);
    } else {
      this.release(target);
      if (verb === OFFLOAD) this.move(target, 1);
    }
  }

  /** @param {number} value @param {boolean} again @param {boolean} fetched */
  hold(value, again, fetched) {
    if (!this.resident[value]) {
      const base = this.data.bases[value];
      this.block[value] = base < 0 || fetched ? this.allocate(value, again) : this.block[base];
      if (this.block[value] >= 0) this.holders.items[this.block[value]]++;
    }
    this.become(value, again ? 2 : 1);
  }

  /** @param {number} value */
  release(value) {
    if (this.resident[value]) this.letGo(value);
    this.become(value, 0);
  }

  /** The block of a value goes with the last one in it. @param {number} value */
  letGo(value) {
    const block = this.block[value];
    if (block >= 0 && --this.holders.items[block] === 0) this.count(block, -1);
  }

  /** @param {number} value @param {boolean} again @returns {number} the block */
  allocate(value, again) {
    this.holders.push(0);
    this.again.push(Number(again));
    const block = this.owner.push(value);
    this.count(block, 1);
    return block;
  }

  /** A value is resident from now on, or not. @param {number} value @param {number} now as in resident */
  become(value, now) {
    this.resident[value] = now;
  }

  /** A block is allocated, or freed. @param {number} block @param {number} sign 1 or -1 */
  count(block, sign) {}

  /** A value went to the host, or came back. @param {number} value @param {number} sign 1 or -1 */
  move(value, sign) {}
}
