/**
 * Difference of two policies in memory over time: both curves, and the bytes saved. Grey is the
 * minimum of both; above it, in the colour of the larger one, the excess.
 */

import { presentOf, stepOfColumn } from "./axis.js";
import { DIFFERENCE_INKS } from "./difference_ledger.js";
import { SIDES } from "./difference_panel.js";
import { amountText, changeText, shortLive } from "./format.js";
import { stepWords } from "./model.js";
import { colours } from "./raster.js";
import { Strip, placed } from "./strip.js";
import { WORDS } from "./timeline.js";

export class DifferenceStrip extends Strip {
  limits() {
    const { a, b } = this.panel.pair;
    const peaks = [a, b].map((model) => model.live[model.peakStep]);
    if (peaks[0] === peaks[1]) return [{ name: "both peaks", amount: peaks[0] }];
    return peaks.map((amount, side) => ({ name: `peak of ${SIDES[side]}`, amount }));
  }

  /** Two policies have no common addresses. */
  get placed() {
    return null;
  }

  get noteText() {
    return "";
  }

  listen() {
    const { canvas } = this.layers;
    const { events } = this.panel;
    const place = ({ clientX }) => {
      const box = this.plot.getBoundingClientRect();
      return this.scales.extent.place(Math.min(Math.max(clientX - box.left, 0), box.width - 1e-6), box.width);
    };
    canvas.style.cursor = "col-resize";
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      events.seekPlace(place(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) events.seekPlace(place(event));
      if (event.pointerType !== "touch") events.say(event, this.wordsAt(place(event)));
    });
    canvas.addEventListener("pointerleave", (event) => events.hover(event, this.panel, null));
  }

  /** The tooltip of a position: action and live memory of each. @param {number} place */
  wordsAt(place) {
    const { pair, model } = this.panel;
    const steps = [pair.a, pair.b].map((one) => this.scales.extent.stepAt(one, place));
    const live = steps.map((step, side) => liveOf(pair, side, step));
    const line = (one, side) =>
      `${SIDES[side]}: ${stepWords(one, steps[side])}, ${amountText(live[side], model.inNodes)}`;
    return [savedText(live, model.inNodes), ...[pair.a, pair.b].map(line)];
  }

  get highest() {
    return Math.max(...this.panel.models.map((model) => model.live[model.peakStep]));
  }

  resized() {
    super.resized();
    if (!this.layers.past) return;
    this.ink = colours(this.element, DIFFERENCE_INKS);
    const { a, b } = this.panel.pair;
    this.layers.canvas.setAttribute(
      "aria-label",
      `Memory of both over time; at the peaks ${savedText(
        [a, b].map((one) => one.live[one.peakStep]),
        a.inNodes,
      )}`,
    );
  }

  /** Both peaks stand at the axis: upon the lines they would hide the curves. */
  labels() {
    super.labels();
    const words = Array.from(this.plot.querySelectorAll(".limit span")).sort((a, b) => aboveGround(b) - aboveGround(a));
    let above = Number.POSITIVE_INFINITY;
    for (const span of words) {
      const at = Math.min(aboveGround(span), above - WORDS);
      above = at;
      for (const tick of Array.from(this.axis.children)) {
        if (Math.abs(Number.parseFloat(tick.style.bottom) - at) < WORDS) tick.remove();
      }
      span.remove();
      this.axis.append(placed("span", span.textContent, `${at}px`, "of-line"));
    }
  }

  redraw(isMoving = false) {
    const { scales, layers } = this;
    if (!layers.past) return;
    layers.limit(isMoving ? this.x() : null);
    const { pair } = this.panel;
    const { width } = layers.past;
    this.curves = [pair.a, pair.b].map((model) => {
      const high = (step) => (step < 0 ? -1 : Math.round(this.scale.at(model.live[step]) * this.room));
      return stepOfColumn(model, scales.extent, width).map(high);
    });
    for (const raster of [layers.past, layers.future]) raster.pixels.fill(this.ink.panel);
    this.areas();
    this.line(this.curves[0], this.ink["only-a"]);
    this.line(this.curves[1], this.ink["only-b-stripe"]);
    this.show(this.step, true);
  }

  /** What lies below both curves, and between them; where one has ended there is nothing to compare. */
  areas() {
    const {
      ink,
      layers,
      curves: [one, other],
    } = this;
    const { past, future, ratio } = layers;
    const floor = past.height;
    const thick = Math.max(1, Math.round(ratio));
    for (let x = 0, end = 0; x < one.length; x = end) {
      while (end < one.length && one[end] === one[x] && other[end] === other[x]) end++;
      if (one[x] < 0 || other[x] < 0) continue;
      const [low, high] = [Math.min(one[x], other[x]), Math.max(one[x], other[x])];
      past.rect(x, floor - low, end, floor, ink["in-both"]);
      if (low === high) continue;
      if (one[x] > other[x]) {
        past.rect(x, floor - high, end, floor - low, ink["only-a"]);
        future.hatch(x, floor - high, end, floor - low, ink.panel, ink["only-a"], thick);
      } else {
        past.hatch(x, floor - high, end, floor - low, ink["only-b"], ink["only-b-stripe"], thick);
        future.hatch(x, floor - high, end, floor - low, ink.panel, ink["only-b-stripe"], thick);
      }
    }
  }

  /** A curve, in past and future. */
  line(heights, colour) {
    const { past, future, ratio } = this.layers;
    const floor = past.height;
    const wide = Math.max(1, Math.round(1.5 * ratio));
    let before = -1;
    for (let x = 0, end = 0; x < heights.length && heights[x] >= 0; x = end) {
      while (end < heights.length && heights[end] === heights[x]) end++;
      const top = floor - heights[x];
      for (const raster of [past, future]) {
        raster.rect(x, Math.min(top, floor - wide), end, Math.min(top, floor - wide) + wide, colour);
        if (before >= 0) raster.rect(x, Math.min(top, floor - before), x + wide, Math.max(top, floor - before), colour);
      }
      before = heights[x];
    }
  }

  x() {
    const { scales, layers, panel } = this;
    const { pair, steps } = panel;
    return Math.max(
      ...[pair.a, pair.b].map((model, side) =>
        scales.extent.pixel(presentOf(model, scales, steps[side]), layers.past.width),
      ),
    );
  }

  numberText() {
    const { pair, steps, model } = this.panel;
    const live = steps.map((step, side) => liveOf(pair, side, step));
    return `A ${shortLive(live[0], model.inNodes)}  B ${shortLive(live[1], model.inNodes)}  ${changeText(live[1] - live[0], model.inNodes)}`;
  }

  /** Blocks are not seen here, and so none is marked. */
  select() {}
}

/** How high the line stands that some words are upon, in pixels. */
function aboveGround(words) {
  return Number.parseFloat(words.parentElement.style.bottom);
}

/** Live memory of one side of a pair after a step. */
export function liveOf({ a, b }, side, step) {
  return step < 0 ? 0 : (side ? b : a).live[step];
}

/** How much less the second of two amounts is, or more, in words. @param {number[]} live */
export function savedText([one, other], inNodes) {
  if (one === other) return `both hold ${amountText(one, inNodes)}`;
  const percent = Math.round((100 * Math.abs(one - other)) / Math.max(one, other));
  const [less, more] = other < one ? ["B", "A"] : ["A", "B"];
  return `${less} holds ${amountText(Math.abs(one - other), inNodes)} less than ${more} (${percent} %)`;
}
