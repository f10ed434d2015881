/** Details of a node, and of the live values at a step, as text. */

import { offsetWords } from "./addresses.js";
import { listAt } from "./columns.js";
import { countText, counted, kindWords, listed, liveText, sizeText, setText } from "./format.js";
import { isAgain, isResident, residentAt, stepWords } from "./model.js";
import { lookWords } from "./words.js";

/**
 * @import { Panel } from "./panel.js"
 * @import { Model, View } from "./data.js"
 */

export const MOST_STEPS = 12; // listed of those at which an operator is evaluated
const MOST_NAMES = 8;
const MOST_VALUES = 4; // that are described one by one

/** Evaluations of operators up to a step, and in total. */
export function evaluationsOf(model, operators, step) {
  const { first, order } = model.evaluatedAt;
  let sofar = 0;
  let all = 0;
  const steps = [];
  for (const operator of operators) {
    for (const i of order.subarray(first[operator], first[operator + 1])) {
      all++;
      if (model.computes[i] <= step) sofar++;
      steps.push(model.computes[i]);
    }
  }
  return { sofar, all, steps: steps.sort((a, b) => a - b) };
}

/** When a value is resident, in words. @param {Model} model @param {number} value */
function spanWords(model, value) {
  const { first, begins, ends } = model.spans;
  const words = [];
  for (let i = first[value]; i < first[value + 1] && words.length < 6; i++) {
    const end = ends[i] === model.count ? "the end" : countText(ends[i] - 1);
    words.push(`${countText(begins[i])} to ${end}`);
  }
  const rest = first[value + 1] - first[value] - words.length;
  if (!words.length) return "never";
  const steps = `step${words.length > 1 || !words[0].endsWith("end") ? "s" : ""}`;
  return `${steps} ${words.join(", ")}${rest > 0 ? `, and ${countText(rest)} more times` : ""}`;
}

/** Why a value is saved, recomputed or freed. @param {Model} model @param {number} value */
function whyWords(model, value) {
  const { graph } = model;
  const known = model.fateOf.get(value);
  if (known !== undefined) return model.fates.reasons[known];
  if (graph.data.results.includes(value)) return "a result: it stays to the end";
  if (graph.data.producers[value] >= graph.forward_count) {
    return "a gradient on its way: in memory until its last reader has run";
  }
  return "the backward pass does not read it: in memory until its last reader has run";
}

/** The names of the operators that a cell stands for. @param {Model} model @param {View} view @param {number} cell */
export function cellName(model, view, cell) {
  const operators = listAt(view.operators, cell);
  if (view.groups[cell]) return `${view.titles[cell]}: ${counted(operators.length, "operator")}`;
  return listed(
    Array.from(operators, (i) => model.graph.operators.names[i]),
    3,
  );
}

/** The facts about a cell, or about one value, as pairs of term and text; steps as numbers.
 * @returns {[string, string | number[]][]}
 */
export function factsOf(panel, cell, value) {
  const { model, step, view } = panel;
  const { operators: ops, data } = model.graph;
  const operators = value < 0 ? listAt(view.operators, cell) : [data.producers[value]];
  const values = value < 0 ? Array.from(listAt(view.data, cell)) : [value];
  const kinds = [...new Set(Array.from(operators, (i) => ops.kinds[i]))];
  const scopes = [...new Set(Array.from(operators, (i) => ops.scopes[i]).filter(Boolean))];
  const { sofar, all, steps } = evaluationsOf(model, operators, step);
  const total = values.reduce((sum, i) => sum + data.nbytes[i], 0);
  const held = values.filter((i) => isResident(model.spans, i, step));
  const now = held.reduce((sum, i) => sum + data.nbytes[i], 0);
  /** @type {[string, string | number[]][]} */
  const facts =
    value < 0
      ? [["now", lookWords(panel.ledger.history, cell, step)]]
      : [["now", held.length ? "resident" : "not resident"]];
  // What is asked first is in sight in the smallest card.
  if (panel.strip?.placed && values.length === 1) facts.push(["offset", offsetWords(model, values[0])]);
  if (values.length === 1) facts.push(["why", whyWords(model, values[0])]);
  facts.push(["operator", listed(kinds.map(kindWords), 4)]);
  if (scopes.length) facts.push(["scope", listed(scopes, 2)]);
  if (values.length > 1) facts.push(["memory", `${sizeText(now)} of ${sizeText(total)} resident`]);
  facts.push(["evaluated", `${countText(sofar)} of ${counted(all, "time")}`]);
  if (operators.length === 1) facts.push(["at steps", Array.from(steps)]);
  for (const value of Array.from(values).slice(0, MOST_VALUES)) {
    if (values.length > 1) facts.push(["value", data.names[value]]);
    facts.push(["shape", `${data.specs[value]}, ${sizeText(data.nbytes[value])}`]);
    facts.push(["resident", spanWords(model, value)]);
    if (panel.strip?.placed && values.length > 1) facts.push(["offset", offsetWords(model, value)]);
    if (values.length > 1) facts.push(["why", whyWords(model, value)]);
  }
  const rest = values.length - MOST_VALUES;
  if (rest > 0) facts.push(["", `and ${counted(rest, "more value")}`]);
  return facts;
}

/** Live memory of a step by band, and the live values, as lines of text. @param {Model} model @param {number} step */
export function liveLines(model, step) {
  if (step < 0) return ["before the first step"];
  const bands = model.bands.filter((band) => band.live[step] > 0);
  const unit = model.inNodes ? `${counted(model.live[step], "value")}, ` : "";
  const lines = [
    `step ${countText(step)}: ${stepWords(model, step)}${isAgain(model, step) ? " again" : ""}`,
    `live: ${unit}${sizeText(model.live[step] * model.unit)}`,
    ...bands.map((band) => `${band.name}: ${liveText(band.live[step], model.inNodes)}`),
  ];
  if (model.host && model.host[step] > 0) lines.push(`on the host: ${sizeText(model.host[step])}`);
  const names = residentAt(model, step).map((value) => model.graph.data.names[value]);
  if (names.length) lines.push(listed(names, MOST_NAMES));
  return lines;
}

/** The card of the node that is selected. */
export class Details {
  /** @param {(step: number) => void} onSeek @param {() => void} onClose */
  constructor(onSeek, onClose) {
    this.card = document.getElementById("node");
    this.title = document.getElementById("node-title");
    this.list = document.getElementById("node-facts");
    this.onSeek = onSeek;
    document.getElementById("node-close").addEventListener("click", onClose);
  }

  /** Show a cell of a panel, or a value; without any, nothing. */
  show(panel, cell, value) {
    this.card.hidden = cell < 0 && value < 0;
    if (this.card.hidden) return;
    const facts = panel.facts(cell, value);
    const state = [panel.title, panel.index, cell, value, ...facts.map(([term]) => term)].join();
    const title = value < 0 ? cellName(panel.model, panel.view, cell) : panel.model.graph.data.names[value];
    if (state !== this.state || panel.model !== this.model) this.build(title, facts);
    this.state = state;
    this.model = panel.model;
    facts.forEach(([, fact], i) => {
      // Only what differs, so that a button that is in use stays.
      const dd = this.list.children[2 * i + 1];
      if (typeof fact === "string") setText(dd, fact);
    });
  }

  build(title, facts) {
    this.title.textContent = title;
    this.list.replaceChildren(
      ...facts.flatMap(([term, fact]) => {
        const dt = document.createElement("dt");
        const dd = document.createElement("dd");
        dt.textContent = term;
        if (typeof fact !== "string") dd.append(...this.links(fact));
        return [dt, dd];
      }),
    );
  }

  /** Steps as buttons that lead there. @param {number[]} steps */
  links(steps) {
    const buttons = steps.slice(0, MOST_STEPS).map((step) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "link";
      button.textContent = countText(step);
      button.addEventListener("click", () => this.onSeek(step));
      return button;
    });
    const rest = steps.length - buttons.length;
    return rest > 0 ? [...buttons, `and ${countText(rest)} more`] : buttons;
  }
}

/** The tooltip of a node: the essentials. @param {Panel} panel @param {number} cell */
export function tipLines(panel, cell) {
  const { model, step, view } = panel;
  const operators = listAt(view.operators, cell);
  const values = Array.from(listAt(view.data, cell));
  const { sofar, all } = evaluationsOf(model, operators, step);
  const bytes = values.reduce((sum, i) => sum + model.graph.data.nbytes[i], 0);
  const spec = values.length === 1 ? `${model.graph.data.specs[values[0]]}, ` : "";
  return [
    cellName(model, view, cell),
    `${spec}${sizeText(bytes)}`,
    `evaluated ${countText(sofar)} of ${counted(all, "time")}`,
    lookWords(panel.ledger.history, cell, panel.step),
    ...(values.length === 1 ? [whyWords(model, values[0])] : []),
    ...(cell in view.opens ? ["click to open"] : []),
  ];
}
