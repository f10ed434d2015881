/**
 * Segments of about sqrt(n) stages in the browser: the order of evaluations that ``plan_sqrt_n`` of
 * ``tinyckpt.core.policies`` makes, on a graph whose separators are known; and the order of layers
 * that are checkpointed one by one, as frameworks do. No DOM here.
 *
 * Source: Chen et al., "Training deep nets with sublinear memory cost", 2016, arXiv 1604.06174.
 */

import { listAt } from "../../player/assets/columns.js";
import { retainingOrder } from "./lowering.js";

const REPEATED = /^(?:layer\d+|stage\d+\/block\d+)/; // scopes of the layers that can be checkpointed

/** @param {any} graph with its separators @returns {{order: number[], checkpoints: number[]}} */
export function sqrtOrder(graph) {
  const { data, operators, forward_count: forward } = graph;
  const last = lastReaders(graph, forward, operators.names.length);
  const isRead = (value) => last[value] >= 0;
  const stages = Array.from({ length: forward }, (_, i) => i).filter((i) =>
    Array.from(listAt(operators.outputs, i)).some(isRead),
  );
  const count = Math.min(nearestRoot(stages.length), Math.max(stages.length, 1));
  const cuts = cutsBetween(graph, stages, count);
  const checkpoints = [...new Set(cuts.flatMap(({ kept }) => kept))].sort((a, b) => a - b);
  const end = cuts.length ? cuts.at(-1).after : -1;
  const kept = Array.from(data.producers.keys()).filter(
    (value) => data.producers[value] > end && data.producers[value] < forward && isRead(value),
  );
  return { order: retainingOrder(graph, [...checkpoints, ...kept]), checkpoints };
}

/** For every value its last reader among some operators; -1 for none. */
function lastReaders({ data, operators }, from, to) {
  const last = new Int32Array(data.names.length).fill(-1);
  for (let i = from; i < to; i++) for (const value of listAt(operators.inputs, i)) last[value] = i;
  return last;
}

function nearestRoot(count) {
  const root = Math.floor(Math.sqrt(count));
  return Math.max(1, count - root * root > root ? root + 1 : root);
}

/** The nearest integer, of two the even one, as Python rounds. @param {number} amount */
function roundedEven(amount) {
  const low = Math.floor(amount);
  if (amount - low !== 0.5) return Math.round(amount);
  return low % 2 ? low + 1 : low;
}

/** Cuts at equal distances, moved by up to half a segment to the nearest separator.
 * @returns {{after: number, kept: number[]}[]}
 */
function cutsBetween(graph, stages, count) {
  const separatorAt = separatorsAfter(graph, stages);
  const reach = Math.floor(stages.length / (2 * count));
  const offsets = Array.from({ length: 2 * reach + 1 }, (_, i) => i - reach);
  offsets.sort((a, b) => Math.abs(a) - Math.abs(b) || a - b);
  const places = [];
  for (let part = 1; part < count; part++) {
    const target = Math.max(roundedEven((part * stages.length) / count) - 1, 0);
    const earliest = places.length ? places.at(-1) + 1 : 0;
    const isCut = (place) => earliest <= place && place < stages.length - 1 && separatorAt.has(place);
    const place = offsets.map((offset) => target + offset).find(isCut) ?? Math.max(target, earliest);
    if (place < stages.length) places.push(place);
  }
  return places.map(
    (place) => separatorAt.get(place) ?? { after: stages[place], kept: crossingAt(graph, stages[place]) },
  );
}

/** By stage, the separator that follows it: its own, or the last one before the next stage. */
function separatorsAfter({ data, separators }, stages) {
  const found = new Map();
  for (const value of separators) {
    const after = data.producers[value];
    const place = stages.findLastIndex((stage) => stage <= after);
    if (place >= 0 && found.get(place)?.after !== stages[place]) found.set(place, { after, kept: [value] });
  }
  return found;
}

/** The forward values that are made up to an operator and read by a later one. */
function crossingAt(graph, after) {
  const { data, forward_count: forward } = graph;
  const last = lastReaders(graph, 0, forward);
  const results = new Set(data.results);
  return Array.from(data.producers.keys()).filter((value) => {
    const producer = data.producers[value];
    if (producer < 0 || producer > after) return false;
    return (producer === forward - 1 && !results.has(value) ? forward : last[value]) > after;
  });
}

/** The layer of each forward operator, counted from 0; -1 outside of all. @param {any} graph */
export function layersOf({ operators, forward_count: forward }) {
  const places = new Map();
  return Int32Array.from({ length: forward }, (_, i) => {
    const scope = operators.scopes[i].match(REPEATED)?.[0];
    if (scope === undefined) return -1;
    if (!places.has(scope)) places.set(scope, places.size);
    return places.get(scope);
  });
}

/** The order in which layers 0, every, 2 every, ... keep their inputs alone, and all else is stored.
 * @param {any} graph @param {number} every @returns {{order: number[], checkpoints: number[]}}
 */
export function layerOrder(graph, every) {
  const { data, operators, forward_count: forward } = graph;
  const layers = layersOf(graph);
  const leaving = new Uint8Array(data.names.length);
  for (let i = 0; i < forward; i++)
    for (const value of listAt(operators.inputs, i))
      if (data.producers[value] >= 0 && layers[data.producers[value]] !== layers[i]) leaving[value] = 1;
  const isKept = (value) => {
    const layer = layers[data.producers[value]];
    return layer < 0 || layer % every > 0 || leaving[value];
  };
  const made = Array.from(data.producers.keys()).filter(
    (value) => data.producers[value] >= 0 && data.producers[value] < forward,
  );
  const kept = made.filter(isKept);
  const isEnd = (value) => leaving[value] && layers[data.producers[value]] % every === 0;
  return { order: retainingOrder(graph, kept), checkpoints: kept.filter(isEnd) };
}
