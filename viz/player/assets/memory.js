/**
 * Incremental memory accounting per graph node (cell); the same as ``viz/node_memory.py``.
 *
 * A computed value allocates a block, and a view lies in that of its base; a block is live while
 * any value in it is resident. Counters are by cell of a view: resident values, recomputed values,
 * live bytes, and bytes allocated by recomputations.
 */

import { Allocation, stayingGradients } from "./allocation.js";
import { countOnHost } from "./host.js";
import { LEVELS, homes } from "./state.js";

/**
 * @import { Graph, View } from "./data.js"
 * @import { Touched } from "./state.js"
 */

export class Memory extends Allocation {
  /** @param {Graph} graph @param {View} view @param {Touched} touched gets the cells that a step may change */
  constructor(graph, view, touched) {
    super(graph);
    this.touched = touched;
    this.home = homes(graph.data.names.length, view.data);
    const cells = view.labels.length;
    this.values = new Int32Array(cells);
    this.recomputed = new Int32Array(cells);
    this.bytes = new Float64Array(cells);
    this.bytesAgain = new Float64Array(cells);
    this.bytesStaying = new Float64Array(cells); // of gradients that stay to the end
    this.stays = stayingGradients(graph);
    this.valuesStaying = new Int32Array(cells);
    this.allValues = new Int32Array(cells);
    this.allBytes = new Float64Array(cells);
    this.waiting = new Int32Array(cells); // values on the host
    this.waitingBytes = new Float64Array(cells);
    this.home.forEach((cell, data) => {
      if (cell < 0) return;
      this.allValues[cell]++;
      this.allBytes[cell] += this.data.nbytes[data];
    });
  }

  /** @param {number} data @param {number} now */
  become(data, now) {
    const before = this.resident[data];
    super.become(data, now);
    const cell = this.home[data];
    if (cell >= 0) {
      this.values[cell] += Number(now > 0) - Number(before > 0);
      this.recomputed[cell] += Number(now === 2) - Number(before === 2);
      if (this.stays[data]) this.valuesStaying[cell] += Number(now > 0) - Number(before > 0);
    }
    this.touched.add(cell);
    if (this.block[data] >= 0) this.touched.add(this.home[this.owner.items[this.block[data]]]);
  }

  /** @param {number} block @param {number} sign */
  count(block, sign) {
    const owner = this.owner.items[block];
    const cell = this.home[owner];
    if (cell < 0) return;
    const bytes = sign * this.data.sizes[owner];
    this.bytes[cell] += bytes;
    if (this.again.items[block]) this.bytesAgain[cell] += bytes;
    if (this.stays[owner]) this.bytesStaying[cell] += bytes;
  }

  /** @param {number} data @param {number} sign */
  move(data, sign) {
    countOnHost(this, data, sign);
  }

  /** Whether any resident memory of a cell is recomputed: bytes of a group, if it has any. */
  isRecomputed(cell, group) {
    return (group && this.bytes[cell] ? this.bytesAgain : this.recomputed)[cell] > 0;
  }

  /** The share of a cell's bytes that is resident and kept. @param {number} cell */
  keptShare(cell) {
    return Math.min((this.bytes[cell] - this.bytesAgain[cell]) / Math.max(this.allBytes[cell], 1), 1);
  }

  /** Which part of a group's bytes is of gradients that stay; of an operator, whether all its values are.
   * @param {number} cell @param {number} group
   */
  stayingShare(cell, group) {
    if (!group || !this.bytes[cell]) return Number(this.valuesStaying[cell] === this.values[cell]);
    return Math.min(this.bytesStaying[cell] / Math.max(this.allBytes[cell], 1), 1);
  }

  /** How many of a partly recomputed cell's resident parts were kept. */
  keptLevel(cell, level) {
    const share = this.keptShare(cell);
    return share > 0 && level ? Math.min(level - 1, Math.max(1, roundToEven(LEVELS * share))) : 0;
  }

  /** The resident share of a cell's bytes; of its values, where all are views. @param {number} cell */
  share(cell) {
    const total = this.allBytes[cell];
    return total ? Math.min(this.bytes[cell] / total, 1) : this.values[cell] / Math.max(this.allValues[cell], 1);
  }

  /** The level in LEVELS parts: 0 only if nothing is resident, LEVELS only if everything is. @param {number} cell */
  level(cell) {
    if (!this.values[cell] && !this.bytes[cell]) return 0;
    const share = this.share(cell);
    if (share === 1) return LEVELS;
    return Math.max(1, Math.min(LEVELS - 1, roundToEven(LEVELS * share)));
  }
}

/** The nearest integer; halves to the even one, as Python rounds. */
export function roundToEven(x) {
  const nearest = Math.round(x);
  return nearest - x === 0.5 && nearest % 2 ? nearest - 1 : nearest;
}
