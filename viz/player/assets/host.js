/** Display of offloading: drawing and counters of values in host memory. */

import { placesOf, stepOfColumn } from "./axis.js";
import { counted, sizeText } from "./format.js";
import { CORNER, LABEL_BAND, LEAST_FILL, shownShare, svgElement } from "./graph.js";
import { part } from "./lights.js";
import { roundToEven } from "./memory.js";
import { stepOfTick } from "./model.js";
import { LEVELS } from "./state.js";
import { Timeline, heightOf, outlinesOf } from "./timeline.js";
import { TimeLane } from "./times.js";

/**
 * @import { Memory } from "./memory.js"
 * @import { Panel } from "./panel.js"
 */

const STRIPE = 1.2; // pixels that a stripe is thick
const STRIPE_AND_GAP = 3; // pixels from stripe to stripe
const LABELLED = 20; // pixels of height from which an operator's node has room for a label

/** A value is on the host now, or is not any more. @param {Memory} memory */
export function countOnHost(memory, data, sign) {
  const cell = memory.home[data];
  if (cell < 0) return;
  memory.waiting[cell] += sign;
  memory.waitingBytes[cell] += sign * memory.data.sizes[data];
}

/** Which part of a cell's bytes is on the host; of its values, where all of them are views.
 * @param {Memory} memory @param {number} cell of which something is there
 */
export function hostedShare(memory, cell) {
  const total = memory.allBytes[cell];
  return Math.min(total ? memory.waitingBytes[cell] / total : memory.waiting[cell] / memory.allValues[cell], 1);
}

/** How many of LEVELS parts are on the host, where anything is: LEVELS only if everything is. */
export function hostedLevel(share) {
  return share === 1 ? LEVELS : Math.max(1, Math.min(LEVELS - 1, roundToEven(LEVELS * share)));
}

/** Stripes of a node around a point, of what waits on the host: a group's from where what is resident
 * ends, and as far as its bytes are on the host, with one stripe at least. An operator's everywhere,
 * but for where its label stands.
 * @param {number[]} size @param {number} corner @param {number} stroke
 * @param {number[] | null} range shares of the height, or null for an operator
 */
function stripesPath([width, height], corner, stroke, range) {
  const most = Math.floor((height / 2 - stroke - STRIPE / 2) / STRIPE_AND_GAP);
  const least = range || height >= LABELLED ? (LABEL_BAND / 2) * height : 0;
  let places = [];
  for (let turn = -most; turn <= most; turn++) {
    if (Math.abs(turn * STRIPE_AND_GAP) >= least) places.push(turn * STRIPE_AND_GAP);
  }
  if (!places.length) places = [0];
  if (range) {
    let above = places.filter((y) => 0.5 - y / height >= range[0]);
    if (!above.length) above = places.slice(0, 1);
    places = above.filter((y) => 0.5 - y / height <= range[1]);
    if (!places.length) places = above.slice(-1);
  }
  const inner = corner - stroke;
  const lines = places.map((y) => {
    const beyond = Math.max(Math.abs(y) - (height / 2 - corner), 0);
    const reach = width / 2 - stroke - inner + Math.sqrt(Math.max(inner ** 2 - beyond ** 2, 0));
    return `M${(-reach).toFixed(1)} ${y}H${reach.toFixed(1)}`;
  });
  return lines.join("");
}

/** Give a node its stripes, which the style sheet shows where it is on the host. */
export function addStripes(graph, cell, node) {
  const [x, y] = graph.centre(cell);
  const size = graph.size(cell);
  const stroke = size[1] >= 14 ? 1.5 : 1;
  const d = graph.view.groups[cell] ? "" : stripesPath(size, size[1] / 2, stroke, null);
  svgElement("path", { class: "stripes", d, "stroke-width": STRIPE, transform: `translate(${x} ${y})` }, node);
}

/** Stripe a group by its share in host memory, above the resident part. */
export function stripeGroup(graph, node, cell, share, hosted) {
  const size = graph.size(cell);
  const low = share > 0 ? Math.max(shownShare(share), LEAST_FILL / size[1]) : 0;
  const range = [low, shownShare(Math.min(share + hosted, 1))];
  const corner = Math.min(CORNER, size[1] / 4);
  const d = hosted > 0 ? stripesPath(size, corner, 1.5, range) : "";
  node.querySelector(".stripes").setAttribute("d", d);
}

/** The host memory lane: striped, as offloaded nodes are. */
class HostLane extends Timeline {
  constructor(element, model, scales) {
    super(element, model, scales);
    const words = `${sizeText(model.most)} at step ${model.live.indexOf(model.most)}`;
    this.canvas.setAttribute("aria-label", `Memory on the host over ${counted(model.count, "step")}; most ${words}`);
  }

  /** Below the ledger, this is on the ledger's axis. @param {number} width */
  stepsOf(width) {
    return this.scales.front === "graph" ? super.stepsOf(width) : stepOfColumn(this.model, this.scales.extent, width);
  }

  nowAt(width) {
    const { extent, front, align } = this.scales;
    if (front === "graph") return super.nowAt(width);
    const place = placesOf(this.model, extent.axis)[stepOfTick(this.model, this.tick, align) + 1];
    return Math.min(Math.max(extent.pixel(place, width), 0), width);
  }

  areas(runs, band, unit, thick) {
    const boxes = outlinesOf(runs, band, unit, thick);
    for (const { left, right, tops } of runs) {
      const high = heightOf(tops, band, unit);
      for (let up = 0; up < high; up += STRIPE_AND_GAP * thick)
        boxes.push([left, up, right, Math.min(up + thick, high)]);
    }
    return boxes;
  }
}

/** Additional parts of a panel: a counter; and for an offloading policy, a caption and a lane. */
export class HostPart {
  /** @param {Panel} panel @param {any} scales shared by all */
  constructor(panel, scales) {
    this.panel = panel;
    this.scales = scales;
    const counter = document.createElement("div");
    const amount = document.createElement("dd");
    amount.dataset.counter = "host";
    counter.append(part("dt", "", "on the host"), amount);
    panel.part(".counters").append(counter);
    panel.counters.host = amount;
    this.take();
  }

  get model() {
    return this.panel.model;
  }

  /** Take on a schedule: it may have no lanes, where another had. */
  take() {
    const { panel, scales, model } = this;
    for (const { element } of panel.timeline.lanes.splice(0)) element.remove();
    if (model.times) this.addTimes(panel, scales);
    if (model.host) this.addLane(panel, scales);
  }

  /** What happens when, below all that is in steps. */
  addTimes(panel, scales) {
    const lane = new TimeLane(panel, scales);
    panel.timeline.element.after(lane.element);
    panel.timeline.lanes.push(lane);
  }

  /** The caption, and the lane of what is on the host. */
  addLane({ timeline }, scales) {
    const { host } = this.model;
    const most = host.reduce((a, b) => Math.max(a, b), 0);
    const lines = [{ words: `most ${sizeText(most)}`, amount: most, dashes: [4, 4] }];
    const bands = [{ name: "on the host", fill: "kept", live: host }];
    const own = { live: host, bands, strip_lines: lines, strip_words: "on the host", most };
    const element = part("div", "timeline lane");
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    element.append(canvas, part("span", "what"));
    timeline.element.after(element);
    // Alignment and ticks are those of all, whenever they change.
    const shared = Object.create(scales, { highest: { value: scales.host } });
    timeline.lanes.unshift(new HostLane(element, { ...this.model, ...own }, shared));
    canvas.addEventListener("pointerdown", (event) => this.seek(event, canvas));
    canvas.addEventListener("pointermove", (event) => event.buttons & 1 && this.seek(event, canvas));
  }

  seek(event, canvas) {
    canvas.setPointerCapture(event.pointerId);
    if (this.panel.isGraph) this.panel.events.seek(this.panel.timeline.tickAt(event.clientX));
    else this.panel.strip.seek(event);
  }

  /** @param {number} step */
  show(step) {
    const { host } = this.model;
    this.panel.write("host", sizeText(host && step >= 0 ? host[step] : 0));
  }
}

/** The legend's entry, once, between those of memory and those of activity; shown where values go there. */
export function explainHost() {
  if (document.querySelector('#legend [data-if="hosted"]')) return;
  const entry = document.createElement("li");
  const icon = svgElement("svg", { viewBox: "-11 -11 22 22", "aria-hidden": true }, entry);
  const node = svgElement("g", { class: "node", "data-look": "on the host" }, icon);
  svgElement("circle", { class: "disc", r: 5, "stroke-width": 1 }, node);
  svgElement("path", { class: "stripes", d: stripesPath([10, 10], 5, 1, null), "stroke-width": STRIPE }, node);
  entry.dataset.if = "hosted";
  entry.append("on the host");
  document.querySelectorAll("#legend li")[2].after(entry);
}
