/** Bars of a space-time diagram (ledger): live intervals of values, marks of evaluations. */

import { COUNTED } from "./axis.js";
import { Column } from "./columns.js";
import { historyOfView } from "./model.js";
import { firstAfter } from "./reasons.js";
import { DROPPED, NOT_YET, isStaying, lastAtMost } from "./state.js";

/**
 * @import { Model } from "./data.js"
 * @import { Ledger } from "./ledger.js"
 * @import { History } from "./state.js"
 */

const LEAST_SHARE = 0.4; // of its height that a group has which holds anything
export const WIDEST_MARK = 5; // pixels of an evaluation, where an axis counts steps

/**
 * The bars of a view: from when to when a cell holds the same, those of cell c from first[c] to
 * first[c + 1]. To be evaluated is another look, and the same bar.
 *
 * @typedef {object} Bars
 * @property {Int32Array} first
 * @property {Int32Array} begins the step from which on
 * @property {Int32Array} ends the step up to which
 * @property {Uint8Array} fills what it holds
 * @property {Uint8Array} stay whether that are gradients that stay, alone
 * @property {Float64Array} shares how much
 * @property {Float64Array} keeps the part of it that was kept, or stays
 *
 * @param {Model} model @param {number} view @returns {Bars}
 */
export function barsOfView(model, view) {
  const history = historyOfView(model, view);
  history.bars ??= barsOf(history, model.count);
  return history.bars;
}

/** @param {History} history @param {number} count of steps @returns {Bars} */
function barsOf(history, count) {
  const { steps, looks, shares, keeps } = history;
  const [begins, ends, amounts, parts] = [Int32Array, Int32Array, Float64Array, Float64Array].map(
    (Type) => new Column(Type),
  );
  const [fills, stay] = [new Column(Uint8Array), new Column(Uint8Array)];
  const first = new Int32Array(history.first.length);
  for (let cell = 0; cell + 1 < first.length; cell++) {
    const last = history.first[cell + 1];
    for (let i = history.first[cell], next = i; i < last; i = next) {
      next = i + 1;
      const fill = looks[i] & 7;
      if (fill === NOT_YET || fill === DROPPED) continue;
      while (next < last && (looks[next] & 7) === fill && shares[next] === shares[i] && keeps[next] === keeps[i])
        next++;
      begins.push(Math.max(steps[i], 0));
      ends.push(next < last ? steps[next] : count);
      fills.push(fill);
      stay.push(Number(isStaying(history, i)));
      amounts.push(shares[i]);
      parts.push(keeps[i]);
    }
    first[cell + 1] = begins.length;
  }
  return {
    first,
    begins: begins.done(),
    ends: ends.done(),
    fills: fills.done(),
    stay: stay.done(),
    shares: amounts.done(),
    keeps: parts.done(),
  };
}

/** Draw what a cell holds: of a group, the higher the nearer that is to the most it ever holds.
 * @param {Ledger} ledger @param {number} cell
 */
export function drawBars(ledger, cell) {
  const { model, places, view, index } = ledger;
  const bars = barsOfView(model, index);
  const { begins, ends, fills, stay, shares, keeps } = bars;
  const { from, scale, width } = ledger.sight;
  const group = view.groups[cell];
  const most = ledger.most[cell];
  const [above, low] = ledger.lane(cell);
  const room = low - above - (group ? ledger.markHeight(cell) : 0);
  const last = bars.first[cell + 1];
  let drawn = -1; // the last column, and how high it is filled there, of bars thinner than it
  let drawnTo = 0;
  for (
    let i = Math.max(bars.first[cell], lastAtMost(ends, ledger.sight.step, bars.first[cell], last) + 1);
    i < last;
    i++
  ) {
    const left = Math.round((places[begins[i]] - from) * scale);
    if (left >= width) break;
    const right = Math.max(Math.round((places[ends[i]] - from) * scale), left + 1);
    if (right <= 0) continue;
    const share = group ? LEAST_SHARE + ((1 - LEAST_SHARE) * shares[i]) / most : 1;
    const height = Math.max(Math.round(share * room), 1);
    if (right - left === 1 && left === drawn && height <= drawnTo) continue;
    [drawn, drawnTo] = [left, height];
    // The lower part of the live bytes: kept values, or results.
    const kept = keeps[i] ? Math.round((height * keeps[i]) / shares[i]) : 0;
    ledger.bar(left, low - height, right, low, fills[i], stay[i] ? height : Math.min(kept, height - 1));
  }
}

/** Draw the marks of a cell's evaluations: of a group's above its bars, else as high as these.
 * @param {Ledger} ledger @param {number} cell
 */
export function drawEvaluations(ledger, cell) {
  const { model, places, ink, view, layers } = ledger;
  const { from, scale, width } = ledger.sight;
  const { computes, again } = model;
  const own = ledger.marksOf(cell);
  const group = view.groups[cell];
  const thick = Math.max(1, Math.round(layers.ratio));
  let [high, low] = ledger.lane(cell);
  if (group) {
    if (!ledger.markHeight(cell)) return;
    low = high + ledger.markHeight(cell);
  } else if (low - high >= 6) [high, low] = [high - 2 * thick, low + (view.backward[cell] ? 2 : 1) * thick];
  const widest = COUNTED.includes(ledger.scales.extent.axis) && !group ? WIDEST_MARK * layers.ratio : Infinity;
  const least = Math.min(2, thick);
  const first = view.backward[cell] ? ink.staying : ink.ink;
  for (let i = firstAfter(model, own, ledger.sight.step - 1); i < own.length; i++) {
    const step = computes[own[i]];
    const left = Math.round((places[step] - from) * scale);
    if (left >= width) break;
    const right = Math.max(Math.min(Math.round((places[step + 1] - from) * scale), left + widest), left + least);
    layers.box(left, high, right, low, again[own[i]] ? ink.recomputing : first, thick);
  }
}
