/** What lies upon bars and blocks: the cursor, marks and arrows, drawn anew at every step. */

class Overlay {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.ratio = 1;
  }

  resize() {
    this.ratio = window.devicePixelRatio || 1;
    const box = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.round(box.width * this.ratio);
    this.canvas.height = Math.round(box.height * this.ratio);
  }

  clear() {
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

  /** An arrow at one moment, from row to row. */
  arrow(x, from, to, ink) {
    const { context, ratio } = this;
    const head = 6 * ratio;
    const sign = Math.sign(to - from) || 1;
    const bend = Math.min(14 * ratio, Math.abs(to - from) / 3);
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = 1.5 * ratio;
    context.beginPath();
    context.moveTo(x, from);
    context.quadraticCurveTo(x - bend, (from + to) / 2, x, to - sign * head);
    context.stroke();
    context.beginPath();
    context.moveTo(x, to);
    context.lineTo(x - 0.55 * head, to - sign * head);
    context.lineTo(x + 0.55 * head, to - sign * head);
    context.fill();
  }
}
