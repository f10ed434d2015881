/**
 * Conversion of a document to the data of a lab: its schedule, or store-all, and candidates that
 * the page finds by itself: save every n-th value, recompute all others.
 */

import { COMPUTE } from "../../player/assets/allocation.js";
import { leastPeak } from "../../player/assets/blocks.js";
import { counted } from "../../player/assets/format.js";
import { endToEnd, readGraph, shownName } from "./graphs.js";
import { loweredSteps, producersOf, retainingOrder } from "./lowering.js";
import { Offers } from "./offers.js";
import { placedViews } from "./placing.js";
import { DocumentReader } from "./reader.js";
import { costOfTimes, firstReaders, replayed } from "./replay.js";
import { UPDATE_STEP, checkedReplay, readSchedule, readTrace } from "./schedules.js";

/**
 * @import { Graph } from "../../player/assets/data.js"
 * @import { Measured } from "../../player/assets/measured.js"
 */

const EVERY = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
const MOST_PLANNED = 20_000; // operators of a graph for which more than the two ends are planned

/** The content of a file, parsed and validated. @param {string} text JSON @param {string} path
 * @param {Record<string, number>} dtypes
 */
export function readPlan(text, path, dtypes) {
  const reader = new DocumentReader(path);
  const document = reader.document(text);
  if (document.schema === "tinyckpt.graph")
    return { path, graph: readGraph(reader, document, "graph", dtypes), own: null };
  const isTrace = document.schema === "tinyckpt.trace";
  const own = isTrace ? readTrace(reader, document, dtypes) : readSchedule(reader, document, "schedule", dtypes);
  if (!isTrace) checkedReplay(reader, own);
  return { path, graph: own.graph, own };
}

/** The schedules that save every n-th of the values that the backward pass reads.
 * @returns {{keep: number[], order: number[], peak: number, cost: number}[]} by peak; none is for nothing
 */
function keepingSome(graph) {
  const first = firstReaders(graph);
  const read = Array.from(first.keys()).filter((value) => {
    const producer = graph.data.producers[value];
    return first[value] >= 0 && producer >= 0 && producer < graph.forward_count;
  });
  const every = graph.operators.names.length > MOST_PLANNED ? [1] : EVERY.filter((k) => k < read.length);
  const sets = [...every.map((k) => read.filter((_, i) => i % k === k - 1)), []];
  const found = sets.map((keep) => {
    const order = retainingOrder(graph, keep);
    const { bytes, times } = replayed(graph, loweredSteps(graph, order));
    return { keep, order, peak: bytes.reduce((a, b) => Math.max(a, b), 0), cost: costOfTimes(graph, times) };
  });
  found.sort((a, b) => a.peak - b.peak || a.cost - b.cost);
  return found.filter(({ cost }, i) => found.slice(0, i).every((other) => other.cost > cost));
}

/** The lab's data in addition to a player's; the same as ``viz.lab.data``. A plan may have other policies,
 * and the program that makes its graph.
 */
function labOf({ path, graph, own, others = [], program = undefined }, titles) {
  const points = keepingSome(graph);
  const [peaks, costs] = [points.map(({ peak }) => peak), points.map(({ cost }) => cost)];
  const count = graph.operators.names.length;
  const order = Array.from({ length: count }, (_, i) => i);
  const stored = {
    name: "store_all",
    title: titles.store_all,
    note: "every operator once, in order",
    order,
    checkpoints: [],
  };
  const named =
    own && own.policy !== "store_all"
      ? [ownOf(own, titles), stored]
      : [...others, own ? { ...stored, ...ownOf(own, titles) } : stored];
  const least = leastPeak({ graph, inNodes: false });
  return {
    planning: graph.planning,
    network: own ? null : path,
    program,
    costs_text: own ? null : "",
    complete: false,
    points: {
      peaks,
      costs,
      titles: points.map(({ keep }) => `keeps ${counted(keep.length, "value")}`),
      policies: points.map(() => "retain"),
      orders: endToEnd(points.map((point) => point.order)),
    },
    known: { peaks, costs },
    named,
    bounds: [[Math.max(...peaks), leastCost(graph)]],
    challenge: null,
    task: null,
    smallest: least,
    proof: [
      "one operator alone takes that much, or all results do",
      "whatever the results need is evaluated once at least",
    ],
  };
}

/** Lower bound on cost: each operator that the results need is evaluated once. @param {Graph} graph */
function leastCost(graph) {
  const resident = new Uint8Array(graph.data.names.length);
  const needed = producersOf(graph, Array.from(graph.data.results), resident);
  const times = new Uint8Array(graph.operators.names.length);
  for (const operator of needed) times[operator] = 1;
  return costOfTimes(graph, times);
}

/** The schedule that a document has, as a policy that can be chosen. */
function ownOf({ verbs, targets, policy, note, checkpoints }, titles) {
  const steps = { verbs: verbs.map((verb) => (verb === UPDATE_STEP ? COMPUTE : verb)), targets };
  const order = Int32Array.from(
    Array.from(steps.verbs.keys()).filter((step) => steps.verbs[step] === COMPUTE),
    (step) => targets[step],
  );
  const title = Object.hasOwn(titles, policy) ? titles[policy] : policy.replaceAll("_", " ");
  return {
    name: policy,
    title: shownName(title),
    note: shownName(note),
    order,
    checkpoints: Int32Array.from(checkpoints).sort(),
    steps,
  };
}

/** The data of a page that plays a plan, with measured memory if there is any.
 * @param {any} plan @param {Measured | null} measured @param {any} constants
 */
export function dataOfPlan(plan, measured, { titles, bands, symbols }) {
  const graph = { ...plan.graph, views: placedViews(plan.graph, symbols) };
  const lab = labOf({ ...plan, graph }, titles);
  const first = { graph: 0, bands, strip_words: "live memory", ...(measured ? { measured: 0 } : {}) };
  const offers = new Offers(lab, graph, first, false);
  const trace = offers.traceOf(offers.named[0], null);
  return {
    in_nodes: false,
    highest: Math.max(offers.highest, offers.stored.peak),
    host: trace.host ? trace.host.reduce((a, b) => Math.max(a, b), 0) : null,
    graphs: [graph],
    traces: [trace],
    lab,
    ...(measured ? { measured: [measured] } : {}),
  };
}
