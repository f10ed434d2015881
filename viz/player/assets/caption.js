/**
 * Captions of steps. A sentence of clauses: a run of recomputations has one, shown during the run
 * and the evaluation that needs it; freed values are named at the end. The same texts as
 * ``viz/captions.py``, computed lazily.
 */

import { COMPUTE, FREE, OFFLOAD } from "./allocation.js";
import { WORKSPACE_BAND } from "./blocks.js";
import { listAt } from "./columns.js";
import { amountText, counted, sizeText } from "./format.js";
import { ownName, readBy } from "./reasons.js";
import { cutTo, textWidth } from "./ruler.js";
import { inOrder } from "./stops.js";

/**
 * @import { Model } from "./data.js"
 * @import { Stop } from "./stops.js"
 */

const MOST_IN_CAPTION = 3; // names
const SHORT = 24; // characters of a short name

/** Stops by their names: where each is in a policy, NaN where it has none, and its sentence.
 * @type {[string, (model: Model) => number, (model: Model, step: number) => string][]}
 */
const STOPS = [
  ["start", () => -1, () => "Nothing is in memory yet."],
  [
    "peak",
    (model) => model.peakStep,
    (model, step) => `Memory is fullest: ${amountText(model.live[step], model.inNodes)}.`,
  ],
  [
    "first recomputation",
    (model) => model.computes[model.again.indexOf(1)] ?? Number.NaN,
    (model, step) => `Freed to save memory, now computed again: ${captionOf(model, step)}.`,
  ],
  [
    "end",
    (model) => model.count - 1,
    (model) =>
      `The end: ${counted(model.computes.length, "evaluation")}, at most ${amountText(model.live[model.peakStep], model.inNodes)} at once.`,
  ],
];

/** The stops of some policies together, each where there is one; what not all have at one moment names its own.
 * @param {Model[]} models @param {string[]} titles @param {(model: Model, step: number) => number} tickOf
 * @returns {Stop[]}
 */
export function stopsOf(models, titles, tickOf) {
  const found = new Map();
  for (const [name, stepOf, wordsOf] of STOPS) {
    models.forEach((model, i) => {
      const step = stepOf(model);
      if (Number.isNaN(step)) return;
      const tick = tickOf(model, step);
      const key = `${name} ${tick}`;
      if (!found.has(key)) found.set(key, { name, tick, own: [] });
      found.get(key).own.push({ title: titles[i], words: wordsOf(model, step) });
    });
  }
  return inOrder(
    [...found.values()].map(({ name, tick, own }) => ({
      name: own.length === models.length ? name : `${name} of ${own.map(({ title }) => title).join(", ")}`,
      tick,
      words:
        new Set(own.map(({ words }) => words)).size > 1 || own.length < models.length
          ? own.map(({ title, words }) => `${title}: ${words}`).join(" ")
          : own[0].words,
    })),
  );
}

/** @param {string} name */
function wholeName(name) {
  return name;
}

/** A name without the scopes that it is in, and without its middle if it is long. @param {string} name */
function shortName(name) {
  const own = Array.from(ownName(name));
  if (own.length <= SHORT) return own.join("");
  return `${own.slice(0, SHORT / 2 - 1).join("")}…${own.slice(-SHORT / 2).join("")}`;
}

/** The caption of a step; empty before the first one. */
export function captionOf(model, step, name = wholeName) {
  return clausesOf(model, step, name).join("; ");
}

/** The same in ever fewer letters, for where there is less room. @returns {string[]} */
export function captionsOf(model, step) {
  const brief = clausesOf(model, step, shortName);
  return [captionOf(model, step), brief.join("; "), ...brief.slice(-1)];
}

/** The longest of some texts that fits; the last one, cut, where none does. @param {string[]} texts */
export function fitting(texts, size, room) {
  return texts.find((text) => textWidth(text, size) <= room) ?? cutTo(texts.at(-1), size, room);
}

/** The clauses of a step's caption: the reason first, its own effect last. @returns {string[]} */
function clausesOf(model, step, name) {
  if (step < 0) return [];
  const verb = model.verbs[step];
  if (verb === COMPUTE) return evaluatedClauses(model, model.evaluations[step] - 1, name);
  if (verb === FREE) return freedClauses(model, step, name);
  const { names, sizes } = model.graph.data;
  const target = model.targets[step];
  return [
    `${name(names[target])} ${verb === OFFLOAD ? "goes to" : "comes back from"} the host (${sizeText(sizes[target])})`,
  ];
}

/** The first of the values that are freed one after the other up to a step. */
export function firstFree(model, step) {
  while (step > 0 && model.verbs[step - 1] === FREE) step--;
  return step;
}

/** The clauses of consecutive frees up to a step, after those of the evaluation. */
function freedClauses(model, step, name) {
  const first = firstFree(model, step);
  const freed = model.targets.slice(first, step + 1);
  const names = namesText(freed.length, (i) => name(model.graph.data.names[freed[i]]));
  const before = first - 1;
  const given = first
    ? (model.live[before] - model.bands[WORKSPACE_BAND].live[before] - model.live[step]) * model.unit
    : 0;
  const size = given ? ` (${sizeText(given)})` : ""; // not that of a view's base
  const clauses = first && model.verbs[before] === COMPUTE ? clausesOf(model, before, name) : [];
  return [...clauses, `${names} ${are(freed.length)} freed${size}`];
}

/** The clauses of an evaluation, or of the run of recomputations that it is in. */
function evaluatedClauses(model, position, name) {
  const run = runAt(model, position);
  if (run.first === run.end) return [plainClause(model, position, name)];
  if (!run.said.has(name)) run.said.set(name, recomputedClauses(model, run, name));
  const said = run.said.get(name);
  return position === run.end && said.length === 1 ? [plainClause(model, position, name)] : said;
}

/** The run of recomputations around an evaluation; the last one is cached. */
function runAt(model, position) {
  const { known } = model.runs;
  if (known && known.first <= position && position <= known.end) return known;
  const { again } = model;
  const found = again.indexOf(0, position);
  const end = found < 0 ? again.length : found;
  const before = position === end ? position - 1 : position;
  const first = (before < 0 ? -1 : again.lastIndexOf(0, before)) + 1;
  model.runs.known = { first, end, said: new Map() };
  return model.runs.known;
}

/** The clauses of a run: its reader if evaluated next, its operators, its inputs. */
function recomputedClauses(model, { first, end }, name) {
  const { data, operators } = model.graph;
  const operatorAt = (position) => model.targets[model.computes[position]];
  const run = [];
  const [made, begun, seen] = [new Set(), new Set(), new Set()];
  for (let position = first; position < end; position++) {
    const operator = operatorAt(position);
    if (!seen.has(operator)) run.push(operator);
    seen.add(operator);
    for (const value of readBy(model, operator)) if (!made.has(value)) begun.add(value);
    for (const value of listAt(operators.outputs, operator)) made.add(value);
  }
  const clauses = [];
  if (end < model.computes.length) {
    const reader = operatorAt(end);
    const reads = listAt(operators.inputs, reader).some((value) => made.has(value));
    if (reads) clauses.push(`${name(operators.names[reader])} reads ${sourcesText(model, reader, name)}`);
  }
  const origin = [...begun];
  const source = namesText(origin.length, (i) => name(data.names[origin[i]]));
  clauses.push(`${runText(model, run, name)} ${are(run.length)} recomputed from ${source || "the inputs"}`);
  return clauses;
}

/** The operators of a run: from one to another, where none between is left out. @param {number[]} run */
function runText(model, run, name) {
  const { names } = model.graph.operators;
  if (run.length > 2 && run.every((operator, i) => operator === run[0] + i)) {
    return `${name(names[run[0]])} to ${name(names[run.at(-1)])}`;
  }
  return namesText(run.length, (i) => name(names[run[i]]));
}

/** The caption of an evaluation that needs no recomputation. */
function plainClause(model, position, name) {
  const operator = model.targets[model.computes[position]];
  const source = sourcesText(model, operator, name);
  const title = name(model.graph.operators.names[operator]);
  const value = model.over?.[model.computes[position]] ?? -1;
  const over = value < 0 ? "" : `, overwriting ${name(model.graph.data.names[value])}`;
  if (operator >= model.graph.forward_count && source) return `${title} reads ${source}${over}`;
  return `${title} is computed${source ? ` from ${source}` : ""}${over}`;
}

/** The names of an operator's inputs, without the caller's own. */
function sourcesText(model, operator, name) {
  const read = readBy(model, operator);
  return namesText(read.length, (i) => name(model.graph.data.names[read[i]]));
}

/** @param {number} count */
function are(count) {
  return count === 1 ? "is" : "are";
}

/** A list of names as text; only the names in it are computed.
 * @param {number} count @param {(i: number) => string} name
 */
function namesText(count, name) {
  const shown = Array.from({ length: count > MOST_IN_CAPTION ? MOST_IN_CAPTION - 1 : count }, (_, i) => name(i));
  if (count > MOST_IN_CAPTION) shown.push(`${count - MOST_IN_CAPTION + 1} more`);
  return [shown.slice(0, -1).join(", "), shown.at(-1)].filter(Boolean).join(" and ");
}
