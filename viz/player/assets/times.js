/**
 * Offload timeline in lanes: evaluations, copies to the host and copies back, with stalls shaded.
 * Times are integer shares of the longest timeline of the page.
 */

import { COMPUTE } from "./allocation.js";
import { FRAME_MARGIN, FRAME_STRIP, FRAME_WIDTH } from "./export.js";
import { svgElement } from "./graph.js";
import { part } from "./lights.js";
import { isAgain, stepOfTick, tickOfStep, ticksOf } from "./model.js";
import { pixelRatio } from "./print.js";
import { lastAtMost } from "./state.js";
import { HEAD } from "./timeline.js";

/**
 * @import { Model } from "./data.js"
 * @import { Frame } from "./export.js"
 * @import { Panel } from "./panel.js"
 */

const TICKS = 1e9; // the whole width
const GUTTER = 76; // pixels at the left for the lanes' names; the same in the style sheet
const ROW_OF = [0, -1, 1, 2]; // by verb
const LANES = ["compute", "to the host", "back"];
const SHADE = 0.25; // of full colour: what is lost

/** Until when all evaluations up to each step have ended. @param {Model} model */
function momentsOf(model) {
  const moments = new Float64Array(model.count);
  let now = 0;
  for (let step = 0; step < model.count; step++) {
    if (model.verbs[step] === COMPUTE) now = model.times.end[step];
    moments[step] = now;
  }
  return moments;
}

/** Stalls: pairs of begin and end. @param {Model} model */
function stallsOf(model) {
  const stalls = [];
  let now = 0;
  for (const step of model.computes) {
    if (model.times.begin[step] > now) stalls.push([now, model.times.begin[step]]);
    now = model.times.end[step];
  }
  if (model.times.makespan > now) stalls.push([now, model.times.makespan]); // a result comes back
  return stalls;
}

export class TimeLane {
  /** @param {Panel} panel @param {any} scales shared by all */
  constructor(panel, scales) {
    this.model = panel.model;
    this.scales = scales;
    this.element = part("div", "timeline lane times");
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Computation and copies against time: ${this.model.times.words}`);
    this.context = this.canvas.getContext("2d");
    this.element.append(this.canvas, part("span", "what", this.model.times.words));
    LANES.forEach((name, row) => {
      const label = part("span", "row-name", name);
      label.style.top = `calc(${HEAD + (row * (this.high - HEAD)) / LANES.length}px * var(--large, 1))`;
      this.element.append(label);
    });
    this.moments = momentsOf(this.model);
    this.stalls = stallsOf(this.model);
    this.step = -1;
    this.layers = null;
    const seek = (event) => panel.events.seek(tickOfStep(this.model, this.stepAt(event), scales.align));
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      seek(event);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons & 1 && seek(event));
  }

  /** Pixels; the same in the style sheet. */
  get high() {
    return 74;
  }

  /** Boxes of all lanes in pixels: which step, left, right, top, bottom and the name of an ink. */
  boxes(width, high, ratio) {
    const { model } = this;
    const found = [];
    const row = (high - HEAD * ratio) / LANES.length;
    for (let step = 0; step < model.count; step++) {
      const lane = ROW_OF[model.verbs[step]];
      if (lane < 0) continue;
      const [left, end] = [model.times.begin[step], model.times.end[step]].map((tick) => this.share(tick) * width);
      const forward = model.targets[step] < model.graph.forward_count;
      const ink = lane ? "kept" : isAgain(model, step) ? "recomputing" : forward ? "ink" : "gradient";
      const right = Math.max(end - (end - left > 4 * ratio ? ratio : 0), left + ratio / 2);
      const top = HEAD * ratio + lane * row + 2 * ratio;
      found.push({ step, left, right, top, bottom: top + row - 4 * ratio, ink });
    }
    return found;
  }

  /** Redraw past and future after a change of size or colours. */
  redraw() {
    const ratio = pixelRatio();
    const place = this.canvas.getBoundingClientRect();
    const [width, height] = [Math.round(place.width * ratio), Math.round(place.height * ratio)];
    if (!width || !height) return;
    [this.canvas.width, this.canvas.height] = [width, height];
    this.ratio = ratio;
    this.unit = ratio * this.scales.large;
    this.drawn = this.boxes(width, height, this.unit);
    const style = getComputedStyle(this.element);
    this.ink = style.getPropertyValue("--ink");
    this.layers = [false, true].map((hollow) => {
      const layer = new OffscreenCanvas(width, height);
      const context = layer.getContext("2d");
      context.fillStyle = style.getPropertyValue("--panel");
      context.fillRect(0, 0, width, height);
      context.fillStyle = style.getPropertyValue("--recomputing");
      context.globalAlpha = SHADE;
      for (const [begin, end] of this.stalls) {
        const [left, right] = [this.share(begin) * width, this.share(end) * width];
        context.fillRect(left, HEAD * this.unit, right - left, height);
      }
      context.globalAlpha = 1;
      context.lineWidth = ratio;
      for (const { left, right, top, bottom, ink } of this.drawn) {
        context.fillStyle = context.strokeStyle = style.getPropertyValue(`--${ink}`);
        if (hollow && right - left > 3 * ratio) {
          context.strokeRect(left + ratio / 2, top + ratio / 2, right - left - ratio, bottom - top - ratio);
        } else context.fillRect(left, top, right - left, bottom - top);
      }
      return layer;
    });
    this.draw();
  }

  /** @param {number} tick */
  show(tick) {
    this.step = stepOfTick(this.model, Math.min(tick, ticksOf(this.model, this.scales.align) - 1), this.scales.align);
    this.draw();
  }

  /** Where a moment is, as a share of the width: below a ledger on the axis of time, where it is there. */
  share(moment) {
    const { extent, front } = this.scales;
    if (front === "graph" || extent.axis !== "time") return moment / TICKS;
    return (moment - extent.from) / (extent.to - extent.from);
  }

  /** The moment at a share of the width. */
  moment(share) {
    const { extent, front } = this.scales;
    return front === "graph" || extent.axis !== "time" ? share * TICKS : extent.place(share, 1);
  }

  /** The share of the width that is over. */
  get over() {
    return this.step < 0 ? this.share(0) : this.share(this.moments[this.step]);
  }

  draw() {
    if (!this.layers) return;
    const { width, height } = this.canvas;
    const { context, ratio } = this;
    const now = Math.round(this.over * width);
    const [past, future] = this.layers;
    if (now > 0) context.drawImage(past, 0, 0, now, height, 0, 0, now, height);
    if (now < width) context.drawImage(future, now, 0, width - now, height, now, 0, width - now, height);
    context.fillStyle = context.strokeStyle = this.ink;
    context.lineWidth = 2 * ratio;
    const own = this.drawn.find(({ step }) => step === this.step);
    if (own) context.strokeRect(own.left, own.top, own.right - own.left, own.bottom - own.top);
    context.fillRect(Math.min(Math.max(now - ratio, 0), width - 2 * ratio), HEAD * this.unit, 2 * ratio, height);
  }

  /** The step that happens at a point of the screen: that of the box there, or what is computed then. */
  stepAt(event) {
    const place = this.canvas.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - place.left) / place.width, 0), 1 - 1e-9);
    const [x, y] = [share * this.canvas.width, (event.clientY - place.top) * this.ratio];
    const hit = this.drawn.find((box) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom);
    return hit ? hit.step : Math.min(lastAtMost(this.moments, this.moment(share) - 1) + 1, this.model.count - 1);
  }

  /** Draw the lanes into a frame that is saved. @param {Frame} frame */
  save(frame) {
    const width = FRAME_WIDTH - 2 * FRAME_MARGIN - GUTTER;
    const group = svgElement("g", { transform: `translate(${FRAME_MARGIN + GUTTER} ${frame.top})` }, frame.root);
    svgElement("rect", { width, height: FRAME_STRIP, fill: frame.ink("panel") }, group);
    const box = (left, right, top, bottom, paint) =>
      svgElement("path", { d: `M${left} ${top}H${right}V${bottom}H${left}z`, ...paint }, group);
    for (const [begin, end] of this.stalls) {
      const paint = { fill: frame.ink("recomputing"), "fill-opacity": SHADE };
      box(this.share(begin) * width, this.share(end) * width, HEAD, FRAME_STRIP, paint);
    }
    const now = this.over * width;
    for (const { left, right, top, bottom, ink } of this.boxes(width, FRAME_STRIP, 1)) {
      const colour = frame.ink(ink);
      box(left, right, top, bottom, left < now ? { fill: colour } : { fill: "none", stroke: colour });
    }
    svgElement("path", { d: `M${now} ${HEAD}V${FRAME_STRIP}`, stroke: frame.ink("ink"), "stroke-width": 2 }, group);
    frame.text(FRAME_MARGIN + GUTTER + 4, frame.top + 10, this.model.times.words, 10, "muted");
    const row = (FRAME_STRIP - HEAD) / LANES.length;
    LANES.forEach((name, i) => frame.text(FRAME_MARGIN, frame.top + HEAD + row * (i + 0.7), name, 10, "muted"));
  }
}
