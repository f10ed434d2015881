/** The story of a widget: rows of data as moments, two rows in step, and what is said of them. */

import { countText, sizeText } from "../../player/assets/format.js";

/**
 * One row at one moment; viz/explainer/story.py says what each is.
 * @typedef {object} RowState
 * @property {number[]} kept Share of each tile, from 0 to 1, that is in memory since its first evaluation.
 * @property {number[]} again The share that was recomputed.
 * @property {boolean[]} computed
 * @property {number | null} active
 * @property {number | null} gradient
 * @property {number[]} bands Memory by kind: kept, recomputed, gradients, results, workspace.
 * @property {number} peak
 * @property {number[]} done Work by kind: forward, backward, again.
 * @property {[number, number, number | null] | null} run
 * @property {boolean} waits
 * @property {number | null} step Of the trace, where the data say it.
 *
 * @typedef {object} RowData
 * @property {string} policy
 * @property {string} heading
 * @property {string} subtitle
 * @property {number[] | null} kept
 * @property {boolean} [host] Whether it offloads values to host memory.
 * @property {number} peak
 * @property {number} work
 * @property {string} moments
 * @property {number[]} [steps] Of the trace, by moment.
 *
 * @typedef {object} TraceData
 * @property {string} name
 * @property {string} noun
 * @property {number} tiles How many.
 * @property {string} sizes
 * @property {"values" | "bytes"} unit
 * @property {number} scale
 * @property {number} workScale
 * @property {RowData[]} rows
 *
 * @typedef {"forward" | "turn" | "first" | "backward"} Phase
 * @typedef {{ phase: Phase, rows: RowState[] }} Moment
 */

const BASE64 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const AGAIN_SYMBOL = 32; // the symbol of a tile's recomputed values, after its own
export const RESULTS = "%";
export const WORKSPACE = "!";
const MEMORY = `*+${RESULTS}${WORKSPACE}^`; // outside of tiles, gradients, results, workspace, the peak so far
const WORKS = "()~"; // as much as before
const WORKS_WITH_DIGITS = "[]=";
export const STOP_NAMES = ["start", "peak", "first recomputation", "end"];
// Seconds of the phases; of the rest, at least, and per moment.
const SECONDS = { forward: 1.5, turn: 1, first: 4 };
const REST = 3.5;
const EACH = 0.15;

/** One digit. @param {string} text @param {number} at */
function digit(text, at) {
  const found = BASE64.indexOf(text[at]);
  if (found < 0 || at >= text.length)
    throw new Error(`the data are damaged: expected a digit, found ${text[at] ?? "the end"}`);
  return found;
}

/** Two digits as an amount. @param {string} text @param {number} at */
function twoDigits(text, at) {
  return 64 * digit(text, at) + digit(text, at + 1);
}

/** The data, if they are a widget's; else an error that says what is wrong.
 * @param {any} data @returns {TraceData}
 */
export function checkedData(data) {
  if (data?.format !== 1) throw new Error("expected the data of viz.widget, format 1");
  const { tiles, rows, sizes } = data;
  if (!(Number.isInteger(tiles) && tiles >= 1 && tiles <= AGAIN_SYMBOL) || sizes?.length !== 2 * tiles)
    throw new Error(`the data are damaged: expected 1 to ${AGAIN_SYMBOL} tiles with their sizes`);
  if (!Array.isArray(rows) || !rows.length) throw new Error("the data are damaged: no schedule is in them");
  const last = rows.map((row) => intervalsOf(data, row));
  if (last.some((intervals) => intervals.length !== last[0].length))
    throw new Error("the data are damaged: their schedules are not of one length");
  rows.forEach(({ policy, peak }, row) => {
    const told = last[row][last[row].length - 1].at(-1).peak;
    if (!(Math.abs(told - peak) <= data.scale))
      throw new Error(`the data are damaged: the peak of ${policy} is not told`);
  });
  return data;
}

/** The intervals of a row, each with its recomputations and its end; viz/widget/data.py writes them.
 * @param {TraceData} data @param {RowData} row @returns {RowState[][]}
 */
export function intervalsOf(data, row) {
  const count = data.tiles;
  const sizes = Array.from({ length: count }, (_, tile) => twoDigits(data.sizes, 2 * tile) * data.scale);
  const levels = new Array(2 * AGAIN_SYMBOL).fill(0);
  const memory = [0, 0, 0, 0, 0];
  const done = [0, 0, 0];
  const added = [0, 0, 0];
  const computed = new Array(count).fill(false);
  let active = null;
  let gradient = null;
  let told = 0;
  const shares = (first) => levels.slice(first, first + count).map((level) => level / 63);
  const state = () => {
    const [kept, again] = [shares(0), shares(AGAIN_SYMBOL)];
    const total = (part) => part.reduce((sum, share, tile) => sum + share * sizes[tile], 0);
    const [outside, gradients, results, workspace, peak] = memory.map((amount) => amount * data.scale);
    const bands = [total(kept) + outside, total(again), gradients, results, workspace];
    return {
      ...{ kept, again, computed: [...computed], active, gradient, bands, run: null, waits: false },
      peak: Math.min(peak, row.peak),
      done: done.map((work) => work * data.workScale),
      step: told ? (row.steps?.[told - 1] ?? null) : -1,
    };
  };
  const intervals = [[state()]];
  let moments = [];
  const text = row.moments;
  for (let at = 0; at < text.length; at++) {
    const symbol = text[at];
    const tile = BASE64.indexOf(symbol);
    if (tile >= 0) {
      levels[tile] = digit(text, ++at);
    } else if (symbol === ":") active = (active ?? 0) + 1;
    else if (symbol === ";") gradient = (gradient ?? 0) - 1;
    else if (symbol === "@" || symbol === "$") {
      const other = BASE64.indexOf(text[++at]);
      if (symbol === "@") active = other < 0 ? null : other;
      else gradient = other < 0 ? null : other;
    } else if (MEMORY.includes(symbol)) {
      memory[MEMORY.indexOf(symbol)] = twoDigits(text, at + 1);
      at += 2;
    } else if (symbol === "," || symbol === ".") {
      // The forward pass goes from tile to tile; at its end all are computed.
      const reached = gradient === null && !done[1] ? (active ?? -1) : count - 1;
      computed.fill(true, 0, reached + 1);
      told++;
      moments.push(state());
      if (symbol === ".") {
        intervals.push(withRuns(moments, intervals[intervals.length - 1]));
        moments = [];
      }
    } else {
      const repeated = WORKS.indexOf(symbol);
      const work = repeated < 0 ? WORKS_WITH_DIGITS.indexOf(symbol) : repeated;
      if (work < 0) throw new Error(`the data are damaged: unexpected ${symbol}`);
      if (repeated < 0) {
        added[work] = twoDigits(text, at + 1);
        at += 2;
      }
      done[work] += added[work];
    }
  }
  return intervals;
}

/** An interval's moments, whose recomputations know the run that they are in, and what it starts from.
 * @param {RowState[]} moments @param {RowState[]} before @returns {RowState[]}
 */
function withRuns(moments, before) {
  const tiles = moments.slice(0, -1).flatMap(({ active }) => (active === null ? [] : [active]));
  if (!tiles.length) return moments;
  const [first, last] = [Math.min(...tiles), Math.max(...tiles)];
  const { kept, again } = before[before.length - 1];
  let source = first - 1;
  while (source >= 0 && !kept[source] && !again[source]) source--;
  for (const moment of moments.slice(0, -1)) moment.run = [first, last, source < 0 ? null : source];
  return moments;
}

/** Rows in step: one that has nothing to recompute waits for the others.
 * @param {RowState[][][]} rows @returns {Moment[]}
 */
export function inStep(rows) {
  let now = rows.map((row) => row[0][0]);
  /** @type {Moment[]} */
  const moments = [{ phase: "forward", rows: now }];
  let told = false;
  for (let place = 1; place < rows[0].length; place++) {
    const interval = rows.map((row) => row[place]);
    const most = Math.max(...interval.map((states) => states.length)) - 1;
    for (let turn = 0; turn < most; turn++) {
      now = interval.map((states, row) =>
        turn < states.length - 1 ? states[turn] : { ...now[row], active: null, run: null, waits: true },
      );
      moments.push({ phase: told ? "backward" : "first", rows: now });
    }
    told ||= most > 0;
    const begun = now.some(({ done }) => done[1] > 0);
    now = interval.map((states) => states[states.length - 1]);
    const begins = !begun && now.some(({ done }) => done[1] > 0);
    moments.push({ phase: begins ? "turn" : begun ? "backward" : "forward", rows: now });
  }
  return moments;
}

/** Live memory of a row. @param {RowState} state */
export function live({ bands }) {
  return bands.reduce((sum, band) => sum + band, 0);
}

/** The name of a stop; "recomputation" is the first one. @param {string | null} stop */
export function stopNamed(stop) {
  return stop === "recomputation" ? "first recomputation" : stop;
}

/** The moments of STOP_NAMES: the peak and the first recomputation are those of the last row.
 * @param {Moment[]} moments @returns {Record<string, number>}
 */
export function stopPlaces(moments) {
  let peak = 0;
  let first = -1;
  moments.forEach(({ phase, rows }, place) => {
    const most = live(moments[peak].rows[moments[peak].rows.length - 1]);
    if (live(rows[rows.length - 1]) > most * (1 + 1e-9)) peak = place;
    if (phase === "first") first = place;
  });
  return { start: 0, peak, "first recomputation": first < 0 ? peak : first, end: moments.length - 1 };
}

/** Seconds that every moment lasts, as in viz/explainer. @param {Moment[]} moments @returns {number[]} */
export function secondsOf(moments) {
  /** @param {Phase} of */
  const count = (of) => moments.filter(({ phase }) => phase === of).length;
  const seconds = { ...SECONDS, backward: Math.max(REST, EACH * count("backward")) };
  return moments.map(({ phase }) => seconds[phase] / count(phase));
}

/** An amount of memory. @param {TraceData} data @param {number} amount */
export function memoryText(data, amount) {
  return data.unit === "values" ? countText(Math.round(amount)) : sizeText(Math.round(amount));
}

/** The sentence under a row, as in viz/explainer.
 * @param {TraceData} data @param {RowData} row @param {RowState} state @param {Phase} phase
 */
export function sentenceOf({ noun }, row, state, phase) {
  if (state.waits) return "The gradient waits for the other one";
  if (state.run) {
    const [first, last, source] = state.run;
    const names = Array.from({ length: last - first + 1 }, (_, k) => String(first + k + 1));
    const some = names.length <= 3 ? names.join(", ") : `${names[0]} to ${names[names.length - 1]}`;
    const word = `${noun[0].toUpperCase()}${noun.slice(1)}${last > first ? "s" : ""}`;
    return `${word} ${some} again, from ${source === null ? "the input" : `${noun} ${source + 1}`}`;
  }
  if (phase === "turn") return "The loss is known; its gradient goes back";
  if (state.gradient !== null) return `The gradient of ${noun} ${state.gradient + 1}`;
  if (row.kept !== null) return "The others are thrown away";
  return row.host ? "The others wait on the host" : `Every ${noun}'s output stays`;
}

/** What a row saves and costs, compared with another: three sentences.
 * @param {RowData} before @param {RowData} after
 */
export function resultsOf(before, after) {
  const less = 1 - after.peak / before.peak;
  const more = after.work / before.work - 1;
  const percent = (share) => `${Math.abs(Math.round(100 * share))} %`;
  let memory = `${percent(less)} ${less > 0 ? "less" : "more"} memory.`;
  if (Math.abs(Math.abs(less) - 0.5) < 0.015 && less > 0) memory = "Half the memory.";
  else if (Math.round(100 * less) === 0) memory = "The same memory.";
  let work = `${percent(more)} ${more > 0 ? "more" : "less"} work.`;
  if (more >= 1) work = `${(1 + more).toFixed(more >= 9 ? 0 : 1)} times the work.`;
  else if (Math.round(100 * more) === 0) work = "No more work.";
  return [memory, work, "The same gradient."];
}
