/**
 * Transient highlights of a step: inputs and their arrows, a pulse around the evaluated node, and
 * freed values (ghosts), which disappear at the next step. In the ledger, in the rail, and in the
 * graph.
 */

import { MOST_LIT, freedBetween, ghostText, inputsAt } from "./action.js";
import { COMPUTE } from "./allocation.js";
import { countText } from "./format.js";
import { arrowPaths, pointsOf, svgElement } from "./graph.js";
import { grouped, homes } from "./state.js";

/**
 * @import { GraphView } from "./graph.js"
 * @import { Ledger } from "./ledger.js"
 * @import { Rail } from "./rail.js"
 */

const MOST_GHOSTS = 8; // that have their bytes beside them
const GHOST_HIGH = 16; // pixels
const PULSE = { duration: 420, easing: "ease-out" }; // milliseconds
const POP = { duration: 220, easing: "ease-out" };

/** An element with a class and a text. */
export function part(tag, name, text = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  return element;
}

/** Let something pop or pulse, where motion is wanted. @param {Element} element @param {boolean} lively */
function animated(element, frames, timing, lively) {
  for (const running of element.getAnimations()) running.cancel();
  if (lively) element.animate(frames, timing);
}

/** What pops: it was more, and is a ghost now. */
const POPPING = [
  { opacity: 0, transform: "scale(1.5)" },
  { opacity: 1, transform: "none" },
];
/** What pulses: a ring that grows and fades. */
const PULSING = [
  { opacity: 1, transform: "scale(1)" },
  { opacity: 0, transform: "scale(1.9)" },
];

export class LedgerLights {
  /** @param {Ledger} ledger */
  constructor(ledger) {
    this.ledger = ledger;
    this.pulse = part("i", "pulse");
    this.ghosts = part("div", "ghosts");
    this.ghosts.setAttribute("aria-hidden", "true");
    ledger.plot.append(this.pulse, this.ghosts);
    this.since = Number.POSITIVE_INFINITY; // the first step of which it shows what is freed
    this.freed = new Map();
    this.marked = [];
  }

  /** Take on a step. @param {number} since */
  show(since) {
    this.since = since;
    if (this.ledger.layers.past) this.find();
    this.isNew = true;
  }

  /** Find the freed values among the cells of the open view. */
  find() {
    const { ledger, since } = this;
    this.freed = freedBetween(ledger.model, since, ledger.panel.step, ledger.homeOf);
  }

  /** Highlight inputs and freed values on bars. */
  draw() {
    const { ledger } = this;
    const { over, model, step, places } = ledger;
    const { ink, halo, background } = ledger.panel.colours;
    const lane = (value, begin, end) => {
      const [high, low] = ledger.lane(ledger.homeOf[value]);
      const [left, right] = [ledger.x(places[begin]), ledger.x(places[end])];
      return [left, high, Math.max(right, left + 2), low];
    };
    for (const { value, begin, end } of inputsAt(model, step)) {
      if (ledger.homeOf[value] >= 0) over.lit(...lane(value, begin, end), ink, halo);
    }
    for (const { values } of this.freed.values()) {
      for (const { value, begin, end } of values.slice(0, MOST_LIT))
        over.ghost(...lane(value, begin, end), ink, background);
    }
    if (!ledger.scales.moving) this.place();
  }

  /** Place byte counts next to freed nodes, and the pulse around the active node. */
  place() {
    const { ledger } = this;
    const { ratio } = ledger.over;
    const { lively } = ledger.scales;
    const texts = this.texts();
    const [width, height] = [ledger.layers.past.width / ratio, ledger.window.high];
    const x = ledger.now / ratio;
    let before = Number.NEGATIVE_INFINITY;
    this.ghosts.replaceChildren(
      ...texts.map(({ y, text }) => {
        const ghost = part("span", "ghost", text);
        before = Math.max(y, before + GHOST_HIGH);
        ghost.style.top = `${Math.min(before, height - GHOST_HIGH / 2)}px`;
        if (x > width - 110) ghost.style.right = `${width - x + 6}px`;
        else ghost.style.left = `${x + 6}px`;
        return ghost;
      }),
    );
    if (!this.isNew) return;
    this.isNew = false;
    for (const ghost of this.ghosts.children) animated(ghost, POPPING, POP, lively);
    this.beat(lively);
  }

  /** What the ghosts say, from above: of many, what they are together. */
  texts() {
    const { ledger } = this;
    const all = Array.from(this.freed, ([cell, { bytes }]) => {
      const [high, low] = ledger.lane(cell);
      return { y: (high + low) / 2 / ledger.over.ratio, text: ghostText(bytes), bytes };
    }).filter(({ y, text }) => text && y >= 0 && y <= ledger.window.high);
    all.sort((a, b) => a.y - b.y);
    if (all.length <= MOST_GHOSTS) return all;
    const bytes = all.reduce((sum, one) => sum + one.bytes, 0);
    return [{ y: all[all.length >> 1].y, text: `${ghostText(bytes)} of ${countText(all.length)}`, bytes }];
  }

  /** A beat around the evaluation. */
  beat(lively) {
    const { ledger, pulse } = this;
    const { model, step, places } = ledger;
    const cell = step >= 0 && model.verbs[step] === COMPUTE ? ledger.cellOf[model.targets[step]] : -1;
    pulse.hidden = cell < 0 || !lively;
    if (pulse.hidden) return;
    const { ratio } = ledger.over;
    const [high, low] = ledger.lane(cell);
    const [left, right] = [ledger.x(places[step]), ledger.x(places[step + 1])];
    const wide = Math.max(Math.min(right - left, 3 * ratio), 2) + 6 * ratio;
    Object.assign(pulse.style, {
      left: `${(left - 3 * ratio) / ratio}px`,
      top: `${high / ratio - 3}px`,
      width: `${wide / ratio}px`,
      height: `${(low - high) / ratio + 6}px`,
    });
    animated(pulse, PULSING, { ...PULSE, fill: "forwards" }, true);
  }

  /** Mark the rail's nodes: active, read, freed. @param {Rail} rail */
  rail(rail) {
    for (const element of this.marked) element.remove();
    const { ledger } = this;
    const { model, step } = ledger;
    const cells = new Map();
    for (const [cell] of this.freed) cells.set(cell, "haunt");
    for (const { value } of inputsAt(model, step)) cells.set(ledger.homeOf[value], "lit");
    if (step >= 0 && model.verbs[step] === COMPUTE) cells.set(ledger.cellOf[model.targets[step]], "halo");
    this.marked = Array.from(cells, ([cell, name]) => this.mark(rail, cell, name)).filter(Boolean);
  }

  /** A ring around a node of the rail, below it; null where that is not shown. */
  mark(rail, cell, name) {
    const row = rail.shown.get(ledgerRow(this.ledger, cell));
    const node = row?.querySelector(`[data-of="${cell}"]`);
    if (!node) return null;
    const beyond = name === "halo" ? 10 : 8.5;
    const rx = this.ledger.view.groups[cell] ? 5 : beyond;
    const ring = svgElement("rect", { class: name, x: -beyond, y: -beyond, width: 2 * beyond, height: 2 * beyond, rx });
    node.prepend(ring);
    return ring;
  }
}

/** The row that a cell is in; -1 for none. */
function ledgerRow({ rows }, cell) {
  return cell < 0 ? -1 : rows.row[cell];
}

export class GraphLights {
  /** @param {GraphView} graph while it is built: below the nodes */
  constructor(graph) {
    const { view, element } = graph;
    this.graph = graph;
    this.under = svgElement("path", { class: "lines under" }, element);
    this.over = svgElement("path", { class: "lines lit", "stroke-width": view.line + 0.7 }, element);
    this.heads = svgElement("path", { class: "heads lit" }, element);
    this.below = svgElement("g", {}, element);
    this.pulse = svgElement("rect", { class: "pulse", visibility: "hidden" }, element);
  }

  /** Above the nodes. */
  addTop() {
    this.top = svgElement("g", { "aria-hidden": true }, this.graph.element);
  }

  /** @param {number} step @param {number} since the first step of which it shows what is freed @param {boolean} lively */
  show(step, since, lively) {
    const { graph } = this;
    const { model, view } = graph;
    graph.homeOf ??= homes(model.graph.data.names.length, view.data);
    const active = graph.activeCell(step);
    const lit = new Set(inputsAt(model, step).map(({ value }) => graph.homeOf[value]));
    lit.delete(active);
    lit.delete(-1);
    this.edges(active < 0 ? [] : edgesBetween(view, lit, active));
    const rings = Array.from(lit, (cell) =>
      svgElement("rect", { class: "lit", ...graph.around(cell, graph.history.ringed[cell] ? 3 : 2.5) }),
    );
    const freed = freedBetween(model, since, step, graph.homeOf);
    const ghosts = Array.from(freed.keys(), (cell) =>
      svgElement("rect", { class: "haunt", ...graph.around(cell, 2.5) }),
    );
    this.below.replaceChildren(...rings, ...ghosts);
    this.top.replaceChildren(...this.tags(freed));
    for (const ghost of [...ghosts, ...this.top.children]) animated(ghost, POPPING, POP, lively);
    this.pulse.setAttribute("visibility", active < 0 || !lively ? "hidden" : "visible");
    if (active < 0 || !lively) return;
    graph.place(this.pulse, active, 4.5);
    animated(this.pulse, PULSING, { ...PULSE, fill: "forwards" }, true);
  }

  /** Light arrows. @param {[number, number][][]} lines points of each */
  edges(lines) {
    const { head } = this.graph.view;
    const drawn = lines.map((points) => arrowPaths(points, head * 1.4));
    const shafts = drawn.map(([shaft]) => shaft).join("");
    this.under.setAttribute("d", shafts);
    this.over.setAttribute("d", shafts);
    this.heads.setAttribute("d", drawn.map(([, tip]) => tip).join(""));
  }

  /** Byte counts of freed nodes: above forward ones, below backward ones. */
  tags(freed) {
    const { graph } = this;
    const told = Array.from(freed, ([cell, { bytes }]) => [cell, ghostText(bytes)]).filter(([, text]) => text);
    return told.slice(0, MOST_GHOSTS).map(([cell, text]) => {
      const [x, y] = graph.centre(cell);
      const [, height] = graph.size(cell);
      const at = graph.view.backward[cell] ? y + height / 2 + 12 : y - height / 2 - 5;
      const tag = svgElement("text", { class: "ghost", x, y: at, "font-size": 10 });
      tag.textContent = text;
      return tag;
    });
  }
}

/** The arrows of a view from some cells to one, as points. @param {Set<number>} sources @param {number} target */
function edgesBetween(view, sources, target) {
  const found = [];
  for (const lines of [view.arrows, view.faint]) {
    lines.into ??= grouped(view.labels.length, lines.targets);
    const { first, order } = lines.into;
    for (let i = first[target]; i < first[target + 1]; i++) {
      if (sources.has(lines.sources[order[i]])) found.push(pointsOf(lines, order[i]));
    }
  }
  return found;
}
