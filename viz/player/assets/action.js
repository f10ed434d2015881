/** Effects of a step: inputs of the evaluation, and the values freed last. No DOM here. */

import { COMPUTE, FREE } from "./allocation.js";
import { blocksOf } from "./blocks.js";
import { firstFree } from "./caption.js";
import { sizeText } from "./format.js";
import { isResident, stepOfTick, ticksOf } from "./model.js";
import { readAt } from "./reasons.js";
import { grouped, lastAtMost } from "./state.js";

/**
 * @import { Model } from "./data.js"
 * @import { Axis } from "./axis.js"
 */

export const MOST_LIT = 40; // inputs of one evaluation that are lit
const MOST_FREED = 400; // steps back in which somebody looks for what was freed

/** The live intervals of a step's inputs. @returns {{value: number, begin: number, end: number}[]} */
export function inputsAt(model, step) {
  if (step < 0 || model.verbs[step] !== COMPUTE) return [];
  const { first, begins, ends } = model.spans;
  return readAt(model, step)
    .slice(0, MOST_LIT)
    .flatMap((value) => {
      const at = lastAtMost(begins, step, first[value], first[value + 1]);
      return at < 0 ? [] : [{ value, begin: begins[at], end: ends[at] }];
    });
}

/** From where on a tick shows what is freed: all that its step frees, several in a row together; where
 * a tick is more than a step, since the tick before. @param {Axis} align
 */
export function freedSince(model, tick, align) {
  const step = stepOfTick(model, tick, align);
  if (step < 0 || tick >= ticksOf(model, align)) return step + 1;
  const since =
    align === "step"
      ? model.verbs[step] === FREE
        ? firstFree(model, step)
        : step + 1
      : stepOfTick(model, tick - 1, align) + 1;
  return Math.max(since, step + 1 - MOST_FREED);
}

/** The blocks of memory that end at each step. @param {Model} model */
function endingsOf(model) {
  model.blocks.endings ??= grouped(model.count + 1, blocksOf(model).ends);
  return model.blocks.endings;
}

/**
 * Frees of some steps, by cell: bytes, and the values with their live intervals.
 * A block is freed with the last value in it, in the cell of the value it was allocated for.
 * @param {Model} model @param {number} from the first step @param {number} to the last one
 * @param {Int32Array} homeOf the cell that a value is in
 * @returns {Map<number, {bytes: number, values: {value: number, begin: number, end: number}[]}>}
 */
export function freedBetween(model, from, to, homeOf) {
  const found = new Map();
  const at = (value) => {
    const cell = homeOf[value];
    if (cell >= 0 && !found.has(cell)) found.set(cell, { bytes: 0, values: [] });
    return found.get(cell);
  };
  const { first, begins, ends } = model.spans;
  for (let step = from; step <= to; step++) {
    if (model.verbs[step] !== FREE) continue;
    const value = model.targets[step];
    const span = lastAtMost(begins, step, first[value], first[value + 1]);
    if (span >= 0 && !isResident(model.spans, value, to))
      at(value)?.values.push({ value, begin: begins[span], end: ends[span] });
    const { first: ending, order } = endingsOf(model);
    const { values, amounts } = blocksOf(model);
    for (let i = ending[step]; i < ending[step + 1]; i++) {
      const there = at(values[order[i]]);
      if (there) there.bytes += amounts[order[i]] * model.unit;
    }
  }
  return found;
}

/** The label of a freed value: its bytes; empty for a view. @param {number} bytes */
export function ghostText(bytes) {
  return bytes ? `\u2212${sizeText(bytes)}` : "";
}
