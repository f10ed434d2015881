/** Row labels of the space-time diagram (rail): name and node state at the current step. */

import { levelPath, svgElement } from "./graph.js";
import { NAME_SIZE, namesApart } from "./names.js";
import { coarse } from "./rows.js";
import { textWidth } from "./ruler.js";
import { changeAt, isStaying, lookText } from "./state.js";
import { cellsOf } from "./table.js";
import { cellWords } from "./words.js";

/**
 * @import { Ledger } from "./ledger.js"
 */

const [LEAST_NAME, TOUCHED_NAME] = [13, 24]; // pixels from name to name; that a finger finds
const NODE = 16; // pixels
const [LEAST_RAIL, RAIL_SHARE] = [111, 0.24]; // in pixels; of the panel's width
const [FORWARD_X, BACKWARD_X, NODES_WIDTH] = [11, 33, 44];

export class Rail {
  /** @param {Ledger} ledger @param {(cell: number) => void} onChoose */
  constructor(ledger, onChoose) {
    this.ledger = ledger;
    this.element = ledger.element.querySelector(".rail");
    this.onChoose = onChoose;
    this.shown = new Map();
    this.focused = 0;
    this.selected = -1;
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("click", (event) => this.clicked(event));
    this.element.addEventListener("focusin", (event) => {
      const row = event.target.closest("[data-row]");
      if (!row) return;
      this.focused = Number(row.dataset.row);
      this.element.scrollTop = 0; // to which a browser brings what is focused
      this.reveal(this.focused);
    });
  }

  /** Rebuild for the ledger's view. */
  open() {
    this.forget();
    this.longest = undefined;
    this.element.setAttribute("aria-label", `Rows of ${this.ledger.view.title}, the first lowest`);
    this.selected = -1;
    this.focused = 0;
  }

  /** Lay out the rows that have room for their names, and the one that the keyboard is at. */
  redraw() {
    const { rows, layers } = this.ledger;
    if (!layers.past || !this.names) return; // not seen, or in another view since
    const high = this.ledger.rowHeight / layers.ratio;
    const { large } = this;
    const least = coarse.matches ? Math.max(TOUCHED_NAME, LEAST_NAME * large) : LEAST_NAME * large;
    const every = Math.max(1, Math.ceil(least / high));
    const [first, end] = this.ledger.window.range;
    const inUse = this.shown.get(this.focused)?.contains(document.activeElement);
    const wanted = new Set([this.focused, this.selectedRow()].filter((row) => row >= first && row < end));
    // A name that stands half above the ledger would be moved upon the next one.
    const highest = every > 1 ? rows.count - 0.5 - least / 3 / high : end;
    const named = every > 1 ? this.apart(every, highest) : Array.from({ length: end - first }, (_, i) => first + i);
    for (const row of named) {
      if (![...wanted].some((other) => other !== row && Math.abs(other - row) < every)) wanted.add(row);
    }
    const stop = wanted.has(this.focused) ? this.focused : Math.max(...wanted);
    if (inUse) wanted.add(this.focused); // it stays, beyond what is in sight
    for (const [row, element] of this.shown) {
      if (wanted.has(row)) continue;
      element.remove();
      this.shown.delete(row);
    }
    let next = this.element.firstElementChild;
    for (const row of [...wanted].sort((a, b) => b - a)) {
      if (!this.shown.has(row)) this.shown.set(row, this.element.insertBefore(this.build(row), next));
      const element = this.shown.get(row);
      next = element.nextElementSibling;
      const own = (this.ledger.top(row) + this.ledger.top(row - 1)) / 2 / layers.ratio;
      const middle = Math.min(Math.max(own, least / 2), layers.past.height / layers.ratio - least / 2);
      element.style.top = `${this.ledger.window.scrolls ? own : middle}px`;
      element.style.height = `${Math.max(least, Math.min(high, 30 * large))}px`;
      element.tabIndex = row === stop ? 0 : -1;
    }
    this.show(this.ledger.step, true);
  }

  /** Rows whose names have room above each other: those with a ring first, then others between. */
  apart(every, highest) {
    const ringed = [];
    for (let row = every >> 1; row < highest; row++) {
      if (this.isRinged(row) && row - (ringed.at(-1) ?? -every) >= every) ringed.push(row);
    }
    const found = [];
    let next = every - 1;
    for (const ring of [...ringed, Infinity]) {
      for (; next < Math.min(highest, ring - every + 1); next += every) found.push(next);
      if (ring < highest) found.push(ring);
      next = ring + every;
    }
    return found;
  }

  /** Whether a row's nodes have a ring around them. */
  isRinged(row) {
    return cellsOf(this.ledger.rows, row).some((cell) => cell >= 0 && this.isRingedCell(cell));
  }

  isRingedCell(cell) {
    return this.ledger.history.ringed[cell] === 1;
  }

  /** How wide the rail is: as its names ask for, up to a share of the whole. @param {number} whole */
  widthFor(whole) {
    this.longest ??= Math.max(...this.ledger.rows.names.map((name) => textWidth(name.slice(0, 60), NAME_SIZE)));
    const { large } = this;
    const asked = (this.longest + NODES_WIDTH + 30) * large;
    const least = LEAST_RAIL * large;
    const wide = Math.round(Math.min(Math.max(asked, least), Math.max(RAIL_SHARE * whole, least)));
    if (wide !== this.wide) this.forget();
    this.wide = wide;
    this.names ??= namesApart(
      this.ledger.rows.names,
      (row) => wide / large - NODES_WIDTH - (this.opens(row) ? 24 : 12),
    );
    return wide;
  }

  /** Build the rows anew: they are others, or as wide as others. */
  forget() {
    this.names = undefined;
    this.shown.clear();
    this.element.replaceChildren();
  }

  /** How many times as large as usual letters are. */
  get large() {
    return this.ledger.scales.large;
  }

  selectedRow() {
    return this.selected < 0 ? -1 : this.ledger.rows.row[this.selected];
  }

  /** Build the row of a layer: name, forward node, backward node. */
  build(row) {
    const { rows } = this.ledger;
    const element = document.createElement("button");
    element.type = "button";
    element.className = "rail-row";
    element.dataset.row = String(row);
    const name = document.createElement("span");
    name.className = "name";
    if (this.names[row] !== rows.names[row]) element.title = rows.names[row];
    name.textContent = this.names[row] + (this.opens(row) ? " ›" : "");
    element.append(name);
    const nodes = svgElement(
      "svg",
      { width: NODES_WIDTH, height: NODE + 4, viewBox: `0 -10 ${NODES_WIDTH} 20`, "aria-hidden": true },
      element,
    );
    for (const [own, x] of [
      [rows.forward[row], FORWARD_X],
      [rows.backward[row], BACKWARD_X],
    ]) {
      if (own >= 0) this.node(own, x, nodes);
    }
    return element;
  }

  /** Whether a row is a group that opens. */
  opens(row) {
    return this.cellOf(row) in this.ledger.view.opens;
  }

  /** The cell that a row is chosen as. */
  cellOf(row) {
    const { rows } = this.ledger;
    return rows.forward[row] >= 0 ? rows.forward[row] : rows.backward[row];
  }

  node(cell, x, parent) {
    const { view } = this.ledger;
    const group = view.groups[cell];
    const kinds = ["node", view.backward[cell] && "backward", group && "group"];
    const node = svgElement(
      "g",
      { class: kinds.filter(Boolean).join(" "), "data-of": cell, transform: `translate(${x} 0)` },
      parent,
    );
    const rect = (name, size, radius) =>
      svgElement("rect", { class: name, x: -size / 2, y: -size / 2, width: size, height: size, rx: radius }, node);
    rect("disc", 13, group ? 3 : 6.5).setAttribute("pathLength", "70");
    if (group) for (const level of ["level", "level kept"]) svgElement("path", { class: level, d: "" }, node);
  }

  /** @param {number} step @param {boolean} [whole] */
  show(step, whole = false) {
    const { rows, history, view } = this.ledger;
    for (const [row, element] of this.shown) {
      let changed = whole;
      for (const node of element.querySelectorAll(".node")) {
        const cell = Number(node.dataset.of);
        const change = changeAt(history, cell, step);
        if (!whole && node.dataset.change === String(change)) continue;
        changed = true;
        node.dataset.change = String(change);
        node.dataset.look = lookText(history.looks[change], this.isRingedCell(cell));
        node.classList.toggle("stays", isStaying(history, change));
        if (view.groups[cell]) this.fill(node, history.shares[change], history.keeps[change]);
        this.ring(node, cell);
      }
      if (changed) element.setAttribute("aria-label", this.words(rows, row));
      element.setAttribute("aria-pressed", String(row === this.selectedRow()));
    }
    this.ledger.lights.rail(this);
  }

  /** Put a ring around a node, or take it away: a schedule keeps other checkpoints than another. */
  ring(node, cell) {
    const ring = node.querySelector(".ring");
    if (Boolean(ring) === this.isRingedCell(cell)) return;
    if (ring) return ring.remove();
    const rx = this.ledger.view.groups[cell] ? 6 : 9.5;
    node.prepend(svgElement("rect", { class: "ring", x: -9.5, y: -9.5, width: 19, height: 19, rx }));
  }

  fill(node, share, kept) {
    const [whole, part] = node.querySelectorAll(".level");
    const size = [11, 11];
    whole.setAttribute("d", levelPath(size, share > 0 ? Math.max(share, 0.18) : 0));
    part.setAttribute("d", levelPath(size, kept));
  }

  /** A row as text: the states of its nodes. */
  words(rows, row) {
    return `${rows.names[row]}${this.opens(row) ? ", opens" : ""}: ${rowWords(this.ledger, row, this.ledger.step)}`;
  }

  select(cell) {
    this.selected = cell;
    if (this.ledger.layers.past) this.redraw();
  }

  clicked(event) {
    const row = event.target.closest("[data-row]");
    if (row) this.onChoose(this.cellOf(Number(row.dataset.row)));
  }

  /** Up and down, from row to row. */
  key(event) {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!by) return;
    const { count } = this.ledger.rows;
    this.focus(Math.min(Math.max(this.focused + by, 0), count - 1));
    event.preventDefault();
    event.stopPropagation();
  }

  /** Bring the keyboard to a row. */
  focus(row) {
    this.focused = row;
    if (!this.reveal(row)) this.redraw();
    this.shown.get(row)?.focus({ preventScroll: true });
  }

  /** Bring a row into sight. @returns {boolean} whether it was not */
  reveal(row) {
    const { window } = this.ledger;
    if (!window.reveal(row)) return false;
    window.moved();
    return true;
  }
}

/** The states of a row's cells at a step, as text. */
function rowWords({ rows, view, history, model }, row, step) {
  const halves = cellsOf(rows, row).map((cell, i) =>
    cell < 0 ? "" : `${["forward", "backward"][i]} ${cellWords(model.graph, view, history, cell, step)}`,
  );
  return halves.filter(Boolean).join("; ");
}
