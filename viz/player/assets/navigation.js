/**
 * Time navigation: zoom and pan by keys and buttons, and a range that plays in a loop.
 *
 * All of it changes the one visible range that ledger, strip and minimap share, at most once per
 * frame.
 */

import { COUNTED, placesOf, presentOf } from "./axis.js";
import { byId } from "./controls.js";
import { showElsewhere } from "./elsewhere.js";
import { countText } from "./format.js";
import { Gestures } from "./gestures.js";
import { Minimap } from "./minimap.js";
import { stepOfTick, tickOfStep, ticksOf } from "./model.js";
import { Search } from "./search.js";

/**
 * @import { Model } from "./data.js"
 * @import { Player } from "./main.js"
 */

const LEAST_TICKS = 4; // in sight, where ticks are of one width
export const [ZOOM, PAN] = [1.3, 0.15]; // of a key: how much nearer, and which part of what is in sight

export class Navigation {
  /** @param {Player} player */
  constructor(player) {
    this.player = player;
    this.holder = byId("panels");
    this.loop = null; // ticks, both inside: { from, to }
    this.minimap = new Minimap(this);
    this.gestures = new Gestures(this);
    this.search = new Search(player);
    document.addEventListener("keydown", (event) => this.key(event), true);
    this.buttons();
    this.extent.watch(() => this.slid());
  }

  get extent() {
    return this.player.scales.extent;
  }

  buttons() {
    const actions = {
      nearer: () => this.zoom(ZOOM),
      farther: () => this.zoom(1 / ZOOM),
      whole: () => this.extent.isWhole || this.set(0, this.extent.whole),
      loop: () => this.toggleLoop(),
    };
    for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
  }

  // What is in sight ------------------------------------------------------------------------------

  /** Show a part, with the next frame. @param {number} from @param {number} to */
  set(from, to) {
    if (!this.wanted) requestAnimationFrame(() => this.apply());
    this.wanted = [from, to];
    this.player.settle();
  }

  apply() {
    if (!this.wanted) return;
    const [from, to] = this.wanted;
    this.wanted = null;
    this.extent.set(from, to);
  }

  /** The visible range, or the requested one. @returns {number[]} */
  get sight() {
    return this.wanted ?? [this.extent.from, this.extent.to];
  }

  /** Show a part of another width around a place, which stays where it is. */
  zoom(factor, place = this.middle()) {
    const [from, to] = this.sight;
    const wide = Math.min(Math.max((to - from) / factor, this.least), this.extent.whole);
    const share = (place - from) / (to - from);
    this.around(place - share * wide, wide);
  }

  /** Show a part of a width from a place on, or as near as that can be. */
  around(from, wide) {
    const begin = Math.min(Math.max(from, 0), this.extent.whole - wide);
    this.set(begin, begin + wide);
  }

  /** @param {number} share of what is in sight */
  pan(share) {
    const [from, to] = this.sight;
    this.around(from + share * (to - from), to - from);
  }

  /** The least that is in sight. */
  get least() {
    const { axis, whole } = this.extent;
    return COUNTED.includes(axis) ? Math.min(LEAST_TICKS, whole) : whole * 1e-6;
  }

  /** The present, or the middle of what is in sight if that is elsewhere. */
  middle() {
    const [from, to] = this.sight;
    const { model, step } = this.player.visible[0];
    const now = presentOf(model, this.player.scales, step);
    return from < now && now < to ? now : (from + to) / 2;
  }

  /** Bring a moment into sight. @param {Model} model @param {number[]} steps any of these */
  reveal(model, steps) {
    const [from, to] = this.sight;
    const places = Array.from(steps, (step) => placesOf(model, this.extent.axis)[step]);
    if (!places.length || places.some((place) => from <= place && place < to)) return;
    const middle = (from + to) / 2;
    const nearest = places.reduce((a, b) => (Math.abs(b - middle) < Math.abs(a - middle) ? b : a));
    this.around(nearest - (to - from) / 2, to - from);
  }

  // Keys ------------------------------------------------------------------------------------------

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (event.target.closest?.("select, input:not([type=range]), textarea")) return;
    if (!this.act(event.key.length === 1 ? event.key.toLowerCase() : event.key, event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Handle a key. @returns {boolean} whether it means anything */
  act(key, shift) {
    const { player, search } = this;
    const inTime = {
      w: () => this.zoom(ZOOM),
      s: () => this.zoom(1 / ZOOM),
      a: () => this.pan(-PAN),
      d: () => this.pan(PAN),
      z: () => this.set(0, this.extent.whole),
    };
    const anywhere = {
      "/": () => search.open(),
      n: () => search.next(shift ? -1 : 1),
      l: () => this.toggleLoop(),
      "[": () => this.setLoop(Math.max(player.tick, 0), this.loop?.to ?? player.ticks - 1),
      "]": () => this.setLoop(this.loop?.from ?? 0, Math.max(player.tick, 0)),
    };
    if (key === "Escape" && search.active) {
      search.close();
      return true;
    }
    if (key === "n" && !search.active) return false;
    // Where there is nowhere to go, these are nobody's.
    if ("ad".includes(key) && this.extent.isWhole && !this.wanted) return false;
    const action = anywhere[key] ?? (player.scales.front === "graph" ? undefined : inTime[key]);
    action?.();
    return Boolean(action);
  }

  // A range ---------------------------------------------------------------------------------------

  /** The trace that has the most ticks: a tick of the axis is one of its. */
  get longest() {
    const { compared, align } = this.player;
    return compared.reduce((a, b) => (ticksOf(b, align) > ticksOf(a, align) ? b : a));
  }

  /** The tick at a place. @param {number} place */
  tickAt(place) {
    const { align, ticks } = this.player;
    if (align === "progress") return Math.min(Math.floor(Math.max(place, 0)), ticks - 1);
    const model = this.longest;
    return tickOfStep(model, this.extent.stepAt(model, Math.max(place, 0)), this.player.align);
  }

  /** Set the loop range to the interval between two positions. */
  takeRange(a, b) {
    const [low, high] = [Math.min(a, b), Math.max(a, b)];
    this.setLoop(this.tickAt(low), this.tickAt(high));
  }

  /** Play these ticks again and again. @param {number} from @param {number} to inside */
  setLoop(from, to) {
    const last = this.player.ticks - 1;
    const [low, high] = [Math.min(from, to), Math.max(from, to)].map((tick) => Math.min(Math.max(tick, 0), last));
    this.loop = { from: low, to: high };
    this.looped();
  }

  /** Loop the visible range; toggles. */
  toggleLoop() {
    if (this.loop) {
      this.loop = null;
      this.looped();
    } else this.takeRange(this.sight[0], this.sight[1] - 1e-9 * this.extent.whole);
  }

  /** Another schedule is shown, which may end before the range does. */
  fit() {
    if (this.loop) this.setLoop(this.loop.from, this.loop.to);
    else this.slid();
  }

  looped() {
    byId("loop").setAttribute("aria-pressed", String(this.loop !== null));
    byId("loop").title = this.loop
      ? `${this.rangeWords()}, again and again (L)`
      : "Play what is in sight again and again (L)";
    this.slid();
    this.player.settle();
  }

  /** The range in words. */
  rangeWords() {
    const { from, to } = this.loop;
    return `${this.player.align === "evaluation" ? "evaluations" : "steps"} ${countText(from)} to ${countText(to)}`;
  }

  /** The next position while a range is played. @param {number} tick */
  wrapped(tick) {
    if (!this.loop || tick <= this.loop.to) return tick;
    const { from, to } = this.loop;
    return from + ((tick - from) % (to - from + 1));
  }

  /** Where the range is on the axis. @returns {[number, number]} */
  get loopPlaces() {
    const model = this.longest;
    const { align } = this.player;
    if (align === "progress") return [this.loop.from, this.loop.to + 1];
    const places = placesOf(model, align);
    return [places[stepOfTick(model, this.loop.from, align)], places[stepOfTick(model, this.loop.to, align) + 1]];
  }

  /** The range as steps of the longest trace, and back: ticks are others along another axis. */
  get loopSteps() {
    const { align } = this.player;
    return this.loop && [this.loop.from, this.loop.to].map((tick) => stepOfTick(this.longest, tick, align));
  }

  set loopSteps(steps) {
    if (!steps) return;
    const [from, to] = steps.map((step) => tickOfStep(this.longest, step, this.player.align));
    this.setLoop(from, to);
  }

  // Following -------------------------------------------------------------------------------------

  /** What is in sight is another, or the range. */
  slid() {
    const { style } = this.holder;
    this.holder.classList.toggle("looping", this.loop !== null);
    if (this.loop) {
      const { from, to } = this.extent;
      const [begin, end] = this.loopPlaces.map((place) => Math.min(Math.max((place - from) / (to - from), -0.1), 1.1));
      style.setProperty("--range-from", `${100 * begin}%`);
      style.setProperty("--range-wide", `${100 * (end - begin)}%`);
    }
    this.holder.classList.toggle("nearer", !this.extent.isWhole);
    this.minimap.draw();
  }

  /** The present is another. */
  show() {
    this.minimap.draw();
    for (const panel of this.player.visible) showElsewhere(panel);
  }
}
