/** The graph of one view as SVG, and the looks of its nodes at a step. */

const SVG = "http://www.w3.org/2000/svg";
const LABEL_SIZES = [11, 10, 9, 8, 7];
const LABEL_SHARE = 0.84; // of a node's diameter that its label may take
const HIDDEN_BELOW = 6.5; // pixels on the screen: smaller labels are not shown
const REACH = 18; // pixels on the screen around a node that still mean it

/** @param {string} name @param {Record<string, any>} [attributes] @param {Element} [parent] */
function svgElement(name, attributes = {}, parent = undefined) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  parent?.append(element);
  return element;
}

const ruler = document.createElement("canvas").getContext("2d");

/** The font size with which a label fits into a node; 0 if none does. */
function labelSize(label, diameter) {
  for (const size of LABEL_SIZES) {
    ruler.font = `600 ${size}px Inter, system-ui, sans-serif`;
    if (ruler.measureText(label).width <= LABEL_SHARE * diameter) return size;
  }
  return 0;
}

/** The path of all arrows' lines, and that of their heads. */
function arrowPaths(view) {
  const head = view.diameter >= 20 ? 3.2 : 2.2;
  const lines = [];
  const heads = [];
  for (let i = 0; i + 1 < view.arrows.length; i++) {
    const points = [];
    for (let k = view.arrows[i]; k < view.arrows[i + 1]; k++) {
      points.push([view.arrows_x[k] / 10, view.arrows_y[k] / 10]);
    }
    const [x1, y1] = points.at(-1);
    const [x0, y0] = points.at(-2);
    const length = Math.max(Math.hypot(x1 - x0, y1 - y0), 1e-9);
    const [ux, uy] = [((x1 - x0) / length) * head, ((y1 - y0) / length) * head];
    points[points.length - 1] = [x1 - ux, y1 - uy];
    lines.push(`M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`);
    heads.push(`M${x1} ${y1}l${-ux - 0.62 * uy} ${-uy + 0.62 * ux}l${1.24 * uy} ${-1.24 * ux}z`);
  }
  return [lines.join(""), heads.join("")];
}

/** The part of a disc around 0, 0 that is filled from below to a share of its height. */
function levelPath(radius, share) {
  if (share >= 1) return `M${-radius} 0a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0z`;
  const drop = radius * (1 - 2 * share);
  const half = Math.sqrt(Math.max(radius * radius - drop * drop, 0));
  return `M${-half} ${drop}A${radius} ${radius} 0 ${share > 0.5 ? 1 : 0} 0 ${half} ${drop}z`;
}

class GraphView {
  /** @param {any} model @param {number} index of the view @param {(cell: number) => void} onChoose */
  constructor(model, index, onChoose) {
    this.model = model;
    this.index = index;
    this.view = model.graph.views[index];
    this.history = historyOfView(model, index);
    this.onChoose = onChoose;
    this.step = null;
    this.focused = 0;
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
    const [lines, heads] = arrowPaths(view);
    svgElement("path", { class: "lines", d: lines, "stroke-width": view.diameter >= 20 ? 1.3 : 1 }, this.element);
    svgElement("path", { class: "heads", d: heads }, this.element);
    for (let i = 0; i < view.dots_x.length; i++) {
      svgElement("circle", { class: "heads", cx: view.dots_x[i] / 10, cy: view.dots_y[i] / 10, r: 2 }, this.element);
    }
    const radius = view.diameter / 2;
    this.mark = svgElement("circle", { class: "mark", r: radius + 8, visibility: "hidden" }, this.element);
    this.halo = svgElement("circle", { class: "halo", r: radius + 4.5, visibility: "hidden" }, this.element);
    this.nodes = Array.from(view.labels, (_, cell) => this.node(cell, radius));
    this.element.addEventListener("click", (event) => this.chosen(event));
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.nodes[0]?.setAttribute("tabindex", "0");
  }

  /** Build the node of a cell, as it looks before anything is shown. */
  node(cell, radius) {
    const { view } = this;
    const stroke = view.diameter >= 14 ? 1.5 : 1;
    const node = svgElement("g", {
      class: view.backward[cell] ? "node backward" : "node",
      "data-cell": cell,
      transform: `translate(${view.x[cell] / 10} ${view.y[cell] / 10})`,
      role: "button",
      tabindex: -1,
      "aria-label": this.name(cell),
    }, this.element);
    if (this.history.ringed[cell]) svgElement("circle", { class: "ring", r: radius + 3.5 }, node);
    svgElement("circle", { class: "disc", r: radius - stroke / 2, "stroke-width": stroke }, node);
    if (cell in view.opens) {
      svgElement("path", { class: "level", d: "" }, node);
      node.classList.add("opens");
      node.setAttribute("aria-label", `${this.name(cell)}, opens`);
    }
    const size = view.labelled ? labelSize(view.labels[cell], view.diameter) : 0;
    if (size) {
      const label = svgElement("text", { "font-size": size, y: (0.36 * size).toFixed(2) }, node);
      label.textContent = view.labels[cell];
    }
    return node;
  }

  /** The names of the operators that a cell stands for. */
  name(cell) {
    const operators = listAt(this.view.operators, cell);
    if (cell in this.view.opens) return `${this.view.labels[cell]}: ${counted(operators.length, "operator")}`;
    return listed(Array.from(operators, (i) => this.model.graph.operators.names[i]), 3);
  }

  /** Which part of a cell's bytes is resident at a step. */
  share(cell, change) {
    let total = 0;
    for (const data of listAt(this.view.data, cell)) total += this.model.graph.data.nbytes[data];
    if (total) return this.history.bytes[change] / total;
    return (this.history.looks[change] & 7) >= KEPT ? 1 : 0;
  }

  /** Show a step; only what looks different than before is touched. @param {number} step */
  show(step) {
    if (step === this.step) return;
    const cells = this.step === null ? null : changedBetween(this.history, this.step, step);
    this.step = step;
    for (const cell of cells ?? this.nodes.keys()) this.update(cell, step);
    const active = this.activeCell(step);
    this.halo.setAttribute("visibility", active < 0 ? "hidden" : "visible");
    if (active >= 0) this.place(this.halo, active);
  }

  update(cell, step) {
    const { history } = this;
    const change = changeAt(history, cell, step);
    const node = this.nodes[cell];
    const text = lookText(history.looks[change], history.ringed[cell] === 1);
    if (node.dataset.look !== text) node.dataset.look = text;
    if (cell in this.view.opens) {
      const share = this.share(cell, change);
      const level = node.querySelector(".level");
      level.setAttribute("d", share > 0 ? levelPath(this.view.diameter / 2 - 1.5, share) : "");
      node.dataset.share = share.toFixed(4);
      node.classList.toggle("light", share < 0.6);
    }
  }

  /** The cell whose operator a step evaluates; -1 if none here. */
  activeCell(step) {
    if (step < 0 || this.model.verbs[step] !== COMPUTE) return -1;
    this.home ??= homes(this.model.graph.operators.names.length, this.view.operators);
    return this.home[this.model.targets[step]];
  }

  /** @param {Element} element @param {number} cell */
  place(element, cell) {
    element.setAttribute("cx", String(this.view.x[cell] / 10));
    element.setAttribute("cy", String(this.view.y[cell] / 10));
  }

  /** Mark a cell as the selected one; -1 for none. */
  select(cell) {
    this.mark.setAttribute("visibility", cell < 0 ? "hidden" : "visible");
    if (cell >= 0) this.place(this.mark, cell);
  }

  /** The cell at a point of the screen, or the one nearest to it; -1 if none is near. */
  cellAt(clientX, clientY) {
    const screen = this.element.getScreenCTM();
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(screen.inverse());
    const reach = Math.min(Math.max(this.view.diameter / 2 + 5, REACH / screen.a), this.view.diameter * 1.5);
    let nearest = -1;
    let least = reach * reach;
    for (let cell = 0; cell < this.nodes.length; cell++) {
      const [dx, dy] = [this.view.x[cell] / 10 - x, this.view.y[cell] / 10 - y];
      if (dx * dx + dy * dy < least) [nearest, least] = [cell, dx * dx + dy * dy];
    }
    return nearest;
  }

  chosen(event) {
    const own = event.target.closest("[data-cell]");
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

  /** Hide labels that would be too small to read. */
  resized() {
    const scale = this.element.getScreenCTM()?.a ?? 1;
    this.element.classList.toggle("small", 9 * scale < HIDDEN_BELOW);
  }
}
