/**
 * Measured memory, as a line over the planned curve.
 *
 * A measurement runs over seconds, a schedule over steps. Both ends are aligned, and the interior
 * is mapped along the schedule's own time where it has one, else along its FLOPs, else along its
 * evaluations; events without times along its steps. So every moment has a fixed position among the
 * steps, on every axis, at every zoom.
 *
 * @typedef {{source: string, what: string, unit: string, span: number, base: number, before?: number,
 *     moments: ArrayLike<number>, held: ArrayLike<number>}} Measured
 */

import { placesOf, total } from "./axis.js";
import { byId } from "./controls.js";
import { counted, shortLive, shortSize } from "./format.js";
import { stepOfTick, ticksOf } from "./model.js";
import { pixelRatio } from "./print.js";
import { breakOf } from "./scale.js";
import { lastAtMost } from "./state.js";

/**
 * @import { Model } from "./data.js"
 * @import { Axis, Extent } from "./axis.js"
 * @import { Player } from "./main.js"
 * @import { Panel } from "./panel.js"
 */

const MOST_APART = 8; // times that plan and measurement differ, from which the axis is logarithmic
const RESOLUTION = 2 ** -30; // of the whole, to which moments are rounded
const [CASING, THICK] = [4.5, 2]; // pixels of the line's ground, and of the line

/** The axis along which a measurement is aligned. @param {Model} model @returns {Axis} */
function axisOfMeasured(model) {
  if (model.measured.unit === "events") return "step";
  return model.times ? "time" : total(model, "FLOPs") > 0 ? "FLOPs" : "evaluation";
}

/** The step that is at a place, with the part of it that is over.
 * @param {Float64Array} places of all steps @param {number} place
 */
function stepWithin(places, place) {
  const count = places.length - 1;
  const about = RESOLUTION * places[count];
  if (place + about >= places[count]) return count;
  const step = Math.max(0, lastAtMost(places, place + about));
  const over = place - places[step];
  return over < about ? step : step + over / (places[step + 1] - places[step]);
}

/** The position of every moment among the steps. @param {Model} model @returns {Float64Array} */
function stepsOfMoments(model) {
  const { moments } = model.measured;
  const places = placesOf(model, axisOfMeasured(model));
  const whole = places[model.count];
  const last = moments[moments.length - 1] || 1;
  const among = Float64Array.from(moments, (moment) => stepWithin(places, (moment / last) * whole));
  // What is evaluated in no time still comes after what is before it.
  for (let i = 1; i < among.length; i++) among[i] = Math.max(among[i], among[i - 1]);
  return among;
}

/** The most that was held between each two of some places among the steps; -1 beyond the end.
 * @param {Model} model @param {Float64Array} edges ascending, one more than there are parts
 */
export function measuredBetween(model, edges) {
  model.measuredSteps ??= stepsOfMoments(model);
  const { held } = model.measured;
  const among = model.measuredSteps;
  const most = new Float64Array(edges.length - 1).fill(-1);
  let at = Math.max(0, lastAtMost(among, edges[0]));
  for (let x = 0; x < most.length; x++) {
    if (edges[x] >= model.count) break;
    most[x] = held[at];
    while (at + 1 < among.length && (among[at + 1] < edges[x + 1] || edges[x + 1] >= model.count)) {
      at++;
      if (held[at] > most[x]) most[x] = held[at];
    }
  }
  return most.map((amount) => (amount < 0 ? -1 : Math.max(0, amount - model.measured.base) / model.unit));
}

/** The measured maximum, in the unit of memory. @param {Model} model */
export function measuredPeak({ measured, unit }) {
  return Math.max(0, measured.held.reduce((a, b) => Math.max(a, b), 0) - measured.base) / unit;
}

/** Where each column of pixels begins, among the steps. @param {Model} model @param {Extent} extent */
export function edgesOf(model, extent, width) {
  const places = placesOf(model, extent.axis);
  return Float64Array.from({ length: width + 1 }, (_, x) => stepWithin(places, extent.place(x, width)));
}

/** Draw amounts, one a column, as a line with a ground of its own.
 * @param {CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D} context @param {Float64Array} amounts
 * @param {(amount: number) => number} high pixels above the ground @param {Record<string, string>} ink
 */
export function drawMeasured(context, amounts, high, ink, ratio) {
  const { height } = context.canvas;
  context.beginPath();
  let drawn = false;
  amounts.forEach((amount, x) => {
    if (amount < 0) return;
    const y = height - high(amount);
    if (drawn) context.lineTo(x, y);
    else context.moveTo(x, y);
    context.lineTo(x + 1, y);
    drawn = true;
  });
  context.lineJoin = "round";
  /** @type {[string, number][]} */
  const strokes = [
    [ink.background, CASING],
    [ink.ink, THICK],
  ];
  for (const [stroke, wide] of strokes) {
    context.strokeStyle = stroke;
    context.lineWidth = wide * ratio;
    context.stroke();
  }
}

/** Seconds as people read them. @param {number} seconds */
function secondsText(seconds) {
  const [unit, factor] = seconds >= 1 || !seconds ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e3] : ["\u00b5s", 1e6];
  return `${Number((seconds * factor).toPrecision(3))} ${unit}`;
}

/** A canvas over another one, of its size. @param {HTMLCanvasElement} below */
function canvasOver(below) {
  const canvas = document.createElement("canvas");
  canvas.className = "measured";
  canvas.setAttribute("aria-hidden", "true");
  below.after(canvas);
  return canvas;
}

/** The line of one policy, over its strip in blocks and over that of the graph. */
export class MeasuredLine {
  /** @param {Panel} panel @param {any} scales shared by all */
  constructor(panel, scales) {
    this.panel = panel;
    this.scales = scales;
    this.blocks = canvasOver(panel.strip.layers.canvas);
    this.bands = canvasOver(panel.timeline.canvas);
    this.tell();
  }

  get model() {
    return this.panel.model;
  }

  /** Describe the measurement of the strip, less the omitted base. */
  tell() {
    const { strip } = this.panel;
    strip.layers.canvas.setAttribute(
      "aria-label",
      `${strip.words}; measured peak ${this.text(measuredPeak(this.model))}`,
    );
  }

  text(amount) {
    return shortLive(amount, this.model.inNodes);
  }

  /** Redraw the line after a change of visible range, scale, size or colours. */
  redraw() {
    const { model, scales, panel } = this;
    if (panel.isGraph) {
      const { stepsOf, unit } = this.graphScale();
      this.draw(this.bands, stepsOf, unit);
    } else if (panel.strip.scale) {
      const { strip } = panel;
      const edges = (width) => edgesOf(model, scales.extent, width);
      this.draw(this.blocks, edges, (amount) => Math.min(strip.scale.at(amount), 1) * strip.room);
    }
  }

  /** Of the strip below the graph, which has a column a tick or more. */
  graphScale() {
    const { model, panel, scales } = this;
    const stepsOf = (width) =>
      Float64Array.from({ length: width + 1 }, (_, x) => {
        const tick = (x * scales.ticks) / width;
        const [step, next] = [tick, tick + 1].map((t) =>
          t >= ticksOf(model, scales.align) ? model.count : stepOfTick(model, Math.floor(t), scales.align),
        );
        return step + (next - step) * (tick % 1);
      });
    return {
      stepsOf,
      unit: (amount) => Math.min(amount, scales.highest) * panel.timeline.unit(panel.timeline.canvas.height),
    };
  }

  /** @param {HTMLCanvasElement} canvas @param {(width: number) => Float64Array} edges */
  draw(canvas, edges, high) {
    const ratio = pixelRatio();
    const box = canvas.getBoundingClientRect();
    [canvas.width, canvas.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (!canvas.width || !canvas.height) return;
    const style = getComputedStyle(canvas);
    const ink = Object.fromEntries(["ink", "background"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
    drawMeasured(canvas.getContext("2d"), measuredBetween(this.model, edges(canvas.width)), high, ink, ratio);
  }

  /** The most that was measured while a step was done. @param {number} step -1 for the beginning */
  at(step) {
    return measuredBetween(this.model, Float64Array.of(Math.max(step, 0), Math.max(step + 1, 1)))[0];
  }

  /** @param {number} step */
  words(step) {
    return `measured ${this.text(this.at(step))}`;
  }
}

/** What a page says of its measurements, and whether what was there before is left out. */
export class Measurements {
  /** @param {Player} player */
  constructor(player) {
    this.player = player;
    this.element = document.createElement("div");
    this.element.id = "measured";
    byId("panels").after(this.element);
    this.fit();
    const planned = player.data.highest;
    const ratio = Math.max(this.highest, 1) / Math.max(planned, 1);
    if (ratio > MOST_APART || ratio < 1 / MOST_APART) player.scales.kind = "log";
    this.say();
  }

  /** Models that have a measurement. */
  get models() {
    return this.player.models.filter((model) => model.measured);
  }

  get highest() {
    return Math.max(...this.models.map(measuredPeak));
  }

  /** Give the axis room for what was measured. */
  fit() {
    const { scales, data } = this.player;
    scales.highest = Math.max(data.highest, this.highest);
    scales.broken = breakOf(this.player.models, scales.highest);
  }

  /** Say what is drawn, and how. */
  say() {
    const different = [...new Set(this.models.map(({ measured }) => measured))];
    this.element.replaceChildren(...different.map((measured) => this.line(measured)));
  }

  /** @param {Measured} measured */
  line(measured) {
    const model = this.models.find((each) => each.measured === measured);
    const p = document.createElement("p");
    const span = measured.unit === "events" ? counted(measured.span, "event") : secondsText(measured.span);
    p.append(
      `Measured: ${measured.source}, ${measured.what}; its ${span} laid along the schedule's ${this.alongWords(model)}, ends aligned.`,
    );
    const before = measured.before ?? measured.base;
    if (before > 0) {
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = measured.base > 0;
      box.addEventListener("keydown", (event) => event.key === " " && event.stopPropagation()); // not: play
      box.addEventListener("change", () => this.leaveOut(measured, before, box.checked));
      label.append(box, ` without the ${shortSize(before)} that the plan does not count`);
      label.title = "What was there before, such as parameters and the optimizer's state";
      p.append(" ", label);
    }
    return p;
  }

  alongWords(model) {
    const axis = axisOfMeasured(model);
    return { step: "steps", evaluation: "evaluations" }[axis] ?? axis;
  }

  /** Leave out of a measurement what was there before, or show all of it. */
  leaveOut(measured, before, isLeftOut) {
    measured.before = before;
    measured.base = isLeftOut ? before : 0;
    this.fit();
    for (const panel of this.player.panels) {
      panel.strip.lines = panel.strip.limits();
      panel.measured?.tell();
    }
    this.player.resized();
    this.player.show(this.player.tick);
    this.player.navigation.minimap.resized();
    this.player.settle();
  }
}
