/** Descriptions of a graph node's state at a step, for labels, tooltips and the table. */

import { listAt } from "./columns.js";
import { countText, listed, sizeText } from "./format.js";
import { DROPPED, NOT_YET, changeAt, lookText } from "./state.js";

/**
 * @import { Graph, View } from "./data.js"
 * @import { History } from "./state.js"
 */

const MOST_SPANS = 4; // of a cell, that are listed

/** The total bytes of each cell of a view. @param {Graph} graph @param {View} view */
export function sizesOf({ data }, view) {
  view.sizes ??= Float64Array.from(view.labels, (_, cell) =>
    listAt(view.data, cell).reduce((sum, value) => sum + data.nbytes[value], 0),
  );
  return view.sizes;
}

/** The look of a cell at a step, as text. @param {History} history */
export function lookWords(history, cell, step) {
  return lookText(history.looks[changeAt(history, cell, step)], history.ringed[cell] === 1).replace(
    "*",
    ", checkpoint",
  );
}

/** What a cell is at a step, in words: its look, and the bytes that it holds.
 * @param {Graph} graph @param {View} view @param {History} history
 */
export function cellWords(graph, view, history, cell, step) {
  const held = heldBytes(graph, view, history, cell, changeAt(history, cell, step));
  return `${lookWords(history, cell, step)}${held ? `, ${sizeText(held)}` : ""}`;
}

/** Resident bytes of a cell after one of its changes. */
export function heldBytes(graph, view, history, cell, change) {
  const fill = history.looks[change] & 7;
  return fill === NOT_YET || fill === DROPPED ? 0 : Math.round(history.shares[change] * sizesOf(graph, view)[cell]);
}

/** Live intervals of a cell, in steps, as text. @param {History} history @param {number} count of steps */
export function heldWords(history, cell, count) {
  const { first, steps, looks } = history;
  const spans = [];
  let begin = -1;
  for (let i = first[cell]; i <= first[cell + 1]; i++) {
    const ended = i === first[cell + 1];
    const holds = !ended && (looks[i] & 7) !== NOT_YET && (looks[i] & 7) !== DROPPED;
    if (holds && begin < 0) begin = steps[i];
    if (holds || begin < 0) continue;
    spans.push(ended ? `${countText(begin)} to the end` : `${countText(begin)} to ${countText(steps[i] - 1)}`);
    begin = -1;
  }
  return spans.length ? listed(spans, MOST_SPANS) : "never";
}
