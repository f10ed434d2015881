/** SVG drawing of a graph view, with its nodes styled by their state at a step. */

import { COMPUTE } from "./allocation.js";
import { cellName } from "./details.js";
import { counted } from "./format.js";
import { addStripes, stripeGroup } from "./host.js";
import { GraphLights } from "./lights.js";
import { historyOfView } from "./model.js";
import { coarse } from "./rows.js";
import { cutTo } from "./ruler.js";
import { changeAt, changedBetween, homes, isStaying, lookText } from "./state.js";
import { cellWords } from "./words.js";

/**
 * @import { Model } from "./data.js"
 */

export const SVG = "http://www.w3.org/2000/svg";
const ARROWS_A_PATH = 16;
export const LABEL_BAND = 0.46; // of a group's height, in the middle, that its label takes
export const LEAST_FILL = 3; // pixels of a group of which anything is resident
export const CORNER = 6; // radius of a group's corners
const DASH_AND_GAP = 4.4; // pixels
const DASHES = 10; // units of a rim's length that a dash and a gap take in the style sheet
const HIDDEN_BELOW = 6.5; // pixels on the screen: smaller labels are not shown
const REACH = 18; // pixels on the screen around a node that still mean it
const [TOUCHED, LABELLED_FROM] = [24, 0.9]; // pixels of a node that a finger finds; the scale that labels need

/** @param {string} name @param {Record<string, any>} [attributes] @param {Element} [parent] */
export function svgElement(name, attributes = {}, parent = undefined) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent?.append(element);
  return element;
}

/** Draw polylines with arrowheads: paths of lines, and paths of heads. Each path is of a few arrows
 * that were laid out one after the other, so that a browser can pass over those that it need not draw.
 * @param {any} lines @param {number} head @param {number} width @param {string} kind of arrows
 */
function drawArrows(lines, head, width, kind, parent) {
  let shafts = [];
  let heads = [];
  const flush = () => {
    svgElement("path", { class: `lines ${kind}`, d: shafts.join(""), "stroke-width": width }, parent);
    svgElement("path", { class: `heads ${kind}`, d: heads.join("") }, parent);
    [shafts, heads] = [[], []];
  };
  for (let i = 0; i + 1 < lines.first.length; i++) {
    const [shaft, tip] = arrowPaths(pointsOf(lines, i), head);
    shafts.push(shaft);
    heads.push(tip);
    if (shafts.length === ARROWS_A_PATH) flush();
  }
  if (shafts.length) flush();
}

/** The points of a polyline. @returns {[number, number][]} */
export function pointsOf(lines, i) {
  const points = [];
  for (let k = lines.first[i]; k < lines.first[i + 1]; k++) points.push([lines.x[k] / 10, lines.y[k] / 10]);
  return points;
}

/** An arrow's shaft and its head as paths. @param {[number, number][]} points @param {number} head how long that is */
export function arrowPaths(points, head) {
  const [x1, y1] = points.at(-1);
  const [x0, y0] = points.at(-2);
  const length = Math.max(Math.hypot(x1 - x0, y1 - y0), 1e-9);
  const [ux, uy] = [((x1 - x0) / length) * head, ((y1 - y0) / length) * head];
  const shaft = [...points.slice(0, -1), [x1 - ux, y1 - uy]];
  return [
    `M${shaft.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`,
    `M${x1} ${y1}l${-ux - 0.62 * uy} ${-uy + 0.62 * ux}l${1.24 * uy} ${-1.24 * ux}z`,
  ];
}

/** Up to which part of its height a group is filled: the surface never runs through the label. */
export function shownShare(share) {
  if (Math.abs(share - 0.5) >= LABEL_BAND / 2) return share;
  return 0.5 + (share > 0.5 ? LABEL_BAND / 2 : -LABEL_BAND / 2);
}

/** The part of a rounded square around 0, 0 that is filled from below to a share of its height.
 * @param {number[]} size @param {number} share
 */
export function levelPath([width, height], share) {
  if (!(share > 0)) return "";
  const corner = Math.min(CORNER, height / 4);
  const [x, bottom] = [width / 2, height / 2];
  const y = bottom - Math.min(share, 1) * height;
  const high = bottom - y;
  const inset = (depth) => (depth < corner ? corner - Math.sqrt(corner ** 2 - (corner - depth) ** 2) : 0);
  const arc = `A${corner} ${corner} 0 0 0`;
  if (high < corner) {
    return `M${inset(high) - x} ${y}${arc} ${corner - x} ${bottom}H${x - corner}${arc} ${x - inset(high)} ${y}z`;
  }
  const top = Math.max(y, corner - bottom);
  const edge = x - inset(height - high);
  return `M${-edge} ${y}${arc} ${-x} ${top}V${bottom - corner}${arc} ${corner - x} ${bottom}H${x - corner}${arc} ${x} ${bottom - corner}V${top}${arc} ${edge} ${y}z`;
}

export class GraphView {
  /** @param {Model} model @param {number} index of the view @param {(cell: number) => void} onChoose */
  constructor(model, index, onChoose) {
    this.model = model;
    this.index = index;
    this.view = model.graph.views[index];
    this.history = historyOfView(model, index);
    this.onChoose = onChoose;
    this.step = null;
    this.focused = 0;
    this.selected = -1;
    this.names = []; // of cells, as labels say them
    this.home = /** @type {Int32Array} */ (null); // by operator, its cell
    this.homeOf = /** @type {Int32Array} */ (null); // by value
    this.build();
  }

  build() {
    const { view } = this;
    this.element = svgElement("svg", {
      class: "graph",
      viewBox: `0 0 ${view.width} ${view.height}`,
      role: "group",
      "aria-label": `Graph of ${view.title}: ${counted(view.labels.length, "node")}`,
    });
    const scale = Math.max(TOUCHED / (view.diameter - 1.5), LABELLED_FROM);
    this.element.style.setProperty("--touched", `${Math.ceil(scale * view.width)}px`);
    drawArrows(view.faint, view.head, 1, "faint", this.element);
    for (const heading of view.headings) this.heading(heading);
    drawArrows(view.arrows, view.head, view.line, "", this.element);
    for (let i = 0; i < view.dots_x.length; i++) {
      svgElement("circle", { class: "heads", cx: view.dots_x[i] / 10, cy: view.dots_y[i] / 10, r: 2 }, this.element);
    }
    this.mark = svgElement("rect", { class: "mark", visibility: "hidden" }, this.element);
    this.lights = new GraphLights(this);
    this.halo = svgElement("rect", { class: "halo", visibility: "hidden" }, this.element);
    this.nodes = Array.from(view.labels, (_, cell) => this.node(cell));
    this.lights.addTop();
    this.element.addEventListener("click", (event) => this.chosen(event));
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("focusin", (event) => {
      const own = /** @type {any} */ (event.target).closest("[data-cell]");
      if (own) this.focus(Number(own.dataset.cell), false);
    });
    this.nodes[0]?.setAttribute("tabindex", "0");
  }

  /** Headings: common scopes of neighbouring groups. */
  heading({ text, left, right, y }) {
    svgElement("path", { class: "lines faint", d: `M${left} ${y}H${right}` }, this.element);
    const words = svgElement("text", { class: "heading", x: left, y: y - 4, "font-size": 10 }, this.element);
    words.textContent = cutTo(text, 10, right - left);
  }

  /** Width and height of a cell. @param {number} cell @returns {[number, number]} */
  size(cell) {
    const { view } = this;
    return [view.widths[cell] / 10, view.heights[cell] / 10];
  }

  /** Where a cell's centre is. @param {number} cell @returns {[number, number]} */
  centre(cell) {
    return [this.view.x[cell] / 10, this.view.y[cell] / 10];
  }

  /** Where a rounded square around a cell is, larger than the cell on every side. Coordinates are
   * absolute: a browser keeps a list of its own of what is drawn below each transform.
   */
  around(cell, beyond) {
    const [x, y] = this.centre(cell);
    const [width, height] = this.size(cell);
    const corner = this.view.groups[cell] ? Math.min(CORNER, height / 4) : height / 2;
    return {
      x: x - width / 2 - beyond,
      y: y - height / 2 - beyond,
      width: width + 2 * beyond,
      height: height + 2 * beyond,
      rx: corner + beyond,
    };
  }

  /** Build the node of a cell, as it looks before anything is shown. @param {number} cell */
  node(cell) {
    const { view } = this;
    const stroke = this.size(cell)[1] >= 14 ? 1.5 : 1;
    const opens = cell in view.opens;
    const kinds = ["node", view.backward[cell] && "backward", view.groups[cell] && "group", opens && "opens"];
    const node = svgElement(
      "g",
      {
        class: kinds.filter(Boolean).join(" "),
        "data-cell": cell,
        role: "button",
        tabindex: -1,
        "aria-pressed": false,
      },
      this.element,
    );
    if (this.history.ringed[cell]) svgElement("rect", { class: "ring", ...this.around(cell, 3.5) }, node);
    const rim = this.around(cell, -stroke / 2);
    const length = 2 * (rim.width + rim.height) - (8 - 2 * Math.PI) * rim.rx;
    const pathLength = DASHES * Math.max(4, Math.round(length / DASH_AND_GAP));
    svgElement("rect", { class: "disc", ...rim, pathLength, "stroke-width": stroke }, node);
    const [x, y] = this.centre(cell);
    for (const level of view.groups[cell] ? ["level", "level kept"] : []) {
      svgElement("path", { class: level, d: "", transform: `translate(${x} ${y})` }, node);
    }
    if (this.model.host) addStripes(this, cell, node);
    this.label(cell, node);
    return node;
  }

  /** Write a node's label, already truncated and distinct. */
  label(cell, node) {
    const { view } = this;
    if (!view.labels[cell]) return;
    const size = view.points[cell];
    const [x, y] = this.centre(cell);
    const label = svgElement("text", { "font-size": size, x, y: (y + 0.36 * size).toFixed(2) }, node);
    label.textContent = view.labels[cell];
  }

  /** The names of the operators that a cell stands for. @param {number} cell */
  name(cell) {
    return cellName(this.model, this.view, cell);
  }

  /** Show a step; only what looks different than before is touched.
   * @param {number} step @param {number} since the first step of which it shows what is freed
   * @param {boolean} [lively]
   */
  show(step, since, lively = false) {
    if (step === this.step) return;
    const cells = this.step === null ? null : changedBetween(this.history, this.step, step);
    this.step = step;
    for (const cell of cells ?? this.nodes.keys()) this.update(cell, step);
    const active = this.activeCell(step);
    this.halo.setAttribute("visibility", active < 0 ? "hidden" : "visible");
    this.lights.show(step, since, lively);
    if (active < 0) return;
    this.place(this.halo, active, 4.5);
    if (coarse.matches) this.reveal(active);
  }

  /** Bring a cell into sight, where the graph is wider than the screen. @param {number} cell */
  reveal(cell) {
    const holder = this.element.parentElement;
    if (!holder?.classList.contains("wide")) return;
    const x = (this.centre(cell)[0] / this.view.width) * holder.scrollWidth - holder.scrollLeft;
    if (x < TOUCHED || x > holder.clientWidth - TOUCHED) holder.scrollLeft += x - holder.clientWidth / 2;
  }

  update(cell, step) {
    const { history } = this;
    const change = changeAt(history, cell, step);
    const node = this.nodes[cell];
    const text = lookText(history.looks[change], history.ringed[cell] === 1);
    if (node.dataset.look !== text) node.dataset.look = text;
    this.names[cell] ??= `${this.name(cell)}${cell in this.view.opens ? ", opens" : ""}`;
    node.setAttribute(
      "aria-label",
      `${this.names[cell]}: ${cellWords(this.model.graph, this.view, history, cell, step)}`,
    );
    node.classList.toggle("stays", isStaying(history, change));
    if (!this.view.groups[cell]) return;
    this.fillGroup(node, cell, history.shares[change], history.keeps[change]);
    if (this.model.host) stripeGroup(this, node, cell, history.shares[change], history.waits[change]);
  }

  /** Fill a group by its resident share: kept bytes below, recomputed ones on top; results below gradients that pass. */
  fillGroup(node, cell, share, kept) {
    const [width, height] = this.size(cell);
    const least = LEAST_FILL / height;
    const filled = share > 0 ? Math.max(shownShare(share), least) : 0;
    const all = node.classList.contains("stays");
    const below = kept > 0 ? Math.min(Math.max(shownShare(kept), least), filled - (all ? 0 : least)) : 0;
    const [whole, part] = node.querySelectorAll(".level");
    whole.setAttribute("d", levelPath([width - 3, height - 3], filled));
    part.setAttribute("d", levelPath([width - 3, height - 3], below));
    node.classList.toggle("light", share <= 0.5);
    node.classList.toggle("deep", kept > 0.5);
  }

  /** The cell whose operator a step evaluates; -1 if none here. @param {number} step */
  activeCell(step) {
    if (step < 0 || this.model.verbs[step] !== COMPUTE) return -1;
    this.home ??= homes(this.model.graph.operators.names.length, this.view.operators);
    return this.home[this.model.targets[step]];
  }

  /** Lay a rounded square around a cell. @param {Element} element @param {number} cell */
  place(element, cell, beyond) {
    for (const [name, value] of Object.entries(this.around(cell, beyond))) element.setAttribute(name, String(value));
  }

  /** Mark a cell as the selected one; -1 for none. @param {number} cell */
  select(cell) {
    this.nodes[this.selected]?.setAttribute("aria-pressed", "false");
    this.nodes[cell]?.setAttribute("aria-pressed", "true");
    this.selected = cell;
    this.mark.setAttribute("visibility", cell < 0 ? "hidden" : "visible");
    if (cell >= 0) this.place(this.mark, cell, 8);
  }

  /** The cell at a point of the screen, or the one nearest to it; -1 if none is near. */
  cellAt(clientX, clientY) {
    const screen = /** @type {SVGGraphicsElement} */ (this.element).getScreenCTM();
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(screen.inverse());
    const reach = Math.min(Math.max(5, REACH / screen.a), this.view.diameter);
    let nearest = -1;
    let least = reach;
    for (let cell = 0; cell < this.nodes.length; cell++) {
      const [width, height] = this.size(cell);
      const across = Math.max(Math.abs(this.view.x[cell] / 10 - x) - width / 2, 0);
      const down = Math.max(Math.abs(this.view.y[cell] / 10 - y) - height / 2, 0);
      const distance = Math.hypot(across, down);
      if (distance < least) [nearest, least] = [cell, distance];
    }
    return nearest;
  }

  chosen(event) {
    const own = /** @type {any} */ (event.target).closest("[data-cell]");
    const cell = own ? Number(own.dataset.cell) : this.cellAt(event.clientX, event.clientY);
    if (cell >= 0) this.focus(cell, false);
    this.onChoose(cell);
  }

  /** Make a node the one that the tab key reaches. */
  focus(cell, now) {
    this.nodes[this.focused].setAttribute("tabindex", "-1");
    this.focused = cell;
    this.nodes[cell].setAttribute("tabindex", "0");
    if (now) this.nodes[cell].focus();
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      const cell = Math.min(Math.max(this.focused + by, 0), this.nodes.length - 1);
      this.focus(cell, true);
    } else if (event.key === "Enter" || event.key === " ") {
      this.onChoose(this.focused);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Hide labels that would be too small to read; a graph that is wider than the screen is moved. */
  resized() {
    const holder = this.element.parentElement;
    holder?.classList.toggle("wide", holder.scrollWidth > holder.clientWidth);
    const scale = /** @type {SVGGraphicsElement} */ (this.element).getScreenCTM()?.a ?? 1;
    this.element.classList.toggle("small", 9 * scale < HIDDEN_BELOW);
  }
}
