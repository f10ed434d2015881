/**
 * Memory of a training step by category at the peak, the same as ``tinyckpt.training.ledger``; and
 * which forward values are in memory there, by what made them. No DOM here.
 */

import { Allocation, COMPUTE } from "../../player/assets/allocation.js";
import { loweredSteps } from "./lowering.js";
import { costOfTimes } from "./replay.js";
import { IN_ACTIVATIONS } from "./template.js";

const PARTS = 4; // categories of values
const LAYER_SCOPE = /^(?:layer\d+|stage\d+\/block\d+)\/?/;

/** Live bytes by category. */
class Held extends Allocation {
  constructor(graph) {
    super(graph);
    this.categories = graph.categories;
    this.live = new Float64Array(PARTS);
    this.blocks = new Set();
  }

  /** @param {number} block @param {number} sign */
  count(block, sign) {
    const owner = this.owner.items[block];
    this.live[this.categories[owner]] += sign * this.data.sizes[owner];
    if (sign > 0) this.blocks.add(owner);
    else this.blocks.delete(owner);
  }
}

/** What is in memory at the peak of an order of evaluations, and its cost.
 * @param {any} graph @param {ArrayLike<number>} order
 */
export function sumsAtPeak(graph, order) {
  const { verbs, targets } = loweredSteps(graph, order);
  const workspaceAt = (step) => (verbs[step] === COMPUTE ? graph.operators.workspace[targets[step]] : 0);
  const whole = new Held(graph);
  let [peak, at] = [-1, -1];
  for (let step = 0; step < verbs.length; step++) {
    whole.take(verbs[step], targets[step]);
    const bytes = whole.live.reduce((a, b) => a + b, workspaceAt(step));
    if (bytes > peak) [peak, at] = [bytes, step];
  }
  const there = new Held(graph);
  for (let step = 0; step <= at; step++) there.take(verbs[step], targets[step]);
  const [gradients, activations, cotangents, results] = there.live;
  const held = { gradients, activations, cotangents, results, workspace: workspaceAt(at) };
  return { peak, held, kinds: kindsOf(graph, there.blocks), cost: costOfTimes(graph, whole.times) };
}

/** Bytes of forward values by part of the network and kind of operator. @returns {Map<string, number>} */
function kindsOf(graph, owners) {
  const found = new Map();
  for (const value of owners) {
    if (graph.categories[value] !== IN_ACTIVATIONS) continue;
    const producer = graph.data.producers[value];
    const [part] = graph.operators.scopes[producer].replace(LAYER_SCOPE, "").split("/");
    const kind = graph.operators.kinds[producer].replaceAll("_", " ");
    const name = kind.includes(part) ? kind : `${part} ${kind}`;
    found.set(name, (found.get(name) ?? 0) + graph.data.sizes[value]);
  }
  return found;
}

/** Bytes of what the caller supplies: parameters, and the batch with constants. @param {any} graph */
export function sourcesOf({ data }) {
  const found = { parameters: 0, others: 0 };
  data.producers.forEach((producer, value) => {
    if (producer < 0) found[data.roles[value] === "parameter" ? "parameters" : "others"] += data.sizes[value];
  });
  return found;
}
