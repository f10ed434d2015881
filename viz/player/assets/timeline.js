/**
 * Live memory over time, on a canvas: the past filled, the future outlined.
 *
 * Where several ticks share a column of pixels, the one with the most live memory is shown: a real
 * moment, not the maximum of each band.
 */

import { STRIPES } from "./blocks.js";
import { counted } from "./format.js";
import { stepOfTick, ticksOf } from "./model.js";
import { pixelRatio } from "./print.js";
import { HATCH } from "./raster.js";

/**
 * @import { Model } from "./data.js"
 * @import { Axis, Scales } from "./axis.js"
 */

export const HEAD = 14; // pixels above the highest peak, for the strip's own text
export const WORDS = 15; // pixels that words upon a line of a strip are high

/** The tick that every column of pixels shows; -1 where the trace has ended.
 * @param {Model} model
 * @param {Axis} align
 * @param {number} ticks of the longest trace: what the width stands for
 * @param {number} width in pixels
 * @returns {Int32Array}
 */
function tickOfColumn(model, align, ticks, width) {
  const own = ticksOf(model, align);
  const chosen = new Int32Array(width).fill(-1);
  for (let x = 0; x < width; x++) {
    const begin = Math.floor((x * ticks) / width);
    const end = Math.min(Math.max(begin + 1, Math.floor(((x + 1) * ticks) / width)), own);
    let most = -1;
    for (let tick = begin; tick < end; tick++) {
      const live = model.live[stepOfTick(model, tick, align)];
      if (live > most) [most, chosen[x]] = [live, tick];
    }
  }
  return chosen;
}

/** Columns of equal height together: left, right, and the top of every band.
 * @param {Model} model @param {Int32Array} steps one a column
 * @returns {{left: number, right: number, tops: number[]}[]}
 */
export function runsOf(model, steps) {
  const runs = [];
  for (let x = 0; x < steps.length; x++) {
    const step = steps[x];
    if (step < 0) break;
    let sum = 0;
    const tops = model.bands.map((band) => (sum += band.live[step]));
    const last = runs.at(-1);
    if (last?.tops.every((top, i) => top === tops[i])) last.right = x + 1;
    else runs.push({ left: x, right: x + 1, tops });
  }
  return runs;
}

/** What a band fills, as left, low, right, high in pixels; heights are from the ground.
 * @param {ReturnType<typeof runsOf>} runs @param {number} band @param {number} unit pixels of height
 * @returns {number[][]}
 */
function areasOf(runs, band, unit) {
  return runs
    .map(({ left, right, tops }) => [left, heightOf(tops, band - 1, unit), right, heightOf(tops, band, unit)])
    .filter(([, low, , high]) => high > low);
}

/** A band's upper edge, where there is one, and the steps up to it and down, as areas likewise.
 * @param {number} thick how thick the lines are
 */
export function outlinesOf(runs, band, unit, thick) {
  const boxes = [];
  let [end, before, was] = [0, 0, false];
  const step = (x, to) => boxes.push([x, Math.min(before, to), x + thick, Math.max(before, to)]);
  for (const { left, right, tops } of runs) {
    const [low, high] = [heightOf(tops, band - 1, unit), heightOf(tops, band, unit)];
    const here = high > low;
    if (here || was) step(left, high);
    if (here) boxes.push([left, Math.max(high - thick, low), right, high]);
    [end, before, was] = [right, high, here];
  }
  if (was) step(end, 0);
  return boxes;
}

/** How high the top of a band is, in whole pixels; that of none is the ground. */
export function heightOf(tops, band, unit) {
  return band < 0 ? 0 : Math.round(tops[band] * unit);
}

/** Where the words upon a strip's lines end, in pixels from the right: to the left of those that are
 * so near above or below that they would meet.
 * @param {{amount: number}[]} lines @param {number[]} widths of the words @param {number} unit pixels of height
 */
export function wordsEnd(lines, widths, unit) {
  return lines.map(({ amount }, i) => {
    const near = widths.filter((_, k) => k < i && Math.abs(lines[k].amount - amount) * unit < WORDS);
    return near.reduce((sum, width) => sum + width, 0);
  });
}

/** A fill with diagonal stripes, as nodes and the ledger have. @param {number} thick how thick these are */
function hatchedFill(context, fill, stripe, thick) {
  const side = Math.round(HATCH * thick);
  const tile = new OffscreenCanvas(side, side);
  const ink = tile.getContext("2d");
  ink.fillStyle = fill;
  ink.fillRect(0, 0, side, side);
  ink.fillStyle = stripe;
  for (let x = -side; x < side; x++) ink.fillRect(x, (2 * side - 1 - x) % side, Math.max(1, Math.round(thick)), 1);
  return context.createPattern(tile, "repeat");
}

export class Timeline {
  /**
   * @param {HTMLElement} element
   * @param {Model} model
   * @param {Scales} scales shared by all
   */
  constructor(element, model, scales) {
    this.element = element;
    this.scales = scales;
    this.canvas = element.querySelector("canvas");
    this.context = this.canvas.getContext("2d");
    this.layers = null;
    this.lanes = []; // below it, and in step
    this.tick = -1;
    this.cursor = 0; // the column at which it was drawn last
    this.words = [];
    this.take(model);
  }

  /** Take on a schedule. @param {Model} model */
  take(model) {
    this.model = model;
    for (const span of this.words) span.remove();
    this.words = model.strip_lines.map(({ words }) => {
      const span = document.createElement("span");
      span.className = "line";
      span.textContent = words;
      return span;
    });
    this.element.append(...this.words);
    this.element.querySelector(".what").textContent = model.strip_words;
    this.canvas.setAttribute(
      "aria-label",
      `Live memory over ${counted(model.count, "step")}; ${model.strip_lines[0].words} at step ${model.peakStep}`,
    );
  }

  /** Redraw past and future after a change of size, colours or scales. */
  redraw() {
    this.redrawOwn();
    for (const lane of this.lanes) lane.redraw();
  }

  redrawOwn() {
    const ratio = pixelRatio();
    const box = this.canvas.getBoundingClientRect();
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (!width || !height) return;
    [this.canvas.width, this.canvas.height] = [width, height];
    this.ratio = ratio;
    this.columns = tickOfColumn(this.model, this.scales.align, this.scales.ticks, width);
    const runs = runsOf(this.model, this.stepsOf(width));
    const style = getComputedStyle(this.element);
    this.ink = style.getPropertyValue("--ink");
    const unit = this.unit(height);
    this.layers = [false, true].map((hollow) => {
      const layer = new OffscreenCanvas(width, height);
      const context = layer.getContext("2d");
      context.fillStyle = style.getPropertyValue("--panel");
      context.fillRect(0, 0, width, height);
      this.model.bands.forEach(({ fill }, band) => {
        context.fillStyle = style.getPropertyValue(`--${fill}`);
        const stripe = !hollow && band in STRIPES && style.getPropertyValue(`--${STRIPES[band]}`);
        if (stripe) context.fillStyle = hatchedFill(context, context.fillStyle, stripe, ratio);
        for (const box of hollow ? outlinesOf(runs, band, unit, ratio) : this.areas(runs, band, unit, ratio)) {
          const [left, low, right, high] = box;
          context.fillRect(left, height - high, right - left, high - low);
        }
      });
      this.lines(context, width, height, style.getPropertyValue("--muted"));
      return layer;
    });
    const widths = this.words.map((span) => span.offsetWidth);
    const ends = wordsEnd(this.model.strip_lines, widths, unit / ratio / this.scales.large);
    this.words.forEach((span, i) => {
      const above = (this.model.strip_lines[i].amount * unit) / ratio;
      // One pixel above the line, which its ground would hide.
      span.style.bottom = `${Math.min(above, box.height - this.head) + 1}px`;
      span.style.right = `${ends[i]}px`;
    });
    this.draw(true);
  }

  /** The step that every column shows; -1 where the trace has ended. @param {number} width */
  stepsOf(width) {
    const columns = tickOfColumn(this.model, this.scales.align, this.scales.ticks, width);
    return columns.map((tick) => (tick < 0 ? -1 : stepOfTick(this.model, tick, this.scales.align)));
  }

  /** The column where the future begins. @param {number} width */
  nowAt(width) {
    return Math.min(width, Math.floor(((this.tick + 1) * width) / this.scales.ticks));
  }

  /** What of the past is filled. @param {number} thick how thick lines are */
  areas(runs, band, unit, thick) {
    return areasOf(runs, band, unit);
  }

  /** Pixels above the highest amount. */
  get head() {
    return HEAD * this.scales.large;
  }

  unit(height) {
    return (height - this.head * this.ratio) / Math.max(this.scales.highest, 1);
  }

  /** The lines at the peak and at limits. */
  lines(context, width, height, ink) {
    context.strokeStyle = ink;
    context.lineWidth = this.ratio;
    for (const { amount, dashes } of this.model.strip_lines) {
      const y = Math.round(height - amount * this.unit(height)) - this.ratio / 2;
      context.setLineDash(dashes.map((pixels) => pixels * this.ratio));
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(width, y);
      context.stroke();
    }
  }

  /** @param {number} tick */
  show(tick) {
    this.tick = tick;
    this.draw();
    for (const lane of this.lanes) lane.show(tick);
  }

  /** Draw what has changed since the tick that is shown, or all of it. @param {boolean} [whole] */
  draw(whole = false) {
    if (!this.layers) return;
    const { width, height } = this.canvas;
    const now = this.nowAt(width);
    const [past, future] = this.layers;
    const wide = 2 * this.ratio;
    const low = whole ? 0 : Math.max(0, Math.min(this.cursor, now) - wide);
    const high = whole ? width : Math.min(width, Math.max(this.cursor, now) + wide);
    if (now > low) this.context.drawImage(past, low, 0, now - low, height, low, 0, now - low, height);
    if (now < high) this.context.drawImage(future, now, 0, high - now, height, now, 0, high - now, height);
    this.cursor = now;
    this.context.fillStyle = this.ink;
    this.context.fillRect(Math.min(Math.max(now - wide / 2, 0), width - wide), this.head * this.ratio, wide, height);
  }

  /** The tick that is shown at a point of the screen. @param {number} clientX */
  tickAt(clientX) {
    const box = this.canvas.getBoundingClientRect();
    const share = Math.min(Math.max((clientX - box.left) / box.width, 0), 1 - 1e-9);
    const column = this.columns?.[Math.floor(share * this.columns.length)] ?? -1;
    return column >= 0 ? column : Math.floor(share * this.scales.ticks);
  }
}
