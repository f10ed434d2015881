/** Plot of memory over time (memory strip): one block per resident tensor. */

import { AddressMap, bufferWords, placedBlocks } from "./addresses.js";
import { rootOf } from "./allocation.js";
import { presentOf, stepOfColumn } from "./axis.js";
import { blocksAt, blocksOf, leastPeak, storeAllPeak } from "./blocks.js";
import { liveLines } from "./details.js";
import { amountText, changeText, counted, shortLive, setText } from "./format.js";
import { measuredPeak } from "./measured.js";
import { Overlay } from "./overlay.js";
import { Layers, colours } from "./raster.js";
import { blockLines } from "./reasons.js";
import { ADDRESSES, BREAK, Scale } from "./scale.js";
import { Stack } from "./stack.js";
import { lastAtMost } from "./state.js";
import { WORDS } from "./timeline.js";

/**
 * @import { Panel } from "./panel.js"
 */

const STRIP_INKS =
  "panel kept recomputed gradient staying workspace background ghost not-yet-outline recomputed-edge".split(" ");
const STRIP_HEAD = 20; // pixels above the highest amount, for the number of the moment
const NUMBER_ROOM = 150; // pixels that the number is wide

export class Strip {
  /** @param {Panel} panel @param {any} scales shared by all */
  constructor(panel, scales) {
    this.panel = panel;
    this.scales = scales;
    this.element = panel.part(".strip");
    this.layers = new Layers(this.element.querySelector("canvas"));
    this.over = new Overlay(this.element.querySelector("canvas.over"));
    this.axis = this.element.querySelector(".axis");
    this.plot = this.element.querySelector(".plot");
    this.number = this.element.querySelector(".number");
    this.note = panel.part(".note");
    this.step = -1;
    this.value = -1;
    this.wide = this.high = 0; // pixels of the page that there are for memory
    this.take();
    this.listen();
  }

  get model() {
    return this.panel.model;
  }

  /** Take on another schedule. */
  take() {
    this.lines = this.limits();
    this.layers.canvas.setAttribute("aria-label", this.words);
    this.note.textContent = this.noteText;
    this.note.hidden = !this.noteText;
    this.scales.buffer = Math.max(this.scales.buffer, this.placed?.height ?? 0);
  }

  /** Where everything is in one buffer; null where memory is stacked, and where it has no addresses. */
  get placed() {
    return this.scales.kind === ADDRESSES ? placedBlocks(this.model) : null;
  }

  get noteText() {
    return this.scales.kind === ADDRESSES ? bufferWords(this.model) : "";
  }

  /** The strip as text. */
  get words() {
    const { model } = this;
    const peak = shortLive(model.live[model.peakStep], model.inNodes);
    const how = this.placed ? `by address in ${shortLive(this.placed.height, model.inNodes)}` : "in blocks";
    return `Memory ${how} over ${counted(model.count, "step")}; peak ${peak} at step ${model.peakStep}`;
  }

  /** The amounts that the curve is compared with. */
  limits() {
    const { model, placed } = this;
    const peak = model.live[model.peakStep];
    /** @type {[string, number][]} */
    const lines = [["peak", peak]];
    if (placed) {
      const isPeak = shortLive(placed.height, model.inNodes) === shortLive(peak, model.inNodes);
      lines.push(["buffer", isPeak ? peak : placed.height]); // one line where only rounding is between them
    } else lines.push(["lower bound", (model.graph.leastPeak ??= leastPeak(model))]);
    if (model.budget !== null) lines.push(["budget", model.budget]);
    if (!placed && model.policy !== "store_all")
      lines.push(["store all", (model.graph.storeAllPeak ??= storeAllPeak(model))]);
    if (model.measured) lines.push(["measured", measuredPeak(model)]);
    return lines.map(([name, amount]) => ({ name, amount }));
  }

  listen() {
    const { canvas } = this.layers;
    const events = this.panel.events;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      const block = this.blockAt(event);
      // A block is chosen where it stands; anywhere else, and on the way, this is a scrubber.
      if (block && block.value >= 0) events.choose(this.panel, -1, block.value);
      else this.seek(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) this.seek(event);
      this.hover(event);
    });
    canvas.addEventListener("pointerleave", (event) => events.hover(event, this.panel, null));
  }

  seek(event) {
    this.panel.events.seekStep(this.model, this.stepAt(event));
  }

  /** Pixels above the highest amount. */
  get head() {
    return STRIP_HEAD * this.scales.large;
  }

  /** Live blocks after a step, from the bottom up. @param {number} step */
  blocks(step) {
    return blocksAt(this.model, step);
  }

  /** The step at a point of the screen. */
  stepAt(event) {
    const box = this.plot.getBoundingClientRect();
    const x = Math.min(Math.max(event.clientX - box.left, 0), box.width - 1e-6);
    const column = this.columns?.[Math.floor((x / box.width) * this.columns.length)] ?? -1;
    return column >= 0 ? column : this.model.count - 1;
  }

  /** The block at a point of the screen, if there is one. */
  blockAt(event) {
    const box = this.plot.getBoundingClientRect();
    const step = this.stepAt(event);
    const height = (box.bottom - event.clientY) / (box.height - this.head);
    if (this.placed) {
      const address = this.scale.amountAt(height);
      const isAt = ({ begin, end, offset, amount }) =>
        begin <= step && step < end && offset <= address && address < offset + amount;
      const found = this.placed.rectangles.find(isAt);
      return found ? { ...found, step } : null;
    }
    let sum = 0;
    for (const block of this.blocks(step)) {
      sum += block.amount;
      if (this.scale.at(sum) >= height) return { ...block, step };
    }
    return null;
  }

  hover(event) {
    if (event.pointerType === "touch") return;
    const block = this.blockAt(event);
    const step = this.stepAt(event);
    const lines = block ? blockLines(this.model, block) : liveLines(this.model, step);
    const { measured } = this.panel;
    this.panel.events.say(event, measured ? [...lines, measured.words(step)] : lines);
    this.layers.canvas.style.cursor = block && block.value >= 0 ? "pointer" : "col-resize";
  }

  /** The highest amount that has room. */
  get highest() {
    return Math.max(this.scales.highest, this.scales.buffer);
  }

  /** Take on another size, other colours or another scale. */
  resized() {
    if (!this.layers.resize()) return;
    this.over.resize();
    this.ink = colours(this.element, STRIP_INKS);
    [this.wide, this.high] = [this.plot.clientWidth, this.plot.clientHeight - this.head];
    this.rescale();
  }

  /** Take on another scale, or other lines. */
  rescale() {
    const { scales, layers } = this;
    if (!layers.past) return;
    this.scale = new Scale(scales.kind, this.highest, scales.broken, scales.least);
    this.room = layers.past.height - this.head * layers.ratio;
    this.labels();
  }

  /** Draw what is in sight now. @param {boolean} [isMoving] whether it is another in the next frame */
  redraw(isMoving = false) {
    const { scales, model, layers } = this;
    if (!layers.past) return;
    const ghost = this.placed ? null : scales.ghostOf(model);
    layers.isAlike = Boolean(ghost);
    layers.limit(isMoving && !ghost ? this.x(this.step) : null);
    this.columns = stepOfColumn(model, scales.extent, layers.past.width);
    const ended = this.columns.indexOf(-1);
    this.shown = this.columns.subarray(0, ended < 0 ? this.columns.length : ended);
    if (ghost) this.backdrop(ghost);
    else for (const raster of [layers.past, layers.future]) raster.pixels.fill(this.ink.panel);
    if (this.placed) new AddressMap(this).paint();
    else new Stack(this, Boolean(ghost) && !model.inNodes).paint();
    this.show(this.step, true);
    scales.stacked();
  }

  /** Draw what another schedule has in memory, behind everything. @param {Float64Array} ghost by step */
  backdrop(ghost) {
    const { past, ratio } = this.layers;
    const thick = Math.max(1, Math.round(ratio));
    const top = (step) => past.height - Math.round(this.scale.at(ghost[step]) * this.room);
    const tops = this.shown.map((step) => Math.max(top(step), 0));
    past.silhouette(tops, this.ink.ghost, this.ink.panel);
    tops.forEach((own, x) => {
      const before = x ? tops[x - 1] : past.height;
      past.rect(x, Math.min(own, before), x + 1, Math.max(own, before) + thick, this.ink["not-yet-outline"]);
    });
  }

  /** Axis and lines, as text of the page: written anew where it is another. */
  labels() {
    const { model, scale, scales, high, wide } = this;
    const marked = this.lines.flatMap(({ name, amount }) => {
      const same = this.lines.filter((line) => line.amount === amount).map((line) => line.name);
      const kind = same.includes("budget") ? "budget" : name;
      return same[0] === name && scales.isMarked(kind, amount) ? [{ same, kind, amount }] : [];
    });
    const text = JSON.stringify([marked, scale, high, wide, scales.large]);
    if (text === this.labelled) return;
    this.labelled = text;
    const at = (amount) => `${scale.at(amount) * high}px`;
    const ticks = scale.ticks(model.inNodes, Math.max(2, Math.floor(high / (34 * scales.large))));
    this.axis.replaceChildren(...ticks.map((amount) => placed("span", shortLive(amount, model.inNodes), at(amount))));
    if (scale.kind === "broken") this.axis.append(placed("span", "≈", `${BREAK * high}px`));
    for (const old of this.plot.querySelectorAll(".limit, .break")) old.remove();
    if (scale.kind === "broken") this.plot.append(placed("div", "", `${BREAK * high}px`, "break"));
    const lines = [];
    for (const { same, kind, amount } of marked) {
      const beyond = amount > this.highest * 1.0001;
      const line = placed("div", "", beyond ? `${high}px` : at(amount), `limit ${kind.replace(" ", "-")}`);
      const words = document.createElement("span");
      words.textContent = `${same.join(" = ")} ${shortLive(amount, model.inNodes)}${beyond ? " ↑" : ""}`;
      line.append(words);
      lines.push({ line, words, y: Number.parseFloat(line.style.bottom) });
    }
    this.plot.append(...lines.map(({ line }) => line));
    const widths = lines.map(({ words }) => words.offsetWidth); // one layout for all
    const taken = []; // where words stand, and how wide they are
    lines.forEach(({ words, y }, i) => {
      const beside = (place) =>
        taken.reduce((sum, other) => sum + (Math.abs(other.place - place) < WORDS * scales.large ? other.width : 0), 0);
      // At the top of a narrow strip stands the number of the moment.
      const isUnder = y > high - WORDS && beside(y) + widths[i] > wide - NUMBER_ROOM * scales.large;
      const place = isUnder ? y - WORDS * scales.large : y;
      const right = beside(place);
      words.classList.toggle("under", isUnder);
      words.style.right = `${right}px`;
      // Beside others there may be no room for them; the canvas' label says the peak.
      if (right && right + widths[i] > wide) words.remove();
      else taken.push({ place, width: widths[i] });
    });
  }

  /** The column where the present is. @param {number} step */
  x(step) {
    const { scales, layers } = this;
    return scales.extent.pixel(presentOf(this.model, scales, step), layers.past.width);
  }

  /** @param {number} step @param {boolean} [whole] */
  show(step, whole = false) {
    this.step = step;
    const { layers } = this;
    if (!layers.past) return;
    const column = this.x(step);
    if (!whole && layers.isPart && column !== layers.now) return this.redraw();
    layers.show(column, whole);
    this.over.clear();
    if (this.value >= 0) this.mark();
    this.over.cursor(column, 0, this.panel.colours.ink);
  }

  /** Write the number of the moment. */
  count() {
    setText(this.number, this.numberText(this.step));
  }

  /** Live memory after a step, and its change. @param {number} step */
  numberText(step) {
    const { model } = this;
    const live = step < 0 ? 0 : model.live[step];
    const change = live - (step < 1 ? 0 : model.live[step - 1]);
    const text = `${amountText(live, model.inNodes)}  ${changeText(change, model.inNodes)}`;
    const { measured } = this.panel;
    return measured ? `${text}  ${measured.words(step)}` : text;
  }

  /** Mark the blocks of a value; -1 for none. @param {number} value */
  select(value) {
    this.value = value;
    this.show(this.step);
  }

  /** Frame the blocks of the value that is selected. */
  mark() {
    const { model, shown, over } = this;
    const root = rootOf(model.graph.data, this.value);
    const { values, begins, ends, amounts } = blocksOf(model);
    const sums = new Float64Array(shown.length);
    const floor = this.layers.past.height;
    const high = (sum) => floor - Math.round(this.scale.at(sum) * this.room);
    over.context.strokeStyle = this.panel.colours.ink;
    over.context.lineWidth = 2 * this.layers.ratio;
    for (const { value, begin, end, offset, amount } of this.placed?.rectangles ?? []) {
      const [left, right] = [begin, end].map((step) => lastAtMost(shown, step - 1) + 1);
      const top = high(offset + amount);
      if (value === root && left < right) over.context.strokeRect(left, top, right - left, high(offset) - top);
    }
    if (this.placed) return;
    for (let i = 0; i < values.length; i++) {
      const first = lastAtMost(shown, begins[i] - 1) + 1;
      const end = lastAtMost(shown, ends[i] - 1) + 1;
      for (let x = first, begin = first; values[i] === root && x < end; x++) {
        if (x + 1 < end && sums[x + 1] === sums[x]) continue;
        const top = high(sums[x] + amounts[i]);
        over.context.strokeRect(begin, top, x + 1 - begin, high(sums[x]) - top);
        begin = x + 1;
      }
      for (let x = first; x < end; x++) sums[x] += amounts[i];
    }
  }
}

/** An element that stands so far above the ground. */
export function placed(tag, text, bottom, name = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  element.style.bottom = bottom;
  return element;
}
