/** Canvas overlay of the charts: cursor, marks and arrows, redrawn at every step. */

import { isPrinting, pixelRatio } from "./print.js";

export class Overlay {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.ratio = 1;
  }

  resize() {
    this.ratio = pixelRatio();
    const box = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.round(box.width * this.ratio);
    this.canvas.height = Math.round(box.height * this.ratio);
  }

  clear() {
    // On paper, to clear a place would cover what is below it.
    if (isPrinting()) return this.resize();
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  /** The line of the present, with a knob at its top if there is room. */
  cursor(x, knob, ink) {
    const { context, ratio } = this;
    const wide = 2 * ratio;
    const left = Math.min(Math.max(x - wide / 2, 0), this.canvas.width - wide);
    context.fillStyle = ink;
    context.fillRect(left, knob * ratio, wide, this.canvas.height);
    if (!knob) return;
    context.beginPath();
    context.arc(left + wide / 2, knob * ratio, 4.5 * ratio, 0, 2 * Math.PI);
    context.fill();
  }

  /** A rounded frame around a place. */
  frame(left, top, right, bottom, stroke, wide, fill = null) {
    const { context, ratio } = this;
    context.beginPath();
    context.roundRect(left, top, right - left, bottom - top, 3 * ratio);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    context.strokeStyle = stroke;
    context.lineWidth = wide * ratio;
    context.stroke();
  }

  /** A bar that is lit. */
  lit(left, top, right, bottom, ink, halo) {
    const air = 2 * this.ratio;
    this.frame(left - air, top - air, right + air, bottom + air, ink, 3.5);
    this.frame(left - air, top - air, right + air, bottom + air, halo, 2);
  }

  /** A bar that is gone: what it was shines through. */
  ghost(left, top, right, bottom, ink, ground) {
    const { context, ratio } = this;
    context.globalAlpha = 0.6;
    context.fillStyle = ground;
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 1;
    context.setLineDash([3 * ratio, 2 * ratio]);
    this.frame(left, top, right, bottom, ink, 1);
    context.setLineDash([]);
  }

  /** An arrow at one moment, from row to row; lit, it has a halo. @param {string | null} [halo] */
  arrow(x, from, to, ink, halo = null) {
    const { context, ratio } = this;
    if (halo) this.shaft(x, from, to, halo, 5);
    this.shaft(x, from, to, ink, halo ? 2 : 1.5);
    const head = (halo ? 8 : 6) * ratio;
    const sign = Math.sign(to - from) || 1;
    context.fillStyle = ink;
    context.beginPath();
    context.moveTo(x, to);
    context.lineTo(x - 0.55 * head, to - sign * head);
    context.lineTo(x + 0.55 * head, to - sign * head);
    context.fill();
  }

  /** The line of an arrow, without its head. */
  shaft(x, from, to, ink, wide) {
    const { context, ratio } = this;
    const bend = Math.min(14 * ratio, Math.abs(to - from) / 3);
    context.strokeStyle = ink;
    context.lineWidth = wide * ratio;
    context.beginPath();
    context.moveTo(x, from);
    context.quadraticCurveTo(x - bend, (from + to) / 2, x, to - (Math.sign(to - from) || 1) * 6 * ratio);
    context.stroke();
  }
}
