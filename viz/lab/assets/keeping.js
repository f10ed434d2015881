/** Toggling of saved values: what a click on a graph node changes in the chosen schedule. */

import { listAt } from "../../player/assets/columns.js";
import { cellName } from "../../player/assets/details.js";

/**
 * @import { Choice, Offers } from "./offers.js"
 */

/** The values that a cell would keep or drop. @param {Offers} offers @returns {number[]} */
function valuesOf(offers, view, cell) {
  const { operators, forward_count: forward } = offers.graph;
  const own = Array.from(listAt(view.data, cell)).filter((value) => offers.canKeep(value));
  if (!view.groups[cell]) return own;
  // Of a group, outputs read outside it in the forward pass; else all that the backward pass reads.
  const inside = new Set(listAt(view.operators, cell));
  const leaving = new Set();
  for (let i = 0; i < forward; i++) {
    if (!inside.has(i)) for (const value of listAt(operators.inputs, i)) leaving.add(value);
  }
  const out = own.filter((value) => leaving.has(value));
  return out.length ? out : own.filter((value) => offers.graph.firstReader?.[value] >= 0);
}

/** What keeps or drops a cell, or one value; null if there is nothing to keep. To keep what
 * was dropped last is to go back. Where all is kept that a policy kept which was chosen before, and the
 * schedule is the very same, it is that choice again.
 * @param {Offers} offers @param {Choice[]} choices so far; the last one is shown
 * @returns {{choice: Choice, keeps: boolean, values: number[], name: string, change: string} | null}
 */
export function toggled(offers, choices, panel, cell, value) {
  const now = choices.at(-1);
  const whole = value < 0 && cell >= 0 ? Array.from(listAt(panel.view.data, cell)) : [value];
  const values =
    value >= 0 ? [value].filter((each) => offers.canKeep(each)) : cell < 0 ? [] : valuesOf(offers, panel.view, cell);
  if (!values.length) return null;
  const kept = new Set(offers.keptBy(now));
  const keeps = !values.every((each) => kept.has(each));
  const before = choices.at(-2);
  const undoes = keeps && before && areEqual(without(offers.keptBy(before), whole), kept);
  if (keeps) for (const each of values) kept.add(each);
  else for (const each of whole) kept.delete(each);
  const origin = choices.findLast(({ kind }) => kind !== "kept");
  const choice = undoes ? before : offers.keepingAs(kept, origin);
  const name = value < 0 ? cellName(panel.model, panel.view, cell) : offers.graph.data.names[value];
  const own = choice.kind === now.kind || offers.isByHand(now);
  const change = offers.difference(offers.plan(now), offers.plan(choice)) + (own ? "" : ", as the policy retain");
  return { choice, keeps, values, name, change };
}

/** Some values without others, as a set. @param {Iterable<number>} some @param {number[]} values */
function without(some, values) {
  const left = new Set(some);
  for (const value of values) left.delete(value);
  return left;
}

/** @param {Set<number>} one @param {Set<number>} other */
function areEqual(one, other) {
  return one.size === other.size && [...one].every((value) => other.has(value));
}
