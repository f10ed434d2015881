/**
 * Software rasteriser: rectangles into pixels, since a canvas cannot draw a hundred thousand bars
 * per frame one by one. Edges are whole pixels; right and bottom are exclusive.
 */

import { isPrinting, pixelRatio } from "./print.js";
import { grouped } from "./state.js";

export const HATCH = 6; // pixels from stripe to stripe

class Raster {
  /** @param {number} width @param {number} height */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.limit(0, width);
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** Draw in some columns only, from now on. */
  limit(first, end) {
    this.first = first;
    this.end = end;
  }

  /** @param {number} colour as ``colours`` has it */
  rect(left, top, right, bottom, colour) {
    const { width, pixels } = this;
    left = Math.max(left, this.first);
    right = Math.min(right, this.end);
    if (left >= right) return;
    bottom = Math.min(bottom, this.height);
    for (let y = Math.max(top, 0); y < bottom; y++) {
      const end = y * width + right;
      // A call of fill costs more than a few pixels do.
      if (right - left > 12) pixels.fill(colour, y * width + left, end);
      else for (let i = y * width + left; i < end; i++) pixels[i] = colour;
    }
  }

  /** Fill all of the picture: what lies below a curve, and what is above it. @param {Int32Array} tops of columns */
  silhouette(tops, below, above) {
    const { width, height, pixels } = this;
    const begins = grouped(height + 1, tops); // in each row, columns
    const row = new Uint32Array(width).fill(above);
    for (let y = 0; y < height; y++) {
      for (let i = begins.first[y]; i < begins.first[y + 1]; i++) row[begins.order[i]] = below;
      pixels.set(row, y * width);
    }
  }

  /** A rectangle with diagonal stripes. @param {number} thick how thick these are */
  hatch(left, top, right, bottom, colour, stripe, thick) {
    this.rect(left, top, right, bottom, colour);
    const { width, pixels } = this;
    const period = HATCH * thick;
    const begin = Math.max(left, this.first);
    const end = Math.min(right, this.end);
    const [high, low] = [Math.max(top, 0), Math.min(bottom, this.height)];
    // Where the first stripe of a row begins that may reach into it; of the next, one to the left.
    let first = -((begin + high) % period);
    for (let y = high; y < low; y++, first = first > -period + 1 ? first - 1 : 0) {
      for (let x = begin + first; x < end; x += period) {
        for (let i = Math.max(x, begin); i < Math.min(x + thick, end); i++) pixels[y * width + i] = stripe;
      }
    }
  }

  /** A rectangle's edges; what is too small for an inside is its upper edge alone, in dots. */
  outline(left, top, right, bottom, colour, thick) {
    if (right - left < 3 * thick || bottom - top < 3 * thick) {
      const below = Math.min(top + thick, bottom);
      if (right - left < 2 * thick) this.rect(left, top, right, below, colour);
      else for (let x = left; x < right; x += 2 * thick) this.rect(x, top, x + thick, below, colour);
      return;
    }
    this.rect(left, top, right, top + thick, colour);
    this.rect(left, bottom - thick, right, bottom, colour);
    this.rect(left, top, left + thick, bottom, colour);
    this.rect(right - thick, top, right, bottom, colour);
  }
}

/** The page's colours as pixels, by their names. @param {Element} element @param {string[]} names */
export function colours(element, names) {
  const style = getComputedStyle(element);
  return Object.fromEntries(names.map((name) => [name, pixelOf(style.getPropertyValue(`--${name}`))]));
}

/** A colour, #RRGGBB, as a pixel; all machines with a browser put the lowest byte first. */
function pixelOf(text) {
  const value = Number.parseInt(text.trim().slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/** Two rasters of one size as one picture: the past up to a column, and from there on the future. */
export class Layers {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.past = this.future = this.spare = null;
    this.now = 0;
    this.isPart = false;
    this.isAlike = false; // whether the future is seen as the past is, and only that is drawn
  }

  /** Draw all of past and future; or only what is seen with the present at a column, as long as it
   * stays there. @param {number | null} now
   */
  limit(now) {
    this.isPart = now !== null;
    const { width } = this.past;
    const column = now === null ? width : Math.min(Math.max(now, 0), width);
    this.past.limit(0, column);
    this.future.limit(this.isAlike ? width : now === null ? 0 : column, width);
  }

  /** A rectangle: filled in the past, and its edges in the future. */
  box(left, top, right, bottom, colour, thick) {
    if (left < this.past.end) this.past.rect(left, top, right, bottom, colour);
    if (right > this.future.first) this.future.outline(left, top, right, bottom, colour, thick);
  }

  /** The canvas' size on the screen, in its pixels. @returns {[number, number]} */
  get size() {
    const { width, height } = this.canvas.getBoundingClientRect();
    return [Math.round(width * this.ratio), Math.round(height * this.ratio)];
  }

  /** Whether the drawn picture has the canvas' size. */
  get fits() {
    const [known] = this.past ? [this.past] : (this.spare ?? []);
    const [width, height] = known ? this.size : [0, 0];
    return known?.width === width && known.height === height;
  }

  /** Take the canvas' size on the screen. @returns {boolean} whether there is anything to draw */
  resize() {
    this.ratio = pixelRatio();
    const [width, height] = this.size;
    if (!width || !height) return false;
    const known = this.past ? [this.past, this.future] : this.spare;
    this.spare = null;
    const fits = known?.[0].width === width && known[0].height === height;
    if (!fits) [this.canvas.width, this.canvas.height] = [width, height];
    [this.past, this.future] = fits ? known : [new Raster(width, height), new Raster(width, height)];
    return true;
  }

  /** Draw nothing before it is given its size again, or recalled: it is not seen. */
  forget() {
    if (this.past) this.spare = [this.past, this.future];
    this.past = this.future = null;
  }

  /** Be seen again. @returns {boolean} whether it was not, and had a size */
  recall() {
    if (this.past || !this.spare) return false;
    [this.past, this.future] = this.spare;
    return true;
  }

  /** Show the present at a column; only what has changed since, or all. @param {boolean} whole */
  show(now, whole) {
    if (!this.past) return;
    const { width, height } = this.past;
    const column = Math.min(Math.max(now, 0), width);
    if (this.isAlike) {
      this.now = column;
      if (whole) this.put(this.past.image, 0, width, height);
      return;
    }
    const low = whole ? 0 : Math.min(this.now, column);
    const high = whole ? width : Math.max(this.now, column);
    if (column > low) this.put(this.past.image, low, column - low, height);
    if (high > column) this.put(this.future.image, column, high - column, height);
    this.now = column;
  }

  /** Show some columns of a picture. Paper takes what was drawn, and no pixels that were put there. */
  put(image, left, width, height) {
    if (!isPrinting()) return this.context.putImageData(image, 0, 0, left, 0, width, height);
    const sheet = new OffscreenCanvas(width, height);
    sheet.getContext("2d").putImageData(image, -left, 0);
    this.context.drawImage(sheet, left, 0);
  }
}
