/**
 * Model of a replayed pipeline: action and memory of each device at any time, and what a block
 * waits for.
 */

import { countText, sizeText } from "./format.js";

const NAMES = ["forward", "recomputation", "backward", "backward of inputs", "backward of weights", "update"];
export const [FORWARD, RECOMPUTE, BACKWARD, INPUTS, WEIGHTS, UPDATE] = NAMES.keys();
export const NOTHING = -1;

/**
 * The data of a schedule, as ``viz/player/pipelines.py`` writes it: columns have an entry per block,
 * those of a device after each other.
 *
 * @typedef {object} PipelineData
 * @property {string} title_text
 * @property {string} subtitle
 * @property {string} measure the unit of time
 * @property {string} bubble
 * @property {boolean} counts whether memory is counted in activations, not bytes
 * @property {boolean} folded
 * @property {number} makespan
 * @property {number} way how long a message takes
 * @property {number} stages
 * @property {number} depth stages of one replica
 * @property {number} micro_batches
 * @property {number} rows of a lane
 * @property {number[][]} stages_of by device
 * @property {number[]} device_of by stage
 * @property {number[]} peaks by device
 * @property {string[]} idle by device
 * @property {number[]} moments that begin, end and ready refer to
 * @property {Int32Array} first blocks of device d are first[d]..first[d+1]
 * @property {Int32Array} kind
 * @property {Int32Array} stage
 * @property {Int32Array} micro_batch
 * @property {ArrayLike<number>} begin
 * @property {ArrayLike<number>} end
 * @property {ArrayLike<number>} ready when its inputs were there; -1 if it has none
 * @property {Int32Array} by_message whether it was a message that it waited for
 * @property {Float64Array} during memory while it runs
 * @property {Float64Array} after memory after it
 */
const Data = /** @type {new () => PipelineData} */ (/** @type {any} */ (Object));

export class PipelineModel extends Data {
  /** @param {PipelineData} data unpacked @param {number} id */
  constructor(data, id) {
    super();
    Object.assign(this, data);
    this.id = id;
    this.devices = this.first.length - 1;
    const times = (places) => Float64Array.from(places, (place) => (place < 0 ? NaN : this.moments[place]));
    this.begin = times(data.begin);
    this.end = times(data.end);
    this.ready = times(data.ready);
    this.peakTexts = Array.from(this.peaks, (peak) => `peak ${this.counts ? countText(peak) : sizeText(peak)}`);
    this.device = new Int32Array(this.kind.length);
    this.highest = new Float64Array(this.kind.length); // on its device, up to the block
    for (let device = 0; device < this.devices; device++) {
      let most = 0;
      for (let i = this.first[device]; i < this.first[device + 1]; i++) {
        this.device[i] = device;
        most = this.highest[i] = Math.max(most, this.during[i], this.after[i]);
      }
    }
  }

  /** The last block of a device that has begun at a time; NOTHING before the first. */
  blockAt(device, time) {
    let [low, high] = [this.first[device], this.first[device + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.begin[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low > this.first[device] ? low - 1 : NOTHING;
  }

  /** The block that a device is busy with at a time; NOTHING if it is idle. */
  runningAt(device, time) {
    const block = this.blockAt(device, time);
    return block !== NOTHING && time < this.end[block] ? block : NOTHING;
  }

  heldAt(device, time) {
    const block = this.blockAt(device, time);
    if (block === NOTHING) return 0;
    return time < this.end[block] ? this.during[block] : this.after[block];
  }

  /** The highest memory of any device up to a time. */
  peakAt(time) {
    let most = 0;
    for (let device = 0; device < this.devices; device++) {
      const block = this.blockAt(device, time);
      if (block === NOTHING) continue;
      const before = block > this.first[device] ? this.highest[block - 1] : 0;
      most = Math.max(most, before, time < this.end[block] ? this.during[block] : this.highest[block]);
    }
    return most;
  }

  /** Which share of the devices' time up to a time was idle. */
  idleAt(time) {
    if (!time) return 0;
    let busy = 0;
    for (let device = 0; device < this.devices; device++) {
      const block = this.blockAt(device, time);
      if (block !== NOTHING)
        busy += this.busyBefore(device, block) + Math.min(time, this.end[block]) - this.begin[block];
    }
    return Math.max(0, 1 - busy / (this.devices * time));
  }

  /** How long a device has computed before a block. @param {number} device @param {number} block */
  busyBefore(device, block) {
    if (!this.spent) {
      this.spent = new Float64Array(this.kind.length);
      for (let i = 1; i < this.kind.length; i++) {
        const sum = this.spent[i - 1] + this.end[i - 1] - this.begin[i - 1];
        this.spent[i] = this.device[i] === this.device[i - 1] ? sum : 0;
      }
    }
    return this.spent[block];
  }

  /** When the highest peak is reached first. */
  get peakTime() {
    let [most, time] = [-1, 0];
    for (let i = 0; i < this.kind.length; i++) {
      if (this.during[i] > most || (this.during[i] === most && this.begin[i] < time))
        [most, time] = [this.during[i], this.begin[i]];
      if (this.after[i] > most) [most, time] = [this.after[i], this.end[i]];
    }
    return time;
  }

  /** The blocks of the same micro-batch: of one replica, since each has its own. @param {number} block */
  alike(block) {
    if (this.kind[block] === UPDATE) return [];
    const replica = (i) => Math.floor(this.stage[i] / this.depth);
    const found = [];
    this.micro_batch.forEach((other, i) => {
      if (other === this.micro_batch[block] && replica(i) === replica(block) && this.kind[i] !== UPDATE) found.push(i);
    });
    return found;
  }

  heldText(amount) {
    if (!this.counts) return sizeText(amount);
    return `${countText(amount)} ${this.folded ? "by stage" : "in flight"}`;
  }

  timeText(time) {
    const number = Number.isInteger(time) ? countText(time) : String(Number(time.toPrecision(6)));
    return this.measure ? `${number} ${this.measure}` : number;
  }

  /** A short description of a block. @param {number} block */
  title(block) {
    const [kind, stage] = [this.kind[block], this.stage[block]];
    const of = this.stages > this.devices ? `, stage ${stage}` : "";
    if (kind === UPDATE) return `update of stage ${stage}`;
    return `${NAMES[kind]} of micro-batch ${countText(this.micro_batch[block])}${of}`;
  }

  /** The inputs of a block, and the devices that computed them. @param {number} block */
  needs(block) {
    const [kind, stage] = [this.kind[block], this.stage[block]];
    if (this.by_message[block]) return "what its device receives before it";
    const from = (other) =>
      this.device_of[other] === this.device[block] ? "on this device" : `from device ${this.device_of[other]}`;
    if (kind === FORWARD) return stage % this.depth ? `the forward of stage ${stage - 1}, ${from(stage - 1)}` : "";
    if (kind === RECOMPUTE) return "its forward, on this device";
    if (kind === WEIGHTS) return "its backward of inputs, on this device";
    if (kind === UPDATE) return "all backwards of its stage, on this device";
    if ((stage + 1) % this.depth === 0) return "its forward, on this device";
    return `the backward of stage ${stage + 1}, ${from(stage + 1)}`;
  }

  /** The reason of a block's wait, as a sentence. @param {number} block */
  waits(block) {
    const needs = this.needs(block);
    const device = this.device[block];
    const free = block > this.first[device] ? this.end[block - 1] : 0;
    if (!needs) return free ? `for nothing but its device, which was busy until ${this.timeText(free)}` : "for nothing";
    const ready = this.ready[block];
    if (Number.isNaN(ready)) return `for ${needs}`;
    const there = `for ${needs}: there at ${this.timeText(ready)}`;
    if (ready > free) return `${there}; the device was idle from ${this.timeText(free)}`;
    if (ready < free) return `${there}; the device was busy until ${this.timeText(free)}`;
    return `${there}, as the device was free`;
  }

  /** The facts about a block, as pairs of term and text. @param {number} block @returns {[string, string][]} */
  facts(block) {
    const length = this.end[block] - this.begin[block];
    /** @type {[string, string][]} */
    const facts = [
      ["device", countText(this.device[block])],
      ["stage", countText(this.stage[block])],
      ["begins", this.timeText(this.begin[block])],
      ["ends", `${this.timeText(this.end[block])}, after ${this.timeText(Number(length.toPrecision(12)))}`],
      ["device holds", `${this.heldText(this.during[block])} meanwhile, ${this.heldText(this.after[block])} after it`],
      ["waits", this.waits(block)],
    ];
    if (this.kind[block] !== UPDATE) facts.unshift(["micro-batch", countText(this.micro_batch[block])]);
    return facts;
  }

  /** The actions of all devices at a time, as a sentence. */
  words(time) {
    const each = [];
    for (let device = 0; device < Math.min(this.devices, 8); device++) {
      const block = this.runningAt(device, time);
      each.push(`device ${device} ${block === NOTHING ? "idle" : this.title(block)}`);
    }
    const rest = this.devices - each.length;
    return `${this.title_text}, time ${this.timeText(time)} of ${this.timeText(this.makespan)}: ${each.join("; ")}${rest > 0 ? `; and ${rest} more` : ""}.`;
  }
}
