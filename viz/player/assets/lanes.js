/**
 * Gantt lanes over time, and the memory of each device below, on a canvas: the past filled, the
 * future outlined. Each kind of work has a fill, and a hatch where colours could be confused.
 */

import { countText, sizeText } from "./format.js";
import { BACKWARD, FORWARD, INPUTS, NOTHING, UPDATE } from "./pipeline_model.js";
import { isPrinting, pixelRatio } from "./print.js";

/**
 * @import { PipelineModel } from "./pipeline_model.js"
 */

/** @type {[string, number, string?][]} */
const BLOCK_FILLS = [
  ["kept", 1, ""],
  ["recomputing", 1, "lines"],
  ["gradient", 1, ""],
  ["gradient", 1, ""],
  ["gradient", 0.4, "dots"],
  ["workspace", 1, ""],
];
const [ROW_HIGH, LANE_HIGH, LANE_GAP, CURVE_HIGH, CURVE_GAP] = [19, 26, 9, 26, 6]; // pixels
const [LEFT, TOP, CAPTION, FOOT, AIR] = [34, 4, 30, 24, 8]; // pixels
const [BLOCK_FONT, NUMBERS] = ["11px Inter, system-ui, sans-serif", "600 10.5px Inter, system-ui, sans-serif"];
const [AROUND_LANES, HEADING_HIGH, MOST_STRETCH] = [270, 80, 2.2]; // pixels of the window beside the schedules, of each one's heading; times
const ROOM_SHARE = 0.68; // of the screen's height, that lanes take when they are shown large
const THIN = 3; // pixels, below which a block has no sides that could be told apart
const ODD = 0.8; // strength of every second micro-batch's fill
const FAINT = 0.3; // strength in the rows of other stages
const IDLE = { light: 0.35, dark: 0.6 }; // strength of a bubble
const ROOM = 12; // pixels from message to message
const NUMBERED = 11; // pixels of a block that has room for its number and a halo

/** A mixture of two colours, both as #RRGGBB. */
function mixed(over, under, share) {
  const parts = [1, 3, 5].map((at) => {
    const [a, b] = [over, under].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(share * a + (1 - share) * b);
  });
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever reads better on a colour. */
function labelOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  return 1.05 / light > light / 0.0551 ? "#FFFFFF" : "#0A101C";
}

export class Lanes {
  /** @param {HTMLElement} element @param {PipelineModel} model @param {{longest: number, highest: number, beside: string[], shown: number, large: number}} scales shared by all */
  constructor(element, model, scales) {
    this.element = element;
    this.model = model;
    this.scales = scales;
    this.canvas = element.querySelector("canvas");
    this.context = this.canvas.getContext("2d");
    this.lane = this.curve = this.curves = this.height = 0; // pixels
    this.fit();
    this.large = 1; // pixels of the screen for one of these
    this.time = 0;
    this.selected = NOTHING;
    this.running = [];
  }

  /** Make lanes and curves as high as the window has room for. */
  fit() {
    const { model, scales } = this;
    const lane = Math.max(LANE_HIGH, ROW_HIGH * model.rows);
    const fixed = TOP + CAPTION + FOOT - LANE_GAP + model.devices * (LANE_GAP + CURVE_GAP);
    const room = (innerHeight - AROUND_LANES) / scales.shown - HEADING_HIGH - fixed;
    const stretch = Math.min(Math.max(room / (model.devices * (lane + CURVE_HIGH)), 1), MOST_STRETCH);
    const times = isPrinting() || scales.large > 1 ? 1 : stretch;
    [this.lane, this.curve] = [Math.round(lane * times), Math.round(CURVE_HIGH * times)];
    this.curves = TOP + model.devices * (this.lane + LANE_GAP) - LANE_GAP + CAPTION;
    this.height = this.curves + model.devices * (this.curve + CURVE_GAP) + FOOT;
    this.element.style.height = `${this.height}px`;
  }

  laneTop(device) {
    return TOP + device * (this.lane + LANE_GAP);
  }

  x(time) {
    return LEFT + (time / this.scales.longest) * (this.width - LEFT - this.right);
  }

  /** The time at a point of the screen. */
  timeAt(clientX) {
    const box = this.canvas.getBoundingClientRect();
    const share = ((clientX - box.left) / this.large - LEFT) / (box.width / this.large - LEFT - this.right);
    return Math.min(Math.max(share, 0), 1) * this.scales.longest;
  }

  /** Whether a point of the screen is above the curves. */
  isInLanes(clientY) {
    return (clientY - this.canvas.getBoundingClientRect().top) / this.large < this.curves - CAPTION / 2;
  }

  /** The device at a point of the screen, by its lane or its curve; NOTHING between them. */
  deviceAt(clientY) {
    const y = (clientY - this.canvas.getBoundingClientRect().top) / this.large;
    const inLanes = this.isInLanes(clientY);
    const high = inLanes ? this.lane + LANE_GAP : this.curve + CURVE_GAP;
    const device = Math.floor((y - (inLanes ? TOP : this.curves)) / high);
    return device >= 0 && device < this.model.devices ? device : NOTHING;
  }

  /** The box of a block: left, top, width and height in pixels. @param {number} block */
  boxOf(block) {
    const { model } = this;
    const device = model.device[block];
    const high = this.lane / model.rows;
    const row = model.rows > 1 ? model.stages_of[device].indexOf(model.stage[block]) : 0;
    const left = this.x(model.begin[block]);
    return [left, this.laneTop(device) + row * high, Math.max(this.x(model.end[block]) - left, 0), high];
  }

  /** Redraw past and future after a change of size or colours. */
  redraw() {
    this.fit();
    // As large as all schedules have room for.
    const room = (ROOM_SHARE * document.body.clientHeight) / (this.height * this.scales.shown);
    this.large = Math.max(isPrinting() ? 0 : 1, Math.min(this.scales.large, room));
    this.element.style.height = `${this.height * this.large}px`;
    const ratio = pixelRatio() * this.large;
    const box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    this.width = box.width / this.large;
    this.ratio = ratio;
    [this.canvas.width, this.canvas.height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    const style = getComputedStyle(this.element);
    this.ink = (name) => style.getPropertyValue(`--${name}`).trim();
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    this.measure(this.context);
    this.idle = mixed(this.ink("not-yet-outline"), this.ink("background"), dark ? IDLE.dark : IDLE.light);
    this.layers = [false, true].map((future) => {
      const layer = new OffscreenCanvas(this.canvas.width, this.canvas.height);
      const context = layer.getContext("2d");
      context.scale(ratio, ratio);
      context.fillStyle = this.ink("background");
      context.fillRect(0, 0, this.width, this.height);
      this.drawLanes(context, future);
      this.drawMessages(context);
      this.drawCurves(context, future);
      this.drawWords(context);
      return layer;
    });
    this.draw();
  }

  /** What texts need, and the colours of blocks: once for all of them. */
  measure(context) {
    const { model } = this;
    context.font = BLOCK_FONT;
    // As much for all schedules, so that their times are above each other.
    const widest = Math.max(...this.scales.beside.map((words) => context.measureText(words).width));
    this.right = Math.ceil(widest) + 2 * AIR;
    context.font = NUMBERS;
    this.number = context.measureText("0".repeat(String(model.micro_batches - 1).length)).width + 4;
    const ground = this.ink("background");
    this.fills = BLOCK_FILLS.map(([name, share]) => [1, ODD].map((odd) => mixed(this.ink(name), ground, share * odd)));
    this.faint = this.fills.map(([even]) => mixed(even, ground, FAINT));
    this.outlines = BLOCK_FILLS.map(([name]) => this.ink(name));
    this.ground = ground;
  }

  drawLanes(context, future) {
    const { model } = this;
    for (let device = 0; device < model.devices; device++) {
      const top = this.laneTop(device);
      this.line = -Infinity; // where a block was drawn last that is too narrow for an outline
      context.fillStyle = future ? mixed(this.idle, this.ink("background"), 0.4) : this.idle;
      context.fillRect(LEFT, top, this.x(model.makespan) - LEFT, this.lane);
      for (let i = model.first[device]; i < model.first[device + 1]; i++) {
        if (model.end[i] > model.begin[i]) this.drawBlock(context, i, future);
      }
    }
  }

  drawBlock(context, i, future) {
    const { model } = this;
    const kind = model.kind[i];
    const [left, top, width, height] = this.boxOf(i);
    const fill = this.fills[kind][model.micro_batch[i] % 2];
    const wide = Math.max(width, 0.5);
    if (future || model.rows > 1) {
      context.fillStyle = future ? this.ground : this.faint[kind];
      context.fillRect(left, this.laneTop(model.device[i]), wide, this.lane);
    }
    if (!future) {
      context.fillStyle = fill;
      context.fillRect(left, top, wide, height);
      if (BLOCK_FILLS[kind][2] && width >= THIN)
        this.drawStrokes(context, BLOCK_FILLS[kind][2], [left, top, wide, height]);
    } else if (width < THIN) {
      context.fillStyle = this.outlines[kind];
      for (const edge of [top, top + height - 1]) context.fillRect(left, edge, wide, 1);
      // Lines side by side would fill what is to come.
      if (left - this.line < THIN) return;
      context.fillRect(left, top, 1, height);
      this.line = left;
    } else {
      context.strokeStyle = this.outlines[kind];
      context.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
    }
    if (kind !== UPDATE && width >= this.number) {
      this.drawNumber(context, i, [left, top, width, height], future ? this.ground : fill);
    }
  }

  /** Hatches that distinguish kinds without colour. */
  drawStrokes(context, what, [left, top, width, height]) {
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.beginPath();
    if (what === "lines") {
      context.strokeStyle = mixed(this.ink("background"), this.ink("recomputing"), 0.6);
      for (let x = left - height; x < left + width; x += 6) {
        context.moveTo(x, top + height);
        context.lineTo(x + height, top);
      }
      context.stroke();
    } else {
      context.fillStyle = this.ink("gradient");
      for (let x = left + 2; x < left + width; x += 5) {
        for (let y = top + 2.5; y < top + height; y += 5) context.fillRect(x, y, 1.6, 1.6);
      }
    }
    context.restore();
  }

  drawNumber(context, i, [left, top, width, height], ground) {
    context.font = NUMBERS;
    [context.textAlign, context.textBaseline] = ["center", "middle"];
    if (BLOCK_FILLS[this.model.kind[i]][2]) {
      context.fillStyle = ground;
      context.fillRect(left + (width - this.number) / 2, top + height / 2 - 6, this.number, 12);
    }
    context.fillStyle = labelOn(ground);
    context.fillText(String(this.model.micro_batch[i]), left + width / 2, top + height / 2 + 0.5);
  }

  /** Thin arrows from lane to lane beside it, where there is room. */
  drawMessages(context) {
    const { model } = this;
    const found = [];
    model.ready.forEach((ready, i) => {
      const towards = model.kind[i] === FORWARD ? -1 : 1;
      const other = model.stage[i] + towards;
      const replica = (stage) => Math.floor(stage / model.depth); // each is a pipeline by itself
      if (![FORWARD, BACKWARD, INPUTS].includes(model.kind[i]) || replica(other) !== replica(model.stage[i])) return;
      const way = model.device[i] - model.device_of[other];
      if (Math.abs(way) === 1 && !model.by_message[i]) found.push([ready, model.device[i], way]);
    });
    if (found.length * ROOM > (model.devices - 1) * (this.x(model.makespan) - LEFT)) return;
    context.strokeStyle = context.fillStyle = this.ink("ink");
    context.lineWidth = 1;
    for (const [ready, device, down] of found) {
      const [from, to] = [this.x(ready - model.way), this.x(ready)];
      const end = this.laneTop(device) + (down > 0 ? 0 : this.lane);
      context.beginPath();
      context.moveTo(from, end - down * LANE_GAP);
      context.lineTo(to, end - down * 2);
      context.stroke();
      context.beginPath();
      context.moveTo(to, end);
      context.lineTo(to - 2, end - down * 3.5);
      context.lineTo(to + 2, end - down * 3.5);
      context.fill();
    }
  }

  drawCurves(context, future) {
    const { model } = this;
    for (let device = 0; device < model.devices; device++) {
      const ground = this.curves + device * (this.curve + CURVE_GAP) + this.curve;
      const y = (held) => ground - (held / Math.max(this.scales.highest, 1)) * (this.curve - 2);
      context.beginPath();
      context.moveTo(LEFT, ground);
      let before = 0;
      const to = (time, held) => {
        context.lineTo(this.x(time), y(before));
        context.lineTo(this.x(time), y(held));
        before = held;
      };
      for (let i = model.first[device]; i < model.first[device + 1]; i++) {
        to(model.begin[i], model.during[i]);
        // What lasts no time is not seen.
        if (i + 1 === model.first[device + 1] || model.begin[i + 1] > model.end[i]) to(model.end[i], model.after[i]);
      }
      to(model.makespan, before);
      context.lineTo(this.x(model.makespan), ground);
      context.strokeStyle = this.ink("kept");
      context.lineWidth = 1.2;
      context.stroke();
      if (future) continue;
      context.fillStyle = mixed(this.ink("kept"), this.ink("background"), 0.3);
      context.fill();
      context.stroke();
    }
  }

  /** Names to the left, shares and peaks to the right, times below. */
  drawWords(context) {
    const { model } = this;
    context.fillStyle = this.ink("muted");
    context.font = BLOCK_FONT;
    context.textBaseline = "middle";
    for (let device = 0; device < model.devices; device++) {
      const top = this.laneTop(device);
      const curve = this.curves + device * (this.curve + CURVE_GAP) + this.curve / 2;
      context.textAlign = "right";
      if (model.rows > 1) {
        const high = this.lane / model.rows;
        model.stages_of[device].forEach((stage, row) =>
          context.fillText(String(stage), LEFT - AIR, top + (row + 0.5) * high),
        );
      } else context.fillText(String(device), LEFT - AIR, top + this.lane / 2);
      context.fillText(String(device), LEFT - AIR, curve);
      context.textAlign = "left";
      context.fillText(model.idle[device], this.width - this.right + AIR, top + this.lane / 2);
      context.fillText(model.peakTexts[device], this.width - this.right + AIR, curve);
    }
    const what = model.counts ? `micro-batches in flight${model.folded ? " by stage" : ""}` : "memory of micro-batches";
    const high = model.counts ? countText(this.scales.highest) : sizeText(this.scales.highest);
    const whole = `${what} on each device; a row is ${high} high`;
    const isWhole = context.measureText(whole).width <= this.width - LEFT;
    context.fillText(isWhole ? whole : `${what}; a row is ${high}`, LEFT, this.curves - 12);
    this.drawAxis(context);
  }

  drawAxis(context) {
    const { longest } = this.scales;
    const rough = longest / Math.max(2, Math.floor((this.width - LEFT - this.right) / 90));
    const power = 10 ** Math.floor(Math.log10(rough));
    const each = [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough);
    context.textAlign = "center";
    for (let n = 0; n * each <= longest * (1 + 1e-9); n++) {
      const time = Number((n * each).toPrecision(12));
      context.fillRect(this.x(time), this.height - FOOT + 1, 1, 4);
      context.fillText(String(time), this.x(time), this.height - FOOT + 14);
    }
  }

  /** @param {number} time */
  show(time) {
    this.time = Math.min(time, this.model.makespan);
    this.draw();
  }

  select(block) {
    this.selected = block;
    this.draw();
  }

  /** Draw the current time: past, future, active blocks, selection. */
  draw() {
    if (!this.layers) return;
    const { context, model, ratio } = this;
    const [past, future] = this.layers;
    const { width, height } = this.canvas;
    context.setTransform(1, 0, 0, 1, 0, 0);
    const now = Math.round(this.x(this.time) * ratio);
    const end = Math.round((this.width - this.right) * ratio);
    context.drawImage(past, 0, 0);
    if (now < end) context.drawImage(future, now, 0, end - now, height, now, 0, end - now, height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const alike = this.selected === NOTHING ? [] : model.alike(this.selected);
    for (const block of alike) this.outline(block, this.ink("checkpoint"), 2);
    this.running = Array.from({ length: model.devices }, (_, device) => model.runningAt(device, this.time));
    for (const block of this.running) if (block !== NOTHING) this.drawRunning(block, past);
    if (this.selected !== NOTHING) this.outline(this.selected, this.ink("ink"), 2);
    context.fillStyle = this.ink("ink");
    context.fillRect(Math.min(this.x(this.time), width / ratio - 2) - 1, 0, 2, this.height - FOOT);
  }

  /** What a device is busy with: whole, in a halo where that leaves something of it. */
  drawRunning(block, past) {
    const [left, top, width, height] = this.boxOf(block).map((edge) => edge * this.ratio);
    if (width < 1) return;
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.drawImage(past, left, top, width, height, left, top, width, height);
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    if (width / this.ratio >= NUMBERED) this.outline(block, this.ink("halo"), 3.5);
    this.outline(block, this.ink("ink"), 1.5);
  }

  outline(block, colour, thick) {
    const [left, top, width, height] = this.boxOf(block);
    this.context.strokeStyle = colour;
    this.context.lineWidth = thick;
    this.context.strokeRect(left + thick / 2, top + thick / 2, Math.max(width - thick, 1), height - thick);
  }
}
