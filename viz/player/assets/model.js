/**
 * Trace model: a trace with derived data: totals, live intervals of values, evaluations of
 * operators.
 *
 * @typedef {object} Series  one entry a tick: what a timeline shows
 * @property {Int32Array} steps the step that each tick shows
 */

import { COMPUTE, VERBS } from "./allocation.js";
import { placesOf, total } from "./axis.js";
import { bandsOf, lifetimesOf, nodeSize, stackedBlocks } from "./blocks.js";
import { Column } from "./columns.js";
import { placesByProgress } from "./progress.js";
import { grouped, historyOf, lastAtMost } from "./state.js";

/**
 * @import { Graph, Model, Trace, View } from "./data.js"
 * @import { Axis } from "./axis.js"
 */

/** Add to a trace all that is derived from its columns, once.
 * @param {Trace} trace @param {Graph} graph @param {number} id @param {boolean} inNodes
 */
export function modelOf(trace, graph, id, inNodes) {
  const count = trace.verbs.length;
  const evaluations = new Int32Array(count);
  const times = new Int32Array(graph.operators.names.length);
  const [computes, targets, again] = [new Column(), new Column(), new Column(Uint8Array)];
  for (let step = 0; step < count; step++) {
    if (trace.verbs[step] === COMPUTE) {
      computes.push(step);
      targets.push(trace.targets[step]);
      again.push(Number(times[trace.targets[step]]++ > 0));
    }
    evaluations[step] = computes.length;
  }
  const { blocks, spans } = lifetimesOf(trace, graph);
  const model = /** @type {Model} */ ({
    ...trace,
    id,
    inNodes,
    unit: inNodes ? nodeSize(graph) : 1, // bytes of what memory is counted in
    graph,
    count,
    evaluations,
    computes: computes.done(),
    again: again.done(), // by evaluation: whether its operator was evaluated before
    spans,
    evaluatedAt: grouped(times.length, targets.done()),
    isCheckpoint: new Set(trace.checkpoints),
    fateOf: new Map(Array.from(trace.fates.data, (data, i) => [data, i])),
    // Computed lazily.
    histories: new Map(),
    places: new Map(),
    blocks: { known: null },
    readers: {},
    runs: {},
    tickSteps: new Map(),
  });
  model.blocks.known = stackedBlocks(model, blocks);
  const { bands, live } = bandsOf(model);
  const named = trace.bands.map((band, i) => ({ ...band, live: bands[i] }));
  return { ...model, bands: named, live, ...peaksOf(live) };
}

/** The highest so far at every step, and where the highest of all is.
 * @param {Float64Array} live
 */
function peaksOf(live) {
  const peaks = new Float64Array(live.length);
  let [peakStep, peak] = [0, 0];
  for (let step = 0; step < live.length; step++) {
    if (live[step] > peak) [peak, peakStep] = [live[step], step];
    peaks[step] = peak;
  }
  return { peaks, peakStep };
}

/** Whether a value is resident after a step. */
export function isResident(spans, value, step) {
  const at = lastAtMost(spans.begins, step, spans.first[value], spans.first[value + 1]);
  return at >= 0 && spans.ends[at] > step;
}

/** The values that are resident after a step, largest first. @param {Model} model @param {number} step */
export function residentAt(model, step) {
  const found = [];
  for (let value = 0; value < model.graph.data.names.length; value++) {
    if (isResident(model.spans, value, step)) found.push(value);
  }
  const { nbytes } = model.graph.data;
  return found.sort((a, b) => nbytes[b] - nbytes[a] || a - b);
}

/** The history of one of the graph's views, made when it is first asked for. @param {Model} model @param {number} view */
export function historyOfView(model, view) {
  if (!model.histories.has(view)) {
    model.histories.set(view, historyOf(model, model.graph, model.graph.views[view]));
  }
  return model.histories.get(view);
}

/** Where the ticks of an axis are, which all traces share: a tick a step, or one an evaluation; of
 * FLOPs and time, one an evaluation of the trace that takes the most, and the others as far; of
 * progress, one an evaluation of those that are not waiting.
 * @param {Model[]} models @param {Axis} axis @returns {number} how many there are
 */
export function measure(models, axis) {
  if (axis === "step") return Math.max(...models.map((model) => model.count));
  if (axis === "evaluation") return Math.max(...models.map((model) => model.computes.length));
  if (axis === "progress") {
    placesByProgress(models).forEach((places, i) => models[i].places.set(axis, places));
    return Math.max(...models.map((model) => total(model, axis)));
  }
  const longest = models.reduce((a, b) => (total(b, axis) > total(a, axis) ? b : a));
  const moments = Float64Array.from(longest.computes, (step) => placesOf(longest, axis)[step + 1]);
  for (const model of models) {
    const places = placesOf(model, axis);
    const steps =
      model === longest ? longest.computes : Int32Array.from(moments, (place) => lastAtMost(places, place) - 1);
    const last = lastAtMost(steps, model.count - 2) + 2;
    model.tickSteps.set(axis, {
      steps: steps.map((step) => Math.min(step, model.count - 1)),
      count: Math.min(last, steps.length),
    });
  }
  return moments.length;
}

/** The step that a tick shows: the tick itself, or that of the tick-th evaluation from 0.
 * A shorter trace stays at its end.
 * @param {Model} model @param {number} tick @param {Axis} align
 */
export function stepOfTick(model, tick, align) {
  if (tick < 0) return -1;
  if (align === "step") return Math.min(tick, model.count - 1);
  if (align === "progress") return Math.min(lastAtMost(placesOf(model, align), tick), model.count - 1);
  const steps = align === "evaluation" ? model.computes : model.tickSteps.get(align).steps;
  return tick < steps.length ? steps[tick] : model.count - 1;
}

/** The tick at which a step is shown. @param {Model} model @param {number} step @param {Axis} align */
export function tickOfStep(model, step, align) {
  if (align === "step" || step < 0) return step;
  const evaluation = Math.max(0, model.evaluations[Math.min(step, model.count - 1)] - 1);
  if (align === "evaluation") return evaluation;
  if (align === "progress") return placesOf(model, align)[model.computes[evaluation]];
  return Math.max(0, lastAtMost(model.tickSteps.get(align).steps, step));
}

/** How many ticks a trace has. @param {Model} model @param {Axis} align */
export function ticksOf(model, align) {
  if (align === "step") return model.count;
  if (align === "progress") return total(model, align);
  return align === "evaluation" ? model.computes.length : model.tickSteps.get(align).count;
}

/** A step as text. @param {Model} model @param {number} step */
export function stepWords(model, step) {
  if (step < 0) return "before the first step";
  const verb = model.verbs[step];
  return `${VERBS[verb]} ${targetName(model, step)}`;
}

/** The name of a step's operand. @param {Model} model @param {number} step */
export function targetName(model, step) {
  const nodes = model.verbs[step] === COMPUTE ? model.graph.operators : model.graph.data;
  return nodes.names[model.targets[step]];
}

/** Whether a step evaluates an operator that was evaluated before. @param {Model} model @param {number} step */
export function isAgain(model, step) {
  return model.verbs[step] === COMPUTE && model.again[model.evaluations[step] - 1] === 1;
}
