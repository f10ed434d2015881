/** Marks of a widget's row, as SVG: tiles, the arrow of a recomputation, the gradient, work, memory. */

import { memoryText } from "./moments.js";

/**
 * @import { RowData, RowState, TraceData } from "./moments.js"
 */

export const TILES_HIGH = 112; // of the marks beside the tank, in pixels of a font of 16
const TILE_TOP = 20;
const TILE_HIGH = 43;
const GRADIENT_Y = 76;
const NUMBER_Y = 94;
const WORK_Y = 98;
export const TANK_HIGH = 142;
export const BAR_HIGH = 42; // of the memory where it lies below the tiles
const MOST_SLICES = 40; // values in a tank that are drawn one by one
const MEMORY_FILLS = ["kept", "recomputed", "gradient", "staying", "workspace"];
const LANDS = "5.5 3.5"; // an outline in dashes: not computed yet

/** The width of a tank with its words. @param {TraceData} data */
export const tankWide = ({ unit }) => (unit === "values" ? 176 : 208);

/** @param {number} number */
const short = (number) => String(Math.round(100 * number) / 100);

/** A rectangle. @param {string} name its classes @param {string} [more] attributes */
function box(name, x, y, wide, high, corner, more = "") {
  const place = `x="${short(x)}" y="${short(y)}" width="${short(Math.max(wide, 0))}" height="${short(Math.max(high, 0))}"`;
  return `<rect class="${name}" ${place} rx="${corner}" ${more}/>`;
}

/** @param {string} name @param {string} path */
const stroke = (name, path) => `<path class="${name}" d="${path}"/>`;

/** @param {string} name @param {string} words */
function label(name, x, y, words, anchor = "start") {
  return `<text class="${name}" x="${short(x)}" y="${short(y)}" text-anchor="${anchor}">${words}</text>`;
}

/** The left end and the width of each tile. @param {number} count @param {number} wide */
export function tileBoxes(count, wide) {
  const pitch = wide / Math.max(count, 8);
  const gap = pitch > 24 ? 4 : pitch > 14 ? 2 : 1.5;
  return Array.from({ length: count }, (_, tile) => [tile * pitch, pitch - gap]);
}

/** Tiles, arrow, gradient and work of a row. @param {TraceData} data @param {RowData} row
 * @param {RowState} state @param {number} mostWork @param {number} wide
 */
export function tilesMarks(data, row, state, mostWork, wide) {
  const boxes = tileBoxes(data.tiles, wide - 1);
  const numbered = boxes[0][1] > 17 || data.tiles < 10;
  const tiles = boxes.map(([x, tileWide], tile) => tileMarks(state, tile, x + 0.75, tileWide, numbered));
  // Where tiles are narrower than their numbers, some numbers stand below.
  const numbers = boxes.map(([x, tileWide], tile) =>
    numbered || (tile && (tile + 1) % 5)
      ? ""
      : label("number hollow below", x + tileWide / 2, NUMBER_Y, String(tile + 1), "middle"),
  );
  return `${tiles.join("")}${numbers.join("")}${arrowMarks(state, boxes)}${gradientMarks(state, boxes)}${workMarks(data, row, state, mostWork, wide)}`;
}

/** One tile, filled from below to the share of its values in memory. @param {RowState} state */
function tileMarks(state, tile, x, wide, numbered) {
  const corner = short(Math.min(5, wide / 4));
  const again = state.again[tile] > 0;
  const share = Math.min(1, state.kept[tile] + state.again[tile]);
  const words = (name) => (numbered ? label(name, x + wide / 2, TILE_TOP + 27, String(tile + 1), "middle") : "");
  const size = wide >= 24 ? "" : " narrow";
  if (state.active === tile && state.run) {
    return box("recomputing", x, TILE_TOP, wide, TILE_HIGH, corner) + words(`number on-recomputing${size}`);
  }
  if (share <= 0) {
    const dash = state.computed[tile] ? "" : `stroke-dasharray="${LANDS}"`;
    const name = state.computed[tile] ? "dropped" : "not-yet";
    return box(name, x, TILE_TOP, wide, TILE_HIGH, corner, dash) + words(`number hollow${size}`);
  }
  const name = again ? "recomputed" : "kept";
  // The surface keeps off the number.
  const shown = share < 1 && share > 0.25 && share < 0.75 ? (share > 0.5 ? 0.78 : 0.24) : Math.max(share, 0.12);
  const empty = (1 - shown) * TILE_HIGH;
  const fill = box(name, x, TILE_TOP + empty, wide, TILE_HIGH - empty, share < 1 ? 1 : corner);
  const hatch = again ? box("hatch", x, TILE_TOP + empty, wide, TILE_HIGH - empty, share < 1 ? 1 : corner) : "";
  const outline = box(`outline-${name}`, x, TILE_TOP, wide, TILE_HIGH, corner);
  const plate =
    again && share > 0.5 && numbered
      ? box(
          "recomputed",
          x + wide / 2 - 4.5 * String(tile + 1).length - 2,
          TILE_TOP + 13,
          9 * String(tile + 1).length + 4,
          18,
          3,
        )
      : "";
  return fill + hatch + outline + plate + words(`number ${share > 0.5 ? `on-${name}` : "hollow"}${size}`);
}

/** The arrow from the tile in memory to the one that is recomputed from it. @param {RowState} state */
function arrowMarks({ run, active }, boxes) {
  if (!run || active === null) return "";
  const middle = (tile) => boxes[tile][0] + boxes[tile][1] / 2;
  const end = middle(active);
  const begin = run[2] === null ? 0 : middle(run[2]);
  const base = TILE_TOP - 2;
  const curve = `M${short(begin)} ${base - 2}Q${short((begin + end) / 2)} ${base - 28} ${short(end)} ${base - 5}`;
  const head = `M${short(end - 5)} ${base - 8}L${short(end)} ${base}L${short(end + 5)} ${base - 8}z`;
  return stroke("arrow", curve) + stroke("arrow-head", head);
}

/** The marker of the gradient, under the tile that it has reached. @param {RowState} state */
function gradientMarks({ gradient }, boxes) {
  if (gradient === null) return "";
  const [x, wide] = boxes[gradient];
  const tip = x - 17;
  const line = `M${short(x - 3)} ${GRADIENT_Y}H${short(tip)}m6 -5l-6 5l6 5`;
  return box("gradient", x + 0.75, GRADIENT_Y - 8, wide, 16, 4) + (tip > 0 ? stroke("gradient-arrow", line) : "");
}

/** The bar of work done, with a mark where the row ends. @param {TraceData} data @param {RowData} row */
function workMarks(data, row, state, mostWork, wide) {
  const unit = wide / mostWork;
  let x = 0;
  const parts = ["ink", "gradient", "recomputing"].map((name, kind) => {
    const part = box(name, x, WORK_Y, state.done[kind] * unit, 8, 0);
    x += state.done[kind] * unit;
    return part;
  });
  const end = Math.min(row.work * unit, wide - 1);
  return box("panel", 0, WORK_Y, wide, 8, 4) + parts.join("") + stroke("mark", `M${short(end)} ${WORK_Y - 4}v16`);
}

/** The memory of a row: a tank, or a bar where there is no room beside the tiles; and the most so far.
 * @param {TraceData} data @param {RowState} state @param {number} highest @param {number} [lying] its width
 */
export function memoryMarks(data, state, highest, lying = 0) {
  const [long, thick] = lying ? [lying, 18] : [TANK_HIGH, 64];
  const unit = (long - 2) / Math.max(highest, 1);
  const slices = data.unit === "values" && highest <= MOST_SLICES;
  /** A part from one amount to another. */
  const part = (name, from, amount) => {
    const gap = slices ? Math.min(1.6, (amount * unit) / 4) : 0;
    const [begin, size] = [from * unit + 1 + gap / 2, amount * unit - gap];
    if (lying) return box(name, begin, 3, size, thick - 6, 1);
    return box(name, 3, TANK_HIGH - begin - size, thick - 6, size, 1);
  };
  let marks = lying
    ? box("tank", 0.75, 0.75, long - 1.5, thick - 1.5, 5)
    : box("tank", 0.75, 0.75, thick, long - 1.5, 6);
  let level = 0;
  state.bands.forEach((band, kind) => {
    const amounts = slices ? new Array(Math.round(band)).fill(1) : [band];
    for (const amount of amounts) {
      if (amount > 0) marks += part(MEMORY_FILLS[kind], level, amount);
      level += amount;
    }
  });
  const where = Math.min(state.peak * unit + 1, long - 1);
  const words = state.peak ? `peak ${memoryText(data, state.peak)}` : "";
  const unitWords = data.unit === "values" ? ["values in", "memory"] : ["in memory", ""];
  if (lying) {
    const mark = state.peak ? stroke("mark", `M${short(where)} -4v26`) : "";
    return marks + mark + label("peak", 0, 37, words) + label("muted", long, 37, unitWords.join(" "), "end");
  }
  const y = TANK_HIGH - where;
  if (state.peak) marks += stroke("mark", `M-6 ${short(y)}H71`) + label("peak", 79, Math.max(y + 5, 11), words);
  if (!state.peak || y + 8 < TANK_HIGH - 32) {
    unitWords.forEach((word, line) => (marks += label("muted", 79, TANK_HIGH - 20 + 16 * line, word)));
  }
  return marks;
}
