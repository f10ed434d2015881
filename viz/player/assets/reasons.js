/** Reasons why a value is live at a step, from the trace alone: its next reader. */

import { rootOf } from "./allocation.js";
import { AGAIN_BAND, BAND_NAMES, PASSING_BAND, STAYING_BAND } from "./blocks.js";
import { listAt } from "./columns.js";
import { countText, listed, shortLive } from "./format.js";
import { isAgain, isResident, targetName } from "./model.js";
import { grouped } from "./state.js";

/**
 * @import { Model } from "./data.js"
 */

const MOST_READERS = 2; // that are named
const GRADIENT_OF = "gradient of "; // begins the name of an operator of the backward pass

/** The readers of a block, views included, by the value it was allocated for.
 * @param {Model} model
 */
function readersOf(model) {
  if (model.readers.known) return model.readers.known;
  const { data, operators } = model.graph;
  const { first, items } = operators.inputs;
  const roots = items.map((value) => rootOf(data, value));
  const { first: begin, order } = grouped(data.names.length, roots);
  const reader = new Int32Array(items.length);
  for (let operator = 0; operator + 1 < first.length; operator++)
    reader.fill(operator, first[operator], first[operator + 1]);
  model.readers.known = { first: begin, operators: order.map((i) => reader[i]) };
  return model.readers.known;
}

/** The evaluations that read a block between two steps, in their order: the first of each operator,
 * or every one, up to some of each.
 * @param {number} [most] of each operator
 * @returns {{operator: number, step: number}[]}
 */
export function readsOf(model, value, after, before, most = 1) {
  const { first, operators } = readersOf(model);
  const root = rootOf(model.graph.data, value);
  const found = [];
  const { first: begin, order } = model.evaluatedAt;
  for (const operator of new Set(operators.subarray(first[root], first[root + 1]))) {
    const own = order.subarray(begin[operator], begin[operator + 1]);
    const next = firstAfter(model, own, after);
    for (let i = next; i < Math.min(own.length, next + most) && model.computes[own[i]] < before; i++) {
      found.push({ operator, step: model.computes[own[i]] });
    }
  }
  return found.sort((a, b) => a.step - b.step);
}

/** Where the first of some evaluations is that is after a step. */
export function firstAfter(model, evaluations, after) {
  let [low, high] = [0, evaluations.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (model.computes[evaluations[middle]] > after) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The values that a step's operator reads and the caller did not give. @param {Model} model @param {number} step */
export function readAt(model, step) {
  return readBy(model, model.targets[step]);
}

/** The values that an operator reads and the caller did not give, each once. */
export function readBy(model, operator) {
  const { data, operators } = model.graph;
  return [...new Set(listAt(operators.inputs, operator))].filter((value) => data.producers[value] >= 0);
}

/** A name without the scopes that it is in: what stands beside says those. */
export function ownName(name) {
  return name.slice(name.lastIndexOf("/") + 1);
}

/** Why a block is there after a step.
 * @param {Model} model @param {{value: number, band: number, begin: number, end: number}} block @param {number} step
 */
export function reasonOf(model, { value, band, begin, end }, step) {
  if (value < 0) return `while ${ownName(targetName(model, step))} is evaluated`;
  const { names } = model.graph.data;
  const reads = readsOf(model, value, step, end);
  if (band === STAYING_BAND) return "gradient, a result: stays to the end";
  if (band === PASSING_BAND) return gradientReason(model, reads, step, end);
  let what = model.isCheckpoint.has(value) ? "checkpoint" : "kept";
  if (band === AGAIN_BAND) {
    const from = readAt(model, begin).map((source) => ownName(names[source]));
    what = begin === step ? "recomputed now" : `recomputed${from.length ? ` from ${listed(from, 1)}` : ""}`;
  }
  if (!reads.length)
    return `${what}${end === model.count ? ", a result: stays to the end" : `, until step ${countText(end)}`}`;
  return `${what}, ${readersText(model, reads)}`;
}

/** For whom a value is there, in words. */
function readersText(model, reads) {
  const { names } = model.graph.operators;
  const again = reads.filter(({ step }) => isAgain(model, step));
  const others = reads.filter(({ step }) => !isAgain(model, step));
  const texts = [];
  const own = (some) => some.map(({ operator }) => ownName(names[operator]));
  if (others.length) texts.push(`for ${readerNames(own(others))}`);
  if (again.length) texts.push(`to recompute ${listed(own(again), MOST_READERS)}`);
  return texts.join(" and ");
}

/** Some readers; of gradients, the word is said once: "the gradients of matmul_4 (2), tanh_3". @param {string[]} names */
function readerNames(names) {
  if (!names.every((name) => name.startsWith(GRADIENT_OF))) return listed(names, MOST_READERS);
  const of = names.map((name) => name.slice(GRADIENT_OF.length));
  return `the ${of.length > 1 ? "gradients" : "gradient"} of ${listed(of, MOST_READERS)}`;
}

/** The reader of a cotangent, and what that still waits for. */
function gradientReason(model, reads, step, end) {
  if (!reads.length) return `gradient, until step ${countText(end)}`;
  const { data, operators } = model.graph;
  const [{ step: next, operator }] = reads;
  const missing = readAt(model, next).filter((value) => !isResident(model.spans, value, step));
  if (missing.length)
    return `gradient, waits for ${listed(
      missing.map((value) => ownName(data.names[value])),
      1,
    )}`;
  return `gradient, for ${ownName(operators.names[operator]).replace(GRADIENT_OF, "that of ")}`;
}

/** The tooltip of a block. */
export function blockLines(model, { value, amount, band, begin, end, step, offset = -1 }) {
  const at = offset < 0 ? "" : `at offset ${shortLive(offset, model.inNodes)}`;
  const size = [shortLive(amount, model.inNodes), at].filter(Boolean).join(" ");
  if (value < 0) return [`workspace of ${targetName(model, step)}`, size];
  const until = end === model.count ? "to the end" : `to step ${countText(end - 1)}`;
  return [
    model.graph.data.names[value],
    [model.inNodes ? at : size, model.graph.data.specs[value]].filter(Boolean).join(", "),
    `${BAND_NAMES[band]}: from step ${countText(begin)} ${until}`,
    reasonOf(model, { value, band, begin, end }, step),
  ];
}
