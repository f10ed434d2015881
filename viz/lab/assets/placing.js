/**
 * Simple graph layout in the browser, for graphs that the page was given: forward operators in
 * build order, row by row, each with its backward operators below it. Scopes are collapsed into
 * groups, and long stretches without scopes into runs, so that no view has more cells than one can
 * read. Graphs that Python lays out have better positions; the ledger, which needs none, is the
 * same.
 */

import { listAt } from "../../player/assets/columns.js";
import { cutTo, textWidth } from "../../player/assets/ruler.js";
import { endToEnd, shownName } from "./graphs.js";

/**
 * @import { Graph } from "../../player/assets/data.js"
 */

const [PLACED_WIDTH, LINE_HIGH, MARGIN] = [800, 92, 40]; // pixels
const [ROUND, GROUP_WIDE, GROUP_HIGH] = [30, 64, 32];
const [APART_ROUND, APART_GROUP] = [48, 100]; // from cell to cell
const MOST_CELLS = 48; // forward ones in a view that is not folded further, if it can be
const LABEL_SIZE = 11;

/** A cell before it has a place.
 * @typedef {{name: string, title: string, forward: number[], backward: number[], opens: number | null}} Placed
 */

/** All views of a graph, the whole one first.
 * @param {Graph} graph @param {Record<string, string>} symbols what a node says, by its operator's kind
 */
export function placedViews(graph, symbols) {
  const { operators, forward_count: forward } = graph;
  const adjoints = Array.from({ length: forward }, () => []);
  const alone = [];
  for (let i = forward; i < operators.names.length; i++) (adjoints[operators.adjoints[i]] ?? alone).push(i);
  const views = [];
  const open = (title, members, depth, parent, others) => {
    const index = views.push(null) - 1;
    const cells = foldedCells(graph, members, depth).map((cell) => ({
      ...cell,
      backward: cell.forward.flatMap((i) => adjoints[i]),
      opens: cell.forward.length > 1 ? open(cell.title, cell.forward, cell.depth, index, []) : null,
    }));
    views[index] = viewOf(graph, title, parent, cells, others, symbols);
    return index;
  };
  open(
    graph.name,
    Array.from({ length: forward }, (_, i) => i),
    0,
    null,
    alone,
  );
  return views;
}

/** Some forward operators as cells: by scope where there are many, and no more than one can read. */
function foldedCells(graph, members, depth) {
  if (members.length <= MOST_CELLS) return members.map((i) => single(graph, i, depth));
  const cells = scopeCells(graph, members, depth) ?? members.map((i) => single(graph, i, depth));
  if (cells.length <= 2 * MOST_CELLS) return cells;
  const wide = Math.ceil(cells.length / MOST_CELLS);
  return Array.from({ length: Math.ceil(cells.length / wide) }, (_, k) => {
    const run = cells.slice(k * wide, (k + 1) * wide);
    const name = run.length === 1 ? run[0].name : `${shownName(run[0].name)} to ${shownName(run.at(-1).name)}`;
    return { name, title: name, forward: run.flatMap(({ forward }) => forward), depth };
  });
}

/** Operators in their order, in no more runs than one can read. @param {number[]} operators */
function runsToRead(operators) {
  const wide = Math.ceil(operators.length / MOST_CELLS);
  return Array.from({ length: wide && Math.ceil(operators.length / wide) }, (_, k) =>
    operators.slice(k * wide, (k + 1) * wide),
  );
}

function single(graph, i, depth) {
  return { name: graph.operators.plain[i], title: graph.operators.names[i], forward: [i], depth };
}

/** A cell for each scope, at the first level that tells them apart; null if none does. */
function scopeCells(graph, members, depth) {
  const parts = members.map((i) => graph.operators.scopes[i].split("/").filter(Boolean));
  for (let level = depth; parts.some((part) => part.length > level); level++) {
    const groups = new Map();
    members.forEach((i, k) => {
      const own = parts[k].slice(level, level + 1).join() || `${i}/`; // no scope's name has a stroke
      if (!groups.has(own)) groups.set(own, { scope: parts[k].slice(0, level + 1), forward: [] });
      groups.get(own).forward.push(i);
    });
    if (groups.size === 1) continue;
    return Array.from(groups.values(), ({ scope, forward }) =>
      forward.length === 1
        ? single(graph, forward[0], level)
        : { name: scope[level], title: scope.join("/"), forward, depth: level + 1 },
    );
  }
  return null;
}

/** A view as a page's data have it. @param {Placed[]} cells @param {number[]} others backward ones alone */
function viewOf(graph, title, parent, cells, others, symbols) {
  const folded = cells.some(({ opens }) => opens !== null);
  const apart = folded ? APART_GROUP : APART_ROUND;
  const across = Math.floor((PLACED_WIDTH - 2 * MARGIN) / apart) + 1;
  const list = [];
  const [{ plain }, alone] = [graph.operators, runsToRead(others)];
  const add = (cell, operators, backward, mirror, place) =>
    list.push({ ...cell, operators, backward, mirror, place, group: cell.opens !== null && !backward });
  cells.forEach((cell, place) => add(cell, cell.forward, 0, -1, place));
  cells.forEach((cell, place) => cell.backward.length && add(cell, cell.backward, 1, place, place));
  alone.forEach((run, k) => {
    const name = run.length === 1 ? plain[run[0]] : `${shownName(plain[run[0]])} to ${shownName(plain[run.at(-1)])}`;
    add({ name, title: name, opens: null }, run, 1, -1, cells.length + k);
  });
  const x = list.map(({ place }) => MARGIN + (place % across) * apart);
  const y = list.map(({ place, backward }) => MARGIN + Math.floor(place / across) * LINE_HIGH + 44 * backward);
  const widths = list.map(({ group, mirror }) => (group || list[mirror]?.group ? GROUP_WIDE : ROUND));
  const heights = list.map(({ group, mirror }) => (group || list[mirror]?.group ? GROUP_HIGH : ROUND));
  const lines = arrowsBetween(graph, list, x, y, heights);
  return {
    title: shownName(title),
    parent,
    opens: Object.fromEntries(list.flatMap(({ opens }, cell) => (opens === null ? [] : [[cell, opens]]))),
    width: PLACED_WIDTH,
    height: y.reduce((a, b) => Math.max(a, b), 0) + MARGIN,
    diameter: folded ? GROUP_HIGH : ROUND,
    head: 5,
    line: 1.2,
    widths: tenths(widths),
    heights: tenths(heights),
    labels: list.map((cell, i) => labelOf(graph, cell, widths[i] - 6, symbols)),
    points: new Int32Array(list.length).fill(LABEL_SIZE),
    titles: list.map((cell) => shownName(cell.title)),
    rows: distinctRows(list.map(({ name, title: full }) => [shownName(name), shownName(full)])),
    mirrors: Int32Array.from(list, ({ mirror }) => mirror),
    groups: Uint8Array.from(list, ({ group, mirror }) => Number(group || Boolean(list[mirror]?.group))),
    backward: Uint8Array.from(list, ({ backward }) => backward),
    operators: endToEnd(list.map(({ operators }) => operators)),
    data: endToEnd(
      list.map(({ operators }) => operators.flatMap((i) => Array.from(listAt(graph.operators.outputs, i)))),
    ),
    x: tenths(x),
    y: tenths(y),
    arrows: lines.near,
    faint: lines.far,
    headings: [],
    dots_x: new Int32Array(0),
    dots_y: new Int32Array(0),
  };
}

/** The label of a node: its name, or its operator's symbol, as it fits. */
function labelOf(graph, { name, forward, operators, group }, room, symbols) {
  const own = forward?.[0] ?? operators[0];
  const kind = graph.operators.kinds[own];
  const long = group || textWidth(name, LABEL_SIZE) <= room;
  return cutTo(shownName(long ? name : Object.hasOwn(symbols, kind) ? symbols[kind] : kind), LABEL_SIZE, room);
}

/** Names of rows, each once where that can be: in full where two are the same. */
function distinctRows(names) {
  const times = new Map();
  for (const [name] of names) times.set(name, (times.get(name) ?? 0) + 1);
  return names.map(([name, full]) => (times.get(name) > 2 ? full : name));
}

/** Reads between cells: arrows between neighbours, and faint ones across others. */
function arrowsBetween(graph, list, x, y, heights) {
  const cellOf = new Map();
  list.forEach(({ operators }, cell) => operators.forEach((i) => cellOf.set(i, cell)));
  const { inputs } = graph.operators;
  const [near, far, seen] = [[], [], new Set()];
  list.forEach(({ operators }, to) => {
    for (const value of operators.flatMap((i) => Array.from(listAt(inputs, i)))) {
      const from = cellOf.get(graph.data.producers[value]);
      if (from === undefined || from === to || seen.has(from * list.length + to)) continue;
      seen.add(from * list.length + to);
      const beside = Math.abs(list[from].place - list[to].place) <= 1 && y[from] === y[to];
      const below = list[to].mirror === from;
      (beside || below ? near : far).push({ from, to, points: edge(x, y, heights, from, to) });
    }
  });
  return { near: linesOf(near), far: linesOf(far) };
}

/** A straight line from rim to rim. */
function edge(x, y, heights, from, to) {
  const [dx, dy] = [x[to] - x[from], y[to] - y[from]];
  const long = Math.max(Math.hypot(dx, dy), 1);
  const reach = (cell) =>
    heights[cell] / 2 + (Math.abs(dy) < 1 && heights[cell] === GROUP_HIGH ? (GROUP_WIDE - GROUP_HIGH) / 2 : 0) + 1;
  const at = (cell, sign) => [x[cell] + (sign * dx * reach(cell)) / long, y[cell] + (sign * dy * reach(cell)) / long];
  return [at(from, 1), at(to, -1)];
}

function linesOf(lines) {
  const points = lines.flatMap((line) => line.points);
  return {
    sources: Int32Array.from(lines, ({ from }) => from),
    targets: Int32Array.from(lines, ({ to }) => to),
    first: Int32Array.from({ length: lines.length + 1 }, (_, i) => 2 * i),
    x: tenths(points.map(([px]) => px)),
    y: tenths(points.map(([, py]) => py)),
  };
}

/** Coordinates in tenths of a pixel. @param {number[]} values */
function tenths(values) {
  return Int32Array.from(values, (value) => Math.round(10 * value));
}
