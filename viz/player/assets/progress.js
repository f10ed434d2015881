/**
 * Progress axis: alignment of several traces of one graph (a longest common order of first
 * evaluations). At the first evaluation of each operator all traces are at one position. Before it
 * each repeats its recomputations: the room is that of the trace with the most, and the others wait
 * first.
 *
 * Where schedules start operators in different orders, the operators of one common order are
 * aligned: a longest one for two schedules; for three or more, one order common to all.
 */

import { COMPUTE } from "./allocation.js";
import { lastAtMost } from "./state.js";

/**
 * @import { Model } from "./data.js"
 */

/** Whether some traces have a graph in common. @param {Model[]} models */
export function areComparable(models) {
  return models.length > 1 && models.every(({ graph }) => graph === models[0].graph);
}

/** The first evaluation of an operator, as a position among all; -1 if there is none. */
function firstOf({ evaluatedAt: { first, order } }, operator) {
  return first[operator] < first[operator + 1] ? order[first[operator]] : -1;
}

/** The first evaluations that come in one order in all traces, as positions among those of each.
 * @param {Model[]} models @returns {number[][]} by trace
 */
function anchorsOf(models) {
  const [one, ...others] = models;
  let operators = Array.from(one.computes, (step) => one.targets[step]).filter((_, i) => !one.again[i]);
  for (const model of others) {
    const known = operators.filter((operator) => firstOf(model, operator) >= 0);
    operators = longestRising(known, (operator) => firstOf(model, operator));
  }
  return models.map((model) => operators.map((operator) => firstOf(model, operator)));
}

/** The longest part of a list, in its order, whose keys rise. @param {number[]} items @param {(item: number) => number} keyOf */
function longestRising(items, keyOf) {
  const keys = items.map(keyOf);
  const ends = []; // by length, the smallest last key of a part, and where that is
  const lasts = [];
  const before = new Int32Array(items.length).fill(-1);
  keys.forEach((key, i) => {
    const length = lastAtMost(ends, key) + 1;
    before[i] = length ? lasts[length - 1] : -1;
    [ends[length], lasts[length]] = [key, i];
  });
  const found = [];
  for (let i = lasts.length ? lasts.at(-1) : -1; i >= 0; i = before[i]) found.push(items[i]);
  return found.reverse();
}

/** Walk from first evaluation to first evaluation: for each part, where it begins and ends among the
 * evaluations of each trace, and whether it ends in one that all have.
 * @param {Model[]} models @param {(begins: number[], ends: number[], isClosed: boolean) => void} visit
 */
function eachPart(models, visit) {
  const anchors = anchorsOf(models);
  let begins = models.map(() => 0);
  for (let k = 0; k < anchors[0].length; k++) {
    const ends = anchors.map((own) => own[k] + 1);
    visit(begins, ends, true);
    begins = ends;
  }
  visit(
    begins,
    models.map(({ computes }) => computes.length),
    false,
  );
  return anchors[0].length;
}

/** Where every step of some traces stands along their progress, as ``placesOf`` has it.
 * @param {Model[]} models of one graph @returns {Float64Array[]} by trace
 */
export function placesByProgress(models) {
  const evaluated = models.map(({ computes }) => new Float64Array(computes.length));
  let at = 0;
  eachPart(models, (begins, ends, isClosed) => {
    const wide = Math.max(...ends.map((end, i) => end - begins[i]));
    evaluated.forEach((own, i) => {
      const waits = isClosed ? wide - (ends[i] - begins[i]) : 0;
      for (let k = begins[i]; k < ends[i]; k++) own[k] = at + waits + k - begins[i];
    });
    at += wide;
  });
  return models.map(({ count, verbs, evaluations }, i) => {
    const places = new Float64Array(count + 1);
    for (let step = 0, now = 0; step <= count; step++) {
      places[step] = now;
      if (step === count || verbs[step] !== COMPUTE) continue;
      places[step] = evaluated[i][evaluations[step] - 1];
      now = places[step] + 1;
    }
    return places;
  });
}

/** Of the evaluations of two traces, those that the other has none for: between the same two first
 * evaluations it does not evaluate that operator, or less often.
 * @returns {{only: Uint8Array[], anchors: number}} by trace and evaluation; and how many stand at one place
 */
export function onlyEvaluated(a, b) {
  const models = [a, b];
  const only = models.map(({ computes }) => new Uint8Array(computes.length));
  const left = new Int32Array(a.graph.operators.names.length);
  const operatorOf = (model, i) => model.targets[model.computes[i]];
  const anchors = eachPart(models, (begins, ends) => {
    for (let i = begins[1]; i < ends[1]; i++) left[operatorOf(b, i)]++;
    for (let i = begins[0]; i < ends[0]; i++) only[0][i] = Number(left[operatorOf(a, i)]-- <= 0);
    for (let i = begins[0]; i < ends[0]; i++) if (only[0][i]) left[operatorOf(a, i)]++;
    // What the first has not taken is the other's alone.
    for (let i = begins[1]; i < ends[1]; i++) {
      if (left[operatorOf(b, i)] <= 0) continue;
      only[1][i] = 1;
      left[operatorOf(b, i)]--;
    }
  });
  return { only, anchors };
}
