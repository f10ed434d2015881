/**
 * Candidate schedules: points of the frontier, named policies, and any set of saved values.
 *
 * A candidate is turned into steps, a replay and a trace like those of the page's data, lazily. No
 * DOM here.
 *
 * @typedef {{key: string, kind: "point" | "named" | "kept", title: string, note: string,
 *     order?: ArrayLike<number>, checkpoints?: ArrayLike<number>, policy: string, name?: string,
 *     keep?: number[], steps?: any, peak?: number, cost?: number}} Choice
 */

import { barsOfView } from "../../player/assets/bars.js";
import { listAt } from "../../player/assets/columns.js";
import { countText, counted, liveText, shortSize, sizeText } from "../../player/assets/format.js";
import { modelOf } from "../../player/assets/model.js";
import { lastAtMost } from "../../player/assets/state.js";
import { keptValues, loweredSteps, retainingOrder } from "./lowering.js";
import { costOfTimes, fatesOf, firstReaders, readsSaved, replayed } from "./replay.js";
import { MINUS, chainText, costText, percentText, rangesText } from "./texts.js";

/**
 * @import { Graph } from "../../player/assets/data.js"
 */

const MOST_HELD = 2e6; // steps of the schedules that are kept at hand: some 150 MB
const MOST_MODELLED = 4e5; // steps of those that are kept with all that is shown of them
const MOST_CHALLENGES = 5;
const IDLE_BEFORE_PLANS = 250; // milliseconds until it is asked again whether something moves
export const TIGHT = 1e-9; // a relative difference that is rounding

export class Offers {
  /** @param {any} lab as unpacked @param {Graph} graph @param {any} first the trace that is there */
  constructor(lab, graph, first, inNodes) {
    this.lab = lab;
    this.graph = Object.assign(graph, { planning: lab.planning });
    this.first = first;
    this.inNodes = inNodes;
    this.unit = lab.planning.unit;
    this.size = inNodes ? graph.data.nbytes[graph.data.producers.findIndex((p) => p >= 0)] : 1;
    this.least = costOfTimes(graph, new Uint8Array(graph.operators.names.length).fill(1));
    this.places = /** @type {Map<number, number>} */ (null); // of candidates
    this.planned = new Map();
    this.models = new Map();
    this.candidates = Array.from(graph.data.producers.keys()).filter((value) => this.canKeep(value));
    const { points } = lab;
    this.points = points.titles.map((note, i) => ({
      key: `budget=${points.peaks[i]}`,
      kind: "point",
      title: `within ${this.memory(points.peaks[i])}`,
      note,
      policy: points.policies[i],
      peak: points.peaks[i],
      cost: points.costs[i],
      order: listAt(points.orders, i),
    }));
    this.named = lab.named.map((named) => {
      const choice = { ...named, key: `policy=${encodeURIComponent(named.name)}`, kind: "named", policy: named.name };
      const { peak, cost } = this.plan(choice);
      return Object.assign(choice, { peak, cost });
    });
    const peaks = [...this.points, ...this.named].map(({ peak }) => peak);
    this.lowest = Math.min(...peaks, lab.smallest);
    this.highest = Math.max(...peaks);
    this.stored = this.plan(this.keeping(this.candidates));
  }

  /** Whether policy ``retain`` accepts a value: an output of the forward pass. @param {number} value */
  canKeep(value) {
    const producer = this.graph.data.producers[value];
    return producer >= 0 && producer < this.graph.forward_count;
  }

  /** Whether a value is read outside the scope of its operator in the forward pass. @param {number} value */
  leaves(value) {
    const { operators, data, forward_count: forward } = this.graph;
    if (!this.leaving) {
      this.leaving = new Uint8Array(data.names.length);
      for (let i = 0; i < forward; i++)
        for (const read of listAt(operators.inputs, i))
          if (data.producers[read] >= 0 && operators.scopes[data.producers[read]] !== operators.scopes[i])
            this.leaving[read] = 1;
    }
    return this.leaving[value] === 1;
  }

  /** The name by which Python finds a value. @param {number} value */
  nameOf(value) {
    this.places ??= new Map(this.candidates.map((candidate, place) => [candidate, place]));
    return this.lab.planning.names[this.places.get(value)];
  }

  /** The choice that keeps some values. @param {Iterable<number>} values @returns {Choice} */
  keeping(values) {
    const keep = [...new Set(values)].sort((a, b) => a - b);
    const note = `kept ${counted(keep.length, "value")} of ${countText(this.candidates.length)}`;
    return { key: `keep=${rangesText(keep)}`, kind: "kept", title: "hand-picked", note, policy: "retain", keep };
  }

  /** Steps, replay, peak and cost of a choice. @param {Choice} choice */
  plan(choice) {
    const known = this.planned.get(choice.key);
    if (known) return known;
    const { graph } = this;
    const order = choice.order ?? retainingOrder(graph, choice.keep);
    const steps = choice.steps ?? loweredSteps(graph, order);
    const replay = replayed(graph, steps);
    const checkpoints = Array.from(choice.checkpoints ?? keptValues(graph, order).checkpoints);
    const peak = replay.bytes.reduce((a, b) => Math.max(a, b), 0);
    const planned = { steps, replay, checkpoints, peak, cost: costOfTimes(graph, replay.times) };
    this.planned.set(choice.key, planned);
    forgetOldest(this.planned, MOST_HELD, ({ steps: { verbs } }) => verbs.length);
    return planned;
  }

  /** Plan what is on the frontier before anybody drags there, a schedule at a time, from where they begin:
   * with what is shown of it, if there is room for all of that; not while something moves.
   * @param {AbortSignal} signal that ends it @param {() => boolean} isMoving
   */
  prepare(signal, isMoving, next = this.points.length - 1) {
    const steps = this.points.reduce((sum, { order }) => sum + 2 * order.length, 0);
    if (next < 0 || steps > MOST_HELD || signal.aborted) return;
    if (isMoving()) return void setTimeout(() => this.prepare(signal, isMoving, next), IDLE_BEFORE_PLANS);
    this.plan(this.points[next]);
    if (steps <= MOST_MODELLED) barsOfView(this.modelOf(this.points[next], null), 0);
    setTimeout(() => this.prepare(signal, isMoving, next - 1));
  }

  /** A choice with all that is shown of it. @param {Choice} choice @param {number | null} budget in bytes */
  modelOf(choice, budget) {
    const key = `${choice.key} ${budget}`;
    const known = this.models.get(key) ?? modelOf(this.traceOf(choice, budget), this.graph, 0, this.inNodes);
    this.models.delete(key); // so that it is the last one to be forgotten
    this.models.set(key, known);
    forgetOldest(this.models, MOST_MODELLED, ({ count }) => count);
    return known;
  }

  /** The saved values of a choice: all that the backward pass reads, if nothing is recomputed. */
  keptBy(choice) {
    if (choice.keep) return choice.keep;
    const plan = this.plan(choice);
    this.graph.firstReader ??= firstReaders(this.graph);
    // Not only the checkpoints: a policy may save more than it calls checkpoints.
    plan.kept ??= plan.replay.recomputations
      ? keptValues(this.graph, choice.order).kept.filter((value) => this.canKeep(value))
      : this.candidates.filter((value) => this.graph.firstReader[value] >= 0);
    return plan.kept;
  }

  /** Whether saving a choice's values by hand gives the identical schedule. */
  isByHand(choice) {
    const [own, other] = [choice, this.keeping(this.keptBy(choice))].map((each) => this.plan(each).steps);
    const same = (some, others) => some.length === others.length && some.every((each, i) => each === others[i]);
    return same(own.verbs, other.verbs) && same(own.targets, other.targets);
  }

  /** The cheapest point within a budget in bytes; the smallest one if none is. */
  within(budget) {
    return this.points.findLast(({ peak }) => peak <= budget) ?? this.points[0];
  }

  /** The cost of the cheapest known schedule within a budget in bytes. */
  bestWithin(budget) {
    const { peaks, costs } = this.lab.known;
    const at = lastAtMost(peaks, budget);
    return at < 0 ? Number.POSITIVE_INFINITY : costs[at];
  }

  /** A cost that nothing within a budget is below: infinite where nothing can be. */
  boundAt(budget) {
    if (budget < this.lab.smallest) return Number.POSITIVE_INFINITY;
    const found = this.lab.bounds.find(([amount]) => amount >= budget);
    return found ? (found[1] ?? Number.POSITIVE_INFINITY) : 0;
  }

  /** Whether nothing within a budget can cost less. */
  isProven(cost, budget) {
    return cost <= this.boundAt(budget) * (1 + TIGHT);
  }

  /** The gain from the next larger budget; the same text as in Python. @param {any} plan */
  advice({ peak, cost }) {
    const best = Math.min(cost, this.bestWithin(peak));
    if (best < cost) {
      return `Within the same memory ${costText(best, this.unit)} would do instead of ${costText(cost, this.unit)}.`;
    }
    const { peaks, costs } = this.lab.known;
    const next = peaks.findIndex((amount, i) => amount > peak && costs[i] < best);
    if (next < 0) return "No cheaper schedule is known with more memory.";
    const instead = `${costText(costs[next], this.unit)} would do instead of ${costText(cost, this.unit)}`;
    return `With ${this.memory(peaks[next] - peak)} more, ${instead}.`;
  }

  /** Budgets that some set of values is within, each with the least that is known to be needed. */
  challenges() {
    if (this.asked) return this.asked;
    const budgets = new Set();
    for (const point of this.points) {
      if (!this.plan(point).replay.recomputations) continue;
      const { peak } = this.plan(this.keeping(this.keptBy(point)));
      if (peak < this.stored.peak) budgets.add(peak);
    }
    const sorted = [...budgets].sort((a, b) => b - a);
    const apart = Math.max(1, Math.ceil(sorted.length / MOST_CHALLENGES));
    this.asked = sorted.filter((_, i) => i % apart === 0).map((budget) => ({ budget, best: this.bestWithin(budget) }));
    return this.asked;
  }

  /** An amount of memory, in values where all have one size. */
  memory(bytes) {
    return this.inNodes ? counted(Math.floor(bytes / this.size), "value") : sizeText(bytes);
  }

  /** The comparison of two choices, as text. @param {any} from @param {any} to plans */
  difference(from, to) {
    const share = from.cost ? (100 * (to.cost - from.cost)) / from.cost : 0;
    const memory = to.peak - from.peak;
    const peak = memory ? `${memory > 0 ? "+" : MINUS}${this.memory(Math.abs(memory))}` : "unchanged";
    const cost = to.cost === from.cost ? "unchanged" : percentText(share);
    return `peak ${peak}, cost ${cost}`;
  }

  /** The same in few letters: memory, then work. */
  shortDifference(from, to) {
    const memory = to.peak - from.peak;
    const amount = this.inNodes ? countText(Math.abs(Math.round(memory / this.size))) : shortSize(Math.abs(memory));
    const peak = memory ? `${memory > 0 ? "+" : MINUS}${amount}` : "\u00b10";
    const share = from.cost ? (100 * (to.cost - from.cost)) / from.cost : 0;
    return `${peak}, ${share ? percentText(share) : "\u00b10 %"}`;
  }

  /** A choice as a trace of the page's data. @param {Choice} choice @param {number | null} budget in bytes */
  traceOf(choice, budget) {
    const { steps, checkpoints, peak } = this.plan(choice);
    const { inNodes, graph } = this;
    const most = Math.floor(peak / this.size);
    const values = inNodes ? `${counted(most, "value")} = ` : "";
    const lines = [{ words: `peak ${values}${sizeText(peak)}`, amount: most, dashes: [4, 4] }];
    const line = (name, bytes, dashes) => {
      const amount = Math.floor(bytes / this.size);
      lines.push({ words: `${name} ${liveText(amount, inNodes)}`, amount, dashes });
    };
    if (budget !== null) line("budget", budget, [1, 0]);
    if (this.stored.peak !== peak) line("store all", this.stored.peak, [1, 1]);
    return {
      ...this.first,
      ...steps,
      title: choice.title,
      subtitle: this.subtitle(choice),
      policy: choice.policy,
      budget: budget === null ? null : Math.floor(budget / this.size),
      note: choice.note,
      certificate: this.isProven(this.plan(choice).cost, peak) ? "optimal: nothing within this peak costs less" : "",
      strip_lines: lines,
      host: this.plan(choice).replay.host,
      checkpoints,
      fates: fatesOf(graph, steps, checkpoints),
      reserved: null,
      source: null,
      no_source: "Copy as Python: tc.compile(schedule).source is the program.",
      lines: undefined,
      times: undefined,
    };
  }

  /** The cost of a choice in one line; the same text as in Python. */
  subtitle(choice) {
    const { steps, replay, checkpoints, cost } = this.plan(choice);
    const what = chainText(this.graph.name) ?? this.graph.name;
    const once = replay.evaluations - replay.recomputations;
    const ratio = (replay.evaluations / Math.max(once, 1)).toFixed(2);
    const own =
      this.unit === "evaluations"
        ? `${countText(replay.evaluations)} evaluations = ${ratio}× store-all`
        : `${costText(cost, this.unit)} in ${countText(replay.evaluations)} evaluations`;
    const isNamed = checkpoints.length || !readsSaved(this.graph, steps);
    return [what, ...(isNamed ? [counted(checkpoints.length, "checkpoint")] : []), own].join(" · ");
  }
}

/** Forget the oldest entries until all together are no more than that; never the last one.
 * @param {Map<string, any>} known @param {number} most @param {(entry: any) => number} sizeOf
 */
function forgetOldest(known, most, sizeOf) {
  let sum = [...known.values()].reduce((all, entry) => all + sizeOf(entry), 0);
  for (const [key, entry] of known) {
    if (sum <= most || known.size === 1) return;
    known.delete(key);
    sum -= sizeOf(entry);
  }
}
