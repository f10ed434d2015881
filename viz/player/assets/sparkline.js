/**
 * Sparkline of a policy: one row with its name, its cost, and its memory over time, on the common
 * axis. Of several policies one is open, and the others are such rows.
 */

import { presentOf, stepOfColumn } from "./axis.js";
import { amountText, counted } from "./format.js";
import { stepOfTick } from "./model.js";
import { pixelRatio } from "./print.js";
import { Scale } from "./scale.js";

/**
 * @import { Axis } from "./axis.js"
 * @import { Panel } from "./panel.js"
 */

export class Sparkline {
  /** @param {Panel} panel @param {any} scales shared by all */
  constructor(panel, scales) {
    this.panel = panel;
    this.model = panel.model;
    this.scales = scales;
    this.element = document.createElement("div");
    this.element.className = "spark";
    this.element.innerHTML = '<p class="brief"></p><b></b><div class="curve"><canvas></canvas><i></i></div>';
    this.number = this.element.querySelector("b");
    this.canvas = this.element.querySelector("canvas");
    this.cursor = this.element.querySelector("i");
    this.element.querySelector(".brief").textContent = this.costs;
    panel.part(":scope > header").after(this.element);
    panel.element.addEventListener("click", (event) => {
      if (this.isShown && !(/** @type {any} */ (event.target).closest("button"))) panel.events.solo(this.model.id);
    });
    panel.part(".solo").addEventListener("keydown", (event) => this.key(event));
  }

  get isShown() {
    return this.panel.element.classList.contains("compact");
  }

  /** Evaluations and peak, in words. */
  get costs() {
    const { model } = this;
    const most = model.live[model.peakStep];
    const peak = amountText(most, model.inNodes);
    return `${counted(model.computes.length, "evaluation")} · peak ${peak}`;
  }

  /** Up and down open the policy above, and below. */
  key(event) {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    this.panel.events.neighbour(this.panel, by);
  }

  /** Draw the curve of the visible range, once per size, axis and scale. */
  redraw() {
    const ratio = pixelRatio();
    const { clientWidth, clientHeight } = this.canvas;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (!width || !height) return;
    [this.canvas.width, this.canvas.height] = [width, height];
    const { model, scales } = this;
    const scale = new Scale(scales.kind, scales.highest, scales.broken, scales.least);
    const context = this.canvas.getContext("2d");
    const style = getComputedStyle(this.element);
    context.fillStyle = style.getPropertyValue("--panel");
    context.fillRect(0, 0, width, height);
    context.fillStyle = style.getPropertyValue("--not-yet-outline");
    stepOfColumn(model, scales.extent, width).forEach((step, x) => {
      if (step < 0 || !model.live[step]) return;
      const high = Math.max(scale.at(model.live[step]) * height, ratio);
      context.fillRect(x, height - high, 1, high);
    });
    this.place();
  }

  /** @param {number} tick @param {Axis} align */
  show(tick, align) {
    const { model, panel } = this;
    panel.step = stepOfTick(model, tick, align);
    const live = panel.step < 0 ? 0 : model.live[panel.step];
    const text = amountText(live, model.inNodes);
    if (this.number.textContent !== text) this.number.textContent = text;
    this.place();
  }

  /** Bring the cursor to the present. */
  place() {
    const { extent } = this.scales;
    const place = presentOf(this.model, this.scales, this.panel.step);
    this.cursor.style.left = `${(100 * (place - extent.from)) / (extent.to - extent.from)}%`;
  }
}
