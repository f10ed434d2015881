/** Minimap of the whole trace above the scrubber: live memory, visible range, loop, matches. */

import { placesOf, presentOf, stepOfColumn } from "./axis.js";
import { byId } from "./controls.js";
import { countText } from "./format.js";
import { drawMeasured, edgesOf, measuredBetween } from "./measured.js";
import { PAN, ZOOM } from "./navigation.js";
import { Scale } from "./scale.js";

/**
 * @import { Navigation } from "./navigation.js"
 */

const EDGE = 9; // pixels around an edge of what is in sight, by which it can be drawn
const EDGE_OF_FINGER = 16;
const MINIMAP_HEAD = 3; // pixels above the highest amount
const SMALLEST_SHARE = 1 / 24; // that something in it is drawn with, of its height

export class Minimap {
  /** @param {Navigation} navigation */
  constructor(navigation) {
    this.navigation = navigation;
    this.player = navigation.player;
    this.element = byId("minimap");
    this.canvas = this.element.querySelector("canvas");
    this.context = this.canvas.getContext("2d");
    this.canvas.width = 0; // where it is hidden, nothing is drawn
    this.curve = null; // drawn once for a size, an axis, a policy
    const { element } = this;
    new ResizeObserver(() => this.resized()).observe(element);
    element.addEventListener("pointerdown", (event) => this.down(event));
    element.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, (event) => this.up(event));
    element.addEventListener(
      "wheel",
      (event) => navigation.gestures.wheeled(event, element.clientWidth, this.placeAt(event)),
      { passive: false },
    );
    element.addEventListener("keydown", (event) => this.key(event));
  }

  resized() {
    this.ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    [this.canvas.width, this.canvas.height] = [
      Math.round(clientWidth * this.ratio),
      Math.round(clientHeight * this.ratio),
    ];
    this.curve = null;
    this.draw();
  }

  /** Live memory over all of time, of the first policy that is shown; of two, the higher. */
  drawCurve() {
    const { width, height } = this.canvas;
    const { extent, kind, highest, broken } = this.player.scales;
    const [panel] = this.player.visible;
    const { model, models } = panel;
    const scale = new Scale(kind, highest, broken);
    const style = getComputedStyle(this.element);
    this.ink = Object.fromEntries(
      ["ink", "muted", "background", "panel", "not-yet-outline", "kept", "halo"].map((name) => [
        name,
        style.getPropertyValue(`--${name}`),
      ]),
    );
    const whole = { axis: extent.axis, from: 0, place: (pixel) => (pixel / width) * extent.whole };
    const curve = new OffscreenCanvas(width, height);
    const context = curve.getContext("2d");
    context.fillStyle = this.ink.panel;
    context.fillRect(0, 0, width, height);
    context.fillStyle = this.ink["not-yet-outline"];
    const room = height - MINIMAP_HEAD * this.ratio;
    const highs = new Float64Array(width);
    for (const one of models) {
      stepOfColumn(one, /** @type {any} */ (whole), width).forEach((step, x) => {
        if (step >= 0 && one.live[step])
          highs[x] = Math.max(highs[x], scale.at(one.live[step]) * room, SMALLEST_SHARE * room);
      });
    }
    highs.forEach((high, x) => context.fillRect(x, height - high, 1, high));
    if (model.measured && models.length === 1) {
      const amounts = measuredBetween(model, edgesOf(model, /** @type {any} */ (whole), width));
      drawMeasured(context, amounts, (amount) => Math.min(scale.at(amount), 1) * room, this.ink, this.ratio / 2);
    }
    this.curve = curve;
    this.panel = panel;
    this.model = model;
    this.axis = extent.axis;
    this.kind = kind;
  }

  draw() {
    const { canvas, context, ratio, player } = this;
    const { width, height } = canvas;
    if (!width || !height || !player.visible) return;
    const { extent, kind } = player.scales;
    const [panel] = player.visible;
    if (
      !this.curve ||
      this.panel !== panel ||
      this.model !== panel.model ||
      this.axis !== extent.axis ||
      this.kind !== kind
    )
      this.drawCurve();
    const x = (place) => Math.round((place / extent.whole) * width);
    context.drawImage(this.curve, 0, 0);
    const [left, right] = [x(extent.from), Math.max(x(extent.to), x(extent.from) + 2 * ratio)];
    if (!extent.isWhole) {
      context.globalAlpha = 0.6;
      context.fillStyle = this.ink.background;
      context.fillRect(0, 0, left, height);
      context.fillRect(right, 0, width - right, height);
      context.globalAlpha = 1;
    }
    this.range(x, height);
    this.matches(panel.model, x, height);
    context.strokeStyle = this.ink.muted;
    context.lineWidth = 1.5 * ratio;
    context.strokeRect(left + 0.75 * ratio, 0.75 * ratio, right - left - 1.5 * ratio, height - 1.5 * ratio);
    for (const edge of [left, right]) this.handle(edge, width, height);
    context.fillStyle = this.ink.ink;
    const now = x(Math.max(...panel.models.map((model, i) => presentOf(model, player.scales, panel.steps[i]))));
    context.fillRect(Math.min(Math.max(now - ratio, 0), width - 2 * ratio), 0, 2 * ratio, height);
    this.say();
  }

  /** By what an edge is drawn. */
  handle(edge, width, height) {
    const { context, ratio } = this;
    const wide = 6 * ratio;
    context.fillStyle = this.ink.muted;
    context.beginPath();
    context.roundRect(
      Math.min(Math.max(edge - wide / 2, 0), width - wide),
      0.22 * height,
      wide,
      0.56 * height,
      2 * ratio,
    );
    context.fill();
  }

  range(x, height) {
    const { loop, loopPlaces } = this.navigation.loop ? this.navigation : {};
    if (!loop) return;
    const { context, ratio } = this;
    const [left, right] = loopPlaces.map(x);
    context.fillStyle = this.ink.kept;
    context.fillRect(left, height - 4 * ratio, Math.max(right - left, 2 * ratio), 4 * ratio);
  }

  /** When anything is evaluated that was searched. */
  matches(model, x, height) {
    const { search } = this.navigation;
    if (!search?.active) return;
    const { context, ratio } = this;
    const steps = search.evaluationsOf(model);
    if (this.marked?.steps !== steps || this.marked.curve !== this.curve) {
      const places = placesOf(model, this.axis);
      const columns = [];
      for (const step of steps) {
        const left = x(places[step]);
        if (!columns.length || left >= columns.at(-1) + 2 * ratio) columns.push(left);
      }
      this.marked = { steps, columns, curve: this.curve };
    }
    context.fillStyle = this.ink.ink;
    for (const left of this.marked.columns) context.fillRect(left, 0, Math.max(1, ratio), 0.3 * height);
  }

  /** The visible range, as text. */
  say() {
    const { extent, align } = this.player.scales;
    const { element } = this;
    const percent = (place) => Math.round((100 * place) / extent.whole);
    const text = extent.isWhole ? "all of it" : this.words(extent, align);
    if (element.getAttribute("aria-valuetext") === text) return;
    element.setAttribute("aria-valuetext", text);
    element.setAttribute("aria-valuenow", String(percent((extent.from + extent.to) / 2)));
  }

  words(extent, align) {
    const { navigation } = this;
    const [first, last] = [navigation.tickAt(extent.from), navigation.tickAt(extent.to - 1e-9 * extent.whole)];
    return `${align === "evaluation" ? "evaluations" : "steps"} ${countText(first)} to ${countText(last)}`;
  }

  placeAt(event) {
    const box = this.element.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    return share * this.player.scales.extent.whole;
  }

  /** An edge that is near is moved, what is in sight is moved as it is, and elsewhere begins anew. */
  down(event) {
    if (event.button !== 0) return;
    this.element.setPointerCapture(event.pointerId);
    const { whole, isWhole } = this.player.scales.extent;
    const [from, to] = this.navigation.sight;
    const place = this.placeAt(event);
    const near = ((event.pointerType === "touch" ? EDGE_OF_FINGER : EDGE) / this.element.clientWidth) * whole;
    const edges = [Math.abs(place - from), Math.abs(place - to)];
    if (Math.min(...edges) <= near) this.held = { fixed: edges[0] < edges[1] ? to : from };
    else if (!isWhole && from < place && place < to) this.held = { grip: place - from, wide: to - from };
    else this.held = { fixed: place, anew: true };
    event.preventDefault();
    this.element.focus({ preventScroll: true });
  }

  move(event) {
    if (!this.held) return;
    const { navigation, held } = this;
    const place = this.placeAt(event);
    held.moved = true;
    if (held.wide) return navigation.around(place - held.grip, held.wide);
    const { least } = navigation;
    const [low, high] = [Math.min(place, held.fixed), Math.max(place, held.fixed)];
    const [from, to] = navigation.sight;
    // A press that trembles draws nothing yet.
    if (held.anew && high - low < Math.max(least, 0.004 * navigation.extent.whole) && !held.drawn) return;
    held.drawn = true;
    if (high - low >= least) navigation.set(low, high);
    else if (held.fixed === from || held.fixed === to) {
      const begin = place < held.fixed ? held.fixed - least : held.fixed;
      navigation.set(begin, begin + least);
    }
  }

  up(event) {
    const { held, navigation } = this;
    this.held = null;
    if (!held?.anew || held.drawn || navigation.extent.isWhole || event.type === "pointercancel") return;
    const [from, to] = navigation.sight;
    navigation.around(held.fixed - (to - from) / 2, to - from);
  }

  key(event) {
    const { navigation } = this;
    const [from, to] = navigation.sight;
    const actions = {
      ArrowLeft: () => navigation.pan(-PAN),
      ArrowRight: () => navigation.pan(PAN),
      ArrowUp: () => navigation.zoom(ZOOM),
      ArrowDown: () => navigation.zoom(1 / ZOOM),
      Home: () => navigation.around(0, to - from),
      End: () => navigation.around(navigation.extent.whole, to - from),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    actions[event.key]();
    event.preventDefault();
    event.stopPropagation();
  }
}
