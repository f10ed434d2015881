/**
 * Replay in the browser: memory and fates of values from a graph and its steps, with Python's
 * numbers.
 *
 * The same as ``tinyckpt.replay``, ``viz.memory_curve.stacked`` and
 * ``tinyckpt.planner.model.value_fates``, for schedules that are known to be legal: those of the
 * page's data, and those lowered here. No DOM here.
 */

import { Allocation, COMPUTE, FREE, OFFLOAD, stayingGradients } from "../../player/assets/allocation.js";
import { listAt } from "../../player/assets/columns.js";

/**
 * @import { Graph } from "../../player/assets/data.js"
 * @import { Steps } from "./lowering.js"
 */

/** Live bytes by band, resident values, and bytes on the host. */
class Bands extends Allocation {
  /** @param {Graph} graph */
  constructor(graph) {
    super(graph);
    this.forward = graph.forward_count;
    this.held = [0, 0, 0, 0]; // kept, recomputed, gradients, those that are results
    this.stays = stayingGradients(graph);
    this.values = 0;
    this.waiting = 0;
  }

  /** @param {number} value @param {number} now */
  become(value, now) {
    this.values += Number(now > 0) - Number(this.resident[value] > 0);
    super.become(value, now);
  }

  /** @param {number} block @param {number} sign */
  count(block, sign) {
    const owner = this.owner.items[block];
    const band = this.data.producers[owner] >= this.forward ? 2 + this.stays[owner] : this.again.items[block];
    this.held[band] += sign * this.data.sizes[owner];
  }

  /** @param {number} value @param {number} sign */
  move(value, sign) {
    this.waiting += sign * this.data.sizes[value];
  }
}

/** Live memory at every step: values and bytes, in bands that add up to all bytes.
 * At an evaluation, with its inputs, outputs and workspace; else after the step.
 *
 * @param {Graph} graph @param {Steps} steps
 */
export function replayed(graph, { verbs, targets }) {
  const count = verbs.length;
  const column = () => new Float64Array(count);
  const [kept, recomputed, gradients, results, workspace, bytes, host] = Array.from({ length: 7 }, column);
  const nodes = new Int32Array(count);
  const memory = new Bands(graph);
  const { held, times } = memory;
  for (let step = 0; step < count; step++) {
    memory.take(verbs[step], targets[step]);
    if (verbs[step] === COMPUTE) workspace[step] = graph.operators.workspace[targets[step]];
    nodes[step] = memory.values;
    [kept[step], recomputed[step], gradients[step], results[step]] = held;
    bytes[step] = held.reduce((sum, amount) => sum + amount, workspace[step]);
    host[step] = memory.waiting;
  }
  const evaluations = times.reduce((sum, n) => sum + n, 0);
  const once = times.reduce((sum, n) => sum + Number(n > 0), 0);
  const moves = host.some((amount) => amount > 0);
  return {
    nodes,
    bytes,
    bands: [kept, recomputed, gradients, results, workspace],
    host: moves ? host : null,
    evaluations,
    recomputations: evaluations - once,
    times,
  };
}

/** The fates of the forward values that the backward pass reads.
 *
 * @param {Graph} graph @param {Steps} steps @param {Iterable<number>} checkpoints
 * @returns {{data: number[], times: number[], reasons: string[]}}
 */
export function fatesOf(graph, { verbs, targets }, checkpoints) {
  const { operators, forward_count: forward } = graph;
  const [computed, dropped, moved] = [new Map(), new Map(), new Set()];
  const note = (map, value, step) => (map.has(value) ? map.get(value).push(step) : map.set(value, [step]));
  for (let step = 0; step < verbs.length; step++) {
    if (verbs[step] === COMPUTE) {
      for (const value of listAt(operators.outputs, targets[step])) note(computed, value, step);
    } else if (verbs[step] === FREE) note(dropped, targets[step], step);
    else if (verbs[step] === OFFLOAD) moved.add(targets[step]);
  }
  graph.firstReader ??= firstReaders(graph);
  const [rings, once] = [new Set(checkpoints), new Set(graph.planning.once)];
  const found = { data: [], times: [], reasons: [] };
  for (let operator = 0; operator < forward; operator++) {
    for (const value of listAt(operators.outputs, operator)) {
      const reader = graph.firstReader[value];
      const at = computed.get(value);
      if (reader < 0 || !at) continue;
      const name = operators.names[reader];
      let reason = `kept for ${name}${rings.has(value) ? ", as a checkpoint" : ""}`;
      if (once.has(operator)) reason += `; ${operators.names[operator]} may not be evaluated twice`;
      if (moved.has(value)) reason = `waits on the host for ${name}`;
      else if (at.length > 1) {
        const again = `${at.slice(1, 4).join(", ")}${at.length > 4 ? ", …" : ""}`;
        const steps = at.length === 2 ? "step" : "steps";
        reason = `freed at step ${dropped.get(value)[0]}, computed again at ${steps} ${again}`;
      }
      found.data.push(value);
      found.times.push(at.length);
      found.reasons.push(reason);
    }
  }
  return found;
}

/** For every value the first backward operator that reads it; -1 if none does. @param {Graph} graph */
export function firstReaders(graph) {
  const { data, operators, forward_count: forward } = graph;
  const first = new Int32Array(data.names.length).fill(-1);
  for (let i = operators.names.length - 1; i >= forward; i--) {
    for (const value of listAt(operators.inputs, i)) first[value] = i;
  }
  return first;
}

/** Whether a recomputation reads a value from its first evaluation; as in ``viz.node_looks``.
 * @param {Graph} graph @param {any} steps
 */
export function readsSaved({ data, operators }, { verbs, targets }) {
  const times = new Int32Array(operators.names.length);
  const isSaved = (value) => times[data.producers[value]] === 1;
  return Array.from(targets).some(
    (target, step) =>
      verbs[step] === COMPUTE && times[target]++ > 0 && Array.from(listAt(operators.inputs, target)).some(isSaved),
  );
}

/** The cost of all evaluations. @param {Graph} graph @param {ArrayLike<number>} times of each operator */
export function costOfTimes(graph, times) {
  const { costs } = graph.planning;
  let [sum, lost] = [0, 0]; // with what rounding took, so that it is Python's exact sum but for the last digit
  for (let i = 0; i < times.length; i++) {
    const next = times[i] * costs[i] - lost;
    const total = sum + next;
    lost = total - sum - next;
    sum = total;
  }
  return sum;
}
