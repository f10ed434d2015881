/**
 * Horizontal time axis shared by all charts of a page: position of every step, and the visible
 * range.
 *
 * Step s extends from places[s] to places[s + 1]: of equal width, or of the width of its
 * evaluation, in evaluations, FLOPs or time, where a free has no width. On the progress axis of
 * several traces, a step includes the wait after it.
 *
 * @typedef {"step" | "evaluation" | "FLOPs" | "time" | "progress"} Axis
 *
 * @typedef {object} Scales what all charts of a page share
 * @property {Axis} align
 * @property {boolean} lively whether what happens is animated
 * @property {number} ticks
 * @property {number} tick
 * @property {number} highest amount of memory
 * @property {number | null} host the most memory on the host, where values go there
 * @property {boolean} several
 * @property {string} front ledger or graph
 * @property {Extent} extent
 * @property {(ledger: any) => void} drawn called with every ledger that was drawn anew
 * @property {string} kind of the vertical axis
 * @property {number} broken where a vertical axis is broken; 0 for nowhere
 * @property {number} least the smallest amount of a block
 * @property {number} buffer the largest of all buffers, where memory is shown by address
 * @property {boolean} single whether each row is as high as one can read and touch
 * @property {(model: Model) => Float64Array | null} ghostOf what is drawn behind a policy's memory, by step
 * @property {(name: string, amount: number) => boolean} isMarked whether memory has a line at an amount of this name
 * @property {boolean} moving whether something is played or dragged: what is out of sight waits
 * @property {() => void} stacked called whenever memory was drawn anew
 * @property {number} large how many times as large as usual letters are
 */

import { COMPUTE } from "./allocation.js";
import { areComparable } from "./progress.js";
import { lastAtMost } from "./state.js";

/**
 * @import { Model } from "./data.js"
 */

const AXES = /** @type {Axis[]} */ (["step", "evaluation", "FLOPs", "time", "progress"]);
export const COUNTED = ["step", "evaluation", "progress"]; // whose ticks are of one width

/** The axes that are possible for some traces. @param {Model[]} models @returns {Axis[]} */
export function axesOf(models) {
  const known = {
    FLOPs: (model) => total(model, "FLOPs") > 0,
    time: (model) => Boolean(model.times),
    progress: () => models.length > 1 && areComparable(models),
  };
  return AXES.filter((axis) => models.every(known[axis] ?? (() => true)));
}

/** Where a whole trace ends. @param {Model} model @param {Axis} axis */
export function total(model, axis) {
  return placesOf(model, axis)[model.count];
}

/** Where every step of a trace begins, and at last where the trace ends.
 * @param {Model} model @param {Axis} axis @returns {Float64Array}
 */
export function placesOf(model, axis) {
  if (!model.places.has(axis)) model.places.set(axis, placesAlong(model, axis));
  return model.places.get(axis);
}

/** @param {Model} model @param {Axis} axis */
function placesAlong(model, axis) {
  const { count, verbs, targets } = model;
  const { flops } = model.graph.operators;
  const places = new Float64Array(count + 1);
  let at = 0;
  for (let step = 0; step < count; step++) {
    const evaluates = verbs[step] === COMPUTE;
    // An evaluation that waits begins when it no longer does.
    if (evaluates && axis === "time") at = Math.max(at, model.times.begin[step]);
    places[step] = at;
    if (axis === "step") at++;
    else if (axis === "evaluation") at += Number(evaluates);
    else if (axis === "FLOPs") at += evaluates ? flops[targets[step]] : 0;
    else if (evaluates) at = Math.max(at, model.times.end[step]);
  }
  places[count] = axis === "time" ? Math.max(at, model.times.makespan) : at;
  return places;
}

/** The position of a trace's cursor: the end of its step, or the position of the traces it waits for.
 * @param {Model} model @param {{extent: Extent, tick: number}} scales @param {number} step
 */
export function presentOf(model, { extent: { axis }, tick }, step) {
  return axis === "progress" ? Math.min(tick + 1, total(model, axis)) : placesOf(model, axis)[step + 1];
}

/** The part of the axis that is in sight: all that shows time shows this one. */
export class Extent {
  constructor() {
    this.axis = /** @type {Axis} */ ("step");
    this.whole = 1;
    this.from = 0;
    this.to = 1;
    this.watchers = [];
  }

  /** Call when the visible range changes. @param {() => void} watcher */
  watch(watcher) {
    this.watchers.push(watcher);
  }

  /** Whether all is in sight. */
  get isWhole() {
    return this.from <= 0 && this.to >= this.whole;
  }

  /** Take on some traces along an axis: show all of them, or the same part as before. What is shown
   * is drawn anew by whoever calls this.
   * @param {Model[]} models @param {Axis} axis
   */
  fit(models, axis) {
    const { isWhole, from, to } = this;
    const steps = isWhole || axis === this.axis ? null : [from, to].map((place) => this.stepAt(models[0], place));
    this.axis = axis;
    this.whole = Math.max(...models.map((model) => total(model, axis)), 1);
    if (isWhole) this.go(0, this.whole);
    else {
      const [begin, end] = steps ? steps.map((step) => placesOf(models[0], axis)[step]) : [from, to];
      this.go(begin, end);
    }
  }

  /** Show a part. @param {number} from @param {number} to */
  set(from, to) {
    this.go(from, to);
    for (const watcher of this.watchers) watcher();
  }

  /** Be at a part; it stays within the whole. @param {number} from @param {number} to */
  go(from, to) {
    const width = Math.min(Math.max(to - from, this.whole * 1e-7), this.whole);
    this.from = Math.min(Math.max(from, 0), this.whole - width);
    this.to = this.from + width;
  }

  /** Where a place is, in pixels of a width. @param {number} place @param {number} width */
  pixel(place, width) {
    return Math.round((place - this.from) * this.scale(width));
  }

  /** How many pixels of a width are a unit of the axis. @param {number} width */
  scale(width) {
    return width / (this.to - this.from);
  }

  /** The place at a pixel. */
  place(pixel, width) {
    return this.from + (pixel / width) * (this.to - this.from);
  }

  /** The step at a place; of those without width, the last. @param {Model} model */
  stepAt(model, place) {
    return Math.min(lastAtMost(placesOf(model, this.axis), place), model.count - 1);
  }
}

/** The step that every column of pixels shows: of those in it, the one with the most live memory,
 * a moment that was; -1 where the trace has ended.
 * @param {Model} model @param {Extent} extent @param {number} width in pixels
 */
export function stepOfColumn(model, extent, width) {
  const places = placesOf(model, extent.axis);
  const shown = new Int32Array(width).fill(-1);
  const end = places[model.count];
  let step = Math.max(0, lastAtMost(places, extent.from));
  for (let x = 0; x < width; x++) {
    const [begin, after] = [extent.place(x, width), extent.place(x + 1, width)];
    if (begin >= end) break;
    while (step + 1 < model.count && places[step + 1] <= begin) step++;
    let best = step;
    for (let s = step + 1; s < model.count && places[s] < after; s++) {
      if (model.live[s] > model.live[best]) best = s;
    }
    shown[x] = best;
  }
  return shown;
}

/** From the lowest step that columns show, the first column of each step or of one after it.
 * @param {Int32Array} shown the step of every column
 */
export function firstColumns(shown) {
  const [lowest, highest] = [shown[0] ?? 0, shown[shown.length - 1] ?? -1];
  const first = new Int32Array(highest - lowest + 1);
  for (let step = lowest, x = 0; step <= highest; step++) {
    while (shown[x] < step) x++;
    first[step - lowest] = x;
  }
  return first;
}
