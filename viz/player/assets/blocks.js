/**
 * Live memory as blocks: each allocated for one value, with its live interval.
 *
 * A view lies in the block of its base, and a block is live while any value in it is resident. At
 * every step the blocks and the workspace add up to the trace's live memory, to the byte.
 */

import { Allocation, COMPUTE, rootOf } from "./allocation.js";
import { Column, listAt } from "./columns.js";
import { grouped } from "./state.js";

/**
 * @import { Graph, Model, Trace } from "./data.js"
 */

export const [KEPT_BAND, AGAIN_BAND, PASSING_BAND, STAYING_BAND, WORKSPACE_BAND] = [0, 1, 2, 3, 4];
export const BAND_NAMES = ["kept", "recomputed", "gradient that passes", "gradient that stays", "workspace"];
export const BAND_FILLS = ["kept", "recomputed", "gradient", "staying", "workspace"];
export const STRIPES = { [AGAIN_BAND]: "kept", [STAYING_BAND]: "gradient" }; // upon what could be taken for another without colour

/**
 * The blocks of a trace, those of a band after each other, from the ground up.
 *
 * @typedef {object} Blocks
 * @property {Int32Array} values the value that each was taken for
 * @property {Int32Array} begins the step that took it
 * @property {Int32Array} ends the step that gave it back
 * @property {Uint8Array} bands
 * @property {Float64Array} amounts bytes, or nodes where memory is counted in them
 *
 * @param {Model} model @returns {Blocks}
 */
export function blocksOf(model) {
  return model.blocks.known;
}

/** The live intervals of all blocks and values of a trace, in the order in which they begin. */
class Lifetimes extends Allocation {
  /** @param {Trace} trace @param {Graph} graph */
  constructor(trace, graph) {
    super(graph);
    this.blocks = { begins: new Column(), ends: new Column() };
    this.values = { data: new Column(), begins: new Column(), ends: new Column() };
    this.open = new Int32Array(graph.data.names.length); // by value, its interval
    this.end = trace.verbs.length;
    const { verbs, targets, over } = trace;
    for (this.step = 0; this.step < this.end; this.step++) {
      this.take(verbs[this.step], targets[this.step], over?.[this.step]);
    }
  }

  /** @param {number} value @param {number} now */
  become(value, now) {
    if (now && !this.resident[value]) {
      this.open[value] = this.values.data.push(value);
      this.values.begins.push(this.step);
      this.values.ends.push(this.end);
    } else if (!now && this.resident[value]) this.values.ends.items[this.open[value]] = this.step;
    super.become(value, now);
  }

  /** @param {number} block @param {number} sign */
  count(block, sign) {
    if (sign < 0) {
      this.blocks.ends.items[block] = this.step;
      return;
    }
    this.blocks.begins.push(this.step);
    this.blocks.ends.push(this.end);
  }
}

/** Live intervals of the values and blocks of a trace.
 * @param {Trace} trace @param {Graph} graph
 */
export function lifetimesOf(trace, graph) {
  const { owner, again, blocks, values } = new Lifetimes(trace, graph);
  const { first, order } = grouped(graph.data.names.length, values.data.done());
  return {
    blocks: { values: owner.done(), begins: blocks.begins.done(), ends: blocks.ends.done(), again: again.done() },
    // Of value d: first[d]..first[d+1].
    spans: {
      first,
      begins: order.map((i) => values.begins.items[i]),
      ends: order.map((i) => values.ends.items[i]),
    },
  };
}

/** Blocks in stacking order: by band, long-lived ones at the bottom. */
export function stackedBlocks(model, { values, begins, ends, again }) {
  const { graph } = model;
  const [checkpoints, results] = [new Set(model.checkpoints), new Set()];
  for (const value of graph.data.results) results.add(rootOf(graph.data, value));
  const bandOf = (i) => {
    if (graph.data.producers[values[i]] < graph.forward_count) return again[i] ? AGAIN_BAND : KEPT_BAND;
    return results.has(rootOf(graph.data, values[i])) ? STAYING_BAND : PASSING_BAND;
  };
  const keys = Int32Array.from(values, (value, i) => 2 * bandOf(i) + Number(!checkpoints.has(value)));
  const { order } = grouped(2 * BAND_NAMES.length, keys);
  return {
    values: order.map((i) => values[i]),
    begins: order.map((i) => begins[i]),
    ends: order.map((i) => ends[i]),
    bands: Uint8Array.from(order, (i) => keys[i] >> 1),
    amounts: Float64Array.from(order, (i) => graph.data.sizes[values[i]] / model.unit),
  };
}

/** Live memory at every step, by what it is: forward values that were kept, and those that were
 * recomputed, gradients on their way, those that are results, workspace; and all of it.
 * @param {Model} model with its blocks @returns {{bands: Float64Array[], live: Float64Array}}
 */
export function bandsOf(model) {
  const { values, begins, ends, bands: kinds, amounts } = blocksOf(model);
  const bands = BAND_NAMES.map(() => new Float64Array(model.count));
  for (let i = 0; i < values.length; i++) {
    const band = bands[kinds[i]];
    band[begins[i]] += amounts[i];
    if (ends[i] < model.count) band[ends[i]] -= amounts[i];
  }
  for (const band of bands) for (let step = 1; step < model.count; step++) band[step] += band[step - 1];
  const { workspace } = model.graph.operators;
  const live = new Float64Array(model.count);
  for (let step = 0; step < model.count; step++) {
    if (model.verbs[step] === COMPUTE && !model.inNodes) bands[WORKSPACE_BAND][step] = workspace[model.targets[step]];
    for (const band of bands) live[step] += band[step];
  }
  return { bands, live };
}

/** The smallest amount of a block, of those that are any. @param {Model} model */
export function leastBlock(model) {
  return blocksOf(model).amounts.reduce((least, amount) => (amount > 0 && amount < least ? amount : least), Infinity);
}

/** The one size of all values, where memory is counted in nodes. */
export function nodeSize({ data }) {
  return data.nbytes[data.producers.findIndex((producer) => producer >= 0)];
}

/** Live blocks of a step, from the bottom up; the value of workspace is -1.
 * @param {Model} model @param {number} step
 * @returns {{value: number, band: number, amount: number, begin: number, end: number}[]}
 */
export function blocksAt(model, step) {
  const { values, begins, ends, bands, amounts } = blocksOf(model);
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (begins[i] <= step && step < ends[i]) {
      found.push({ value: values[i], band: bands[i], amount: amounts[i], begin: begins[i], end: ends[i] });
    }
  }
  const workspace = step < 0 ? 0 : model.bands[WORKSPACE_BAND].live[step];
  if (workspace) found.push({ value: -1, band: WORKSPACE_BAND, amount: workspace, begin: step, end: step + 1 });
  return found;
}

/** What nobody has less room than: what one operator of those that the results need reads, makes and
 * works with, or all results. @param {{graph: Graph, inNodes: boolean}} model
 */
export function leastPeak({ graph, inNodes }) {
  const { data, operators } = graph;
  const wanted = new Set(data.results);
  const amountOf = (values) => {
    const roots = new Set(Array.from(values, (value) => rootOf(data, value)));
    let sum = 0;
    for (const root of roots) if (data.producers[root] >= 0) sum += inNodes ? 1 : data.nbytes[root];
    return sum;
  };
  let most = amountOf(data.results);
  for (let operator = operators.names.length - 1; operator >= 0; operator--) {
    const outputs = listAt(operators.outputs, operator);
    if (!outputs.some((value) => wanted.has(value))) continue;
    const inputs = listAt(operators.inputs, operator);
    for (const value of inputs) wanted.add(value);
    most = Math.max(most, amountOf([...inputs, ...outputs]) + (inNodes ? 0 : operators.workspace[operator]));
  }
  return most;
}

/** The peak if every operator is evaluated once, in order, and every value kept to its last reader.
 * @param {Model} model
 */
export function storeAllPeak({ graph, inNodes }) {
  const { data, operators } = graph;
  const count = operators.names.length;
  const last = new Int32Array(data.names.length).fill(-1); // by block: the operator that wants it last
  for (let operator = 0; operator < count; operator++) {
    for (const lists of [operators.inputs, operators.outputs]) {
      for (const value of listAt(lists, operator)) last[rootOf(data, value)] = operator;
    }
  }
  for (const value of data.results) last[rootOf(data, value)] = count;
  const amount = (root) => (data.producers[root] < 0 ? 0 : inNodes ? 1 : data.nbytes[root]);
  const leaving = grouped(
    count + 1,
    last.map((operator, root) => (data.bases[root] < 0 && operator >= 0 ? operator : count)),
  );
  let [live, most] = [0, 0];
  for (let operator = 0; operator < count; operator++) {
    for (const value of listAt(operators.outputs, operator)) if (data.bases[value] < 0) live += amount(value);
    most = Math.max(most, live + (inNodes ? 0 : operators.workspace[operator]));
    for (let i = leaving.first[operator]; i < leaving.first[operator + 1]; i++) live -= amount(leaving.order[i]);
  }
  return most;
}
