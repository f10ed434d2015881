/**
 * Live memory over time, on a canvas: the past in full colour, the future pale.
 *
 * Where several ticks share a column of pixels, the one with the most live memory is shown: a moment
 * that was, not the largest of every kind.
 */

const HEAD = 14; // pixels above the highest peak, for the strip's own text
const KINDS = ["activations", "gradients", "workspace"];

/** The tick that every column of pixels shows; -1 where the trace has ended.
 * @param {any} model
 * @param {"step" | "evaluation"} align
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

/** Columns of equal height together: left, right, and the top of every kind.
 * @param {any} model @param {Int32Array} columns of ticks @param {"step" | "evaluation"} align
 * @returns {{left: number, right: number, tops: number[]}[]}
 */
function runsOf(model, columns, align) {
  const runs = [];
  for (let x = 0; x < columns.length; x++) {
    if (columns[x] < 0) break;
    const step = stepOfTick(model, columns[x], align);
    let sum = 0;
    const tops = KINDS.map((kind) => (sum += model.kinds[kind][step]));
    const last = runs.at(-1);
    if (last && last.tops.every((top, i) => top === tops[i])) last.right = x + 1;
    else runs.push({ left: x, right: x + 1, tops });
  }
  return runs;
}

class Timeline {
  /**
   * @param {HTMLElement} element
   * @param {any} model
   * @param {{ticks: number, highest: number, align: "step" | "evaluation"}} scales shared by all
   */
  constructor(element, model, scales) {
    this.element = element;
    this.model = model;
    this.scales = scales;
    this.canvas = element.querySelector("canvas");
    this.context = this.canvas.getContext("2d");
    this.layers = null;
    this.tick = -1;
    this.cursor = 0; // the column at which it was drawn last
    element.querySelector(".peak").textContent = `peak ${model.peak}`;
    const grey = model.kinds.workspace.some((amount) => amount > 0);
    element.querySelector(".what").textContent = grey ? "live memory (grey: workspace)" : "live memory";
    this.canvas.setAttribute(
      "aria-label",
      `Live memory over ${counted(model.count, "step")}; peak ${model.peak} at step ${model.peakStep}`,
    );
  }

  /** Draw past and future anew: after a change of size, colours or scales. */
  redraw() {
    const ratio = window.devicePixelRatio || 1;
    const box = this.canvas.getBoundingClientRect();
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (!width || !height) return;
    [this.canvas.width, this.canvas.height] = [width, height];
    this.ratio = ratio;
    this.columns = tickOfColumn(this.model, this.scales.align, this.scales.ticks, width);
    const runs = runsOf(this.model, this.columns, this.scales.align);
    const style = getComputedStyle(this.element);
    this.ink = style.getPropertyValue("--ink");
    const unit = this.unit(height);
    this.layers = ["", "-pale"].map((suffix) => {
      const layer = new OffscreenCanvas(width, height);
      const context = layer.getContext("2d");
      context.fillStyle = style.getPropertyValue("--panel");
      context.fillRect(0, 0, width, height);
      ["kept", "gradient", "workspace"].forEach((name, kind) => {
        context.fillStyle = style.getPropertyValue(`--${name}${suffix}`);
        for (const { left, right, tops } of runs) {
          const low = height - Math.round((kind ? tops[kind - 1] : 0) * unit);
          const high = height - Math.round(tops[kind] * unit);
          if (high < low) context.fillRect(left, high, right - left, low - high);
        }
      });
      this.dashes(context, width, height, style.getPropertyValue("--muted"));
      return layer;
    });
    const above = (this.model.peaks[this.model.count - 1] * unit) / ratio;
    this.element.querySelector(".peak").style.bottom = `${Math.min(above, box.height - HEAD)}px`;
    this.draw(true);
  }

  unit(height) {
    return (height - HEAD * this.ratio) / Math.max(this.scales.highest, 1);
  }

  /** The dashed line at the peak. */
  dashes(context, width, height, ink) {
    const y = height - this.model.peaks[this.model.count - 1] * this.unit(height);
    context.strokeStyle = ink;
    context.lineWidth = this.ratio;
    context.setLineDash([4 * this.ratio, 4 * this.ratio]);
    context.beginPath();
    context.moveTo(0, Math.round(y) - this.ratio / 2);
    context.lineTo(width, Math.round(y) - this.ratio / 2);
    context.stroke();
  }

  /** @param {number} tick */
  show(tick) {
    this.tick = tick;
    this.draw();
  }

  /** Draw what has changed since the tick that is shown, or all of it. @param {boolean} [whole] */
  draw(whole = false) {
    if (!this.layers) return;
    const { width, height } = this.canvas;
    const now = Math.min(width, Math.floor(((this.tick + 1) * width) / this.scales.ticks));
    const [past, future] = this.layers;
    const wide = 2 * this.ratio;
    const low = whole ? 0 : Math.max(0, Math.min(this.cursor, now) - wide);
    const high = whole ? width : Math.min(width, Math.max(this.cursor, now) + wide);
    if (now > low) this.context.drawImage(past, low, 0, now - low, height, low, 0, now - low, height);
    if (now < high) this.context.drawImage(future, now, 0, high - now, height, now, 0, high - now, height);
    this.cursor = now;
    this.context.fillStyle = this.ink;
    this.context.fillRect(Math.min(Math.max(now - wide / 2, 0), width - wide), HEAD * this.ratio, wide, height);
  }

  /** The tick that is shown at a point of the screen. @param {number} clientX */
  tickAt(clientX) {
    const box = this.canvas.getBoundingClientRect();
    const share = Math.min(Math.max((clientX - box.left) / box.width, 0), 1 - 1e-9);
    const column = this.columns?.[Math.floor(share * this.columns.length)] ?? -1;
    return column >= 0 ? column : Math.floor(share * this.scales.ticks);
  }
}
