/**
 * Search in names, scopes and kinds of operators, and in names of their outputs. Matches are marked
 * on the ledger of the open view; a group shows that it contains some.
 */

import { listAt } from "./columns.js";
import { byId } from "./controls.js";
import { evaluationsOf } from "./details.js";
import { viewWith } from "./elsewhere.js";
import { countText, kindWords, listed } from "./format.js";
import { LongList, fillRow } from "./longlist.js";
import { firstAfter } from "./reasons.js";

/**
 * @import { Graph, Model } from "./data.js"
 * @import { Ledger } from "./ledger.js"
 * @import { Player } from "./main.js"
 */

// What frameworks call the parts of a network.
const ALIASES = [
  ["layer", "stage", "block"],
  ["attention", "attn"],
  ["mlp", "ffn", "feed_forward"],
  ["layer_norm", "layernorm", "ln"],
];
const FOUND_ROW = 42; // pixels; the same in the style sheet
const MARK_APART = 5; // pixels from mark to mark
const [LEAST_MARKED, MOST_MARKS] = [9, 2000]; // pixels of a row; marks on a ledger
const FOUND_INK = { light: 0.35, dark: 0.16 }; // of the halo's colour upon a row

/** The name that code and data have for what is "gradient of matmul_3 (2)" in words. @param {string} name */
const plainName = (name) =>
  name.replace(/gradient of ([^ )]+)(?: \((\d+)\))?/, (_, own, number) => `${own}_vjp${number ? `_${number}` : ""}`);

export class Search {
  /** @param {Player} player */
  constructor(player) {
    this.player = player;
    this.element = byId("search");
    this.input = byId("search-input");
    this.total = byId("search-total");
    this.holder = byId("search-list");
    this.none = byId("search-none");
    this.meant = byId("search-meant");
    this.list = new LongList(this.holder, (row, index) => this.fill(row, index), FOUND_ROW, "option");
    this.texts = new Map(); // by graph: all that can be searched of every operator
    this.found = new Map(); // by graph the operators that match, by its operators whether, by model when
    this.query = "";
    this.at = -1;
    player.scales.drawn = (ledger) => this.mark(ledger);
    this.listen();
  }

  listen() {
    byId("search-open").addEventListener("click", () => (this.element.hidden ? this.open() : this.close()));
    byId("search-close").addEventListener("click", () => this.close());
    byId("search-next").addEventListener("click", () => this.next(1));
    byId("search-back").addEventListener("click", () => this.next(-1));
    this.input.addEventListener("input", () => this.look(this.input.value));
    this.meant.addEventListener("click", () => {
      this.input.value = this.meant.textContent;
      this.input.focus();
      this.look(this.input.value);
    });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.holder.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.go(Number(row.dataset.index), true);
    });
  }

  /** Whether anything is searched. */
  get active() {
    return this.query !== "";
  }

  get items() {
    return this.matches(this.player.chosen.model.graph);
  }

  open() {
    this.element.hidden = false;
    byId("search-open").setAttribute("aria-expanded", "true");
    this.list.measure();
    this.input.focus();
    this.input.select();
    this.show();
  }

  /** Search nothing any more. */
  close() {
    const inside = this.element.contains(document.activeElement);
    this.element.hidden = true;
    byId("search-open").setAttribute("aria-expanded", "false");
    if (inside) byId("search-open").focus();
    this.input.value = "";
    this.look("");
  }

  /** Search some words, all of which a match has. @param {string} query */
  look(query) {
    const words = query.trim().toLowerCase();
    if (words === this.query) return;
    this.query = words;
    this.found.clear();
    this.at = -1;
    this.show();
    this.marks();
    this.player.settle();
  }

  /** Search the query of a URL. @param {string} query */
  become(query) {
    if (query.trim().toLowerCase() === this.query) return;
    this.input.value = query;
    this.element.hidden = query === "";
    byId("search-open").setAttribute("aria-expanded", String(query !== ""));
    this.list.measure();
    this.look(query);
  }

  /** The operators of a graph that match. @param {Graph} graph @returns {number[]} */
  matches(graph) {
    if (!this.active) return [];
    if (!this.found.has(graph)) {
      const texts = this.textsOf(graph);
      const words = this.query.split(/\s+/).map((word) => spellings(word, texts));
      const matches = [];
      texts.forEach((text, i) => {
        if (words.every((spelt) => spelt.some((word) => text.includes(word)))) matches.push(i);
      });
      this.found.set(graph, matches);
    }
    return this.found.get(graph);
  }

  /** The query with words that there are, where it finds nothing; null without any.
   * @param {Graph} graph @returns {string | null}
   */
  suggestion(graph) {
    const texts = this.textsOf(graph);
    const known = new Set(texts.flatMap((text) => text.split(/[^\p{L}\p{N}]+/u)).filter(Boolean));
    const words = this.query.split(/\s+/).map((word) => {
      if (spellings(word, texts).some((spelt) => texts.some((text) => text.includes(spelt)))) return word;
      let [nearest, least] = ["", Math.max(1, Math.floor(word.length / 2)) + 1];
      for (const other of known) {
        const far = editDistance(word, other);
        if (far < least) [nearest, least] = [other, far];
      }
      return nearest;
    });
    const query = words.filter(Boolean).join(" ");
    return query && query !== this.query ? query : null;
  }

  textsOf(graph) {
    if (!this.texts.has(graph)) {
      const { names, scopes, kinds, outputs } = graph.operators;
      const made = (i) => Array.from(listAt(outputs, i), (value) => graph.data.names[value]);
      const text = (name, i) => [name, plainName(name), scopes[i], kinds[i], ...made(i)].join("\n").toLowerCase();
      this.texts.set(graph, Array.from(names, text));
    }
    return this.texts.get(graph);
  }

  /** When matches are evaluated, in order. @param {Model} model */
  evaluationsOf(model) {
    const known = this.found.get(model);
    if (known) return known;
    const hit = this.hits(model.graph);
    const steps = model.computes.filter((step) => hit[model.targets[step]]);
    this.found.set(model, steps);
    return steps;
  }

  /** By operator, whether it matches. @param {Graph} graph */
  hits(graph) {
    const { operators } = graph;
    if (!this.found.has(operators)) {
      const hit = new Uint8Array(operators.names.length);
      for (const operator of this.matches(graph)) hit[operator] = 1;
      this.found.set(operators, hit);
    }
    return this.found.get(operators);
  }

  // The list --------------------------------------------------------------------------------------

  show() {
    const { items } = this;
    this.element.classList.toggle("empty", !this.active);
    this.total.textContent = this.active
      ? `${this.at < 0 ? "" : `${countText(this.at + 1)} of `}${countText(items.length)}`
      : "";
    const meant = this.active && !items.length ? this.suggestion(this.player.chosen.model.graph) : null;
    this.none.hidden = !this.active || items.length > 0;
    this.none.firstChild.textContent = meant ? "Nothing; did you mean " : "Nothing has all these words.";
    this.meant.hidden = meant === null;
    this.meant.textContent = meant;
    if (this.list.count !== items.length) this.list.reset(items.length);
    this.list.current = -1;
    this.list.refill();
    if (this.at >= 0) this.list.follow(this.at);
    for (const row of this.list.rows) row.setAttribute("aria-selected", String(Number(row.dataset.index) === this.at));
    if (this.at < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `found-${this.at}`);
  }

  fill(row, index) {
    const { graph } = this.player.chosen.model;
    const { names, scopes, kinds } = graph.operators;
    const operator = this.items[index];
    if (operator === undefined) return;
    row.id = `found-${index}`;
    row.setAttribute("aria-selected", String(index === this.at));
    const made = Array.from(listAt(graph.operators.outputs, operator), (value) => graph.data.names[value]);
    const where = [
      kindWords(kinds[operator]),
      scopes[operator] && `in ${scopes[operator]}`,
      made.some((name) => name !== names[operator]) && `makes ${listed(made, 2)}`,
    ];
    fillRow(row, [
      ["name", names[operator]],
      ["why", where.filter(Boolean).join(", ")],
    ]);
  }

  key(event) {
    const actions = {
      ArrowDown: () => this.next(1),
      ArrowUp: () => this.next(-1),
      Enter: () => this.go(Math.max(this.at, 0), true),
      Escape: () => this.close(),
    };
    const isButton = event.target !== this.input;
    // Nothing that is written here is a key of the player.
    event.stopPropagation();
    if (!Object.hasOwn(actions, event.key) || (isButton && event.key === "Enter")) return;
    actions[event.key]();
    event.preventDefault();
  }

  // Matches ---------------------------------------------------------------------------------------

  /** Go to the next match, or back. @param {number} by */
  next(by) {
    const { length } = this.items;
    if (length) this.go((this.at + (by > 0 || this.at >= 0 ? by : 0) + length) % length);
  }

  /** Select a match, and bring it into sight. @param {number} index @param {boolean} [inside] opens the groups it is in */
  go(index, inside = false) {
    const operator = this.items[index];
    if (operator === undefined) return;
    const { chosen: panel } = this.player;
    const { graph } = panel.model;
    const view = viewWith(graph, panel.index, operator, inside);
    const focused = document.activeElement;
    if (view !== panel.index) panel.open(view);
    if (this.element.contains(focused)) /** @type {HTMLElement} */ (focused).focus();
    const [value = -1] = listAt(graph.operators.outputs, operator);
    this.player.choose(panel, panel.ledger.cellOf[operator], panel.ledger.homeOf[value] >= 0 ? value : -1);
    this.player.navigation.reveal(panel.model, evaluationsOf(panel.model, [operator], 0).steps);
    this.at = index;
    this.show();
  }

  /** Mark matches on all ledgers. */
  marks() {
    for (const { ledger } of this.player.visible ?? []) if (ledger.layers.past) this.mark(ledger);
    this.player.navigation?.minimap.draw();
  }

  /** Mark the rows of a ledger that have matches, and when these are evaluated. @param {Ledger} ledger */
  mark(ledger) {
    const canvas = ledger.element.querySelector(".found");
    const { past, ratio } = ledger.layers;
    // Setting its size empties it.
    if (!this.active && !canvas.width) return;
    [canvas.width, canvas.height] = this.active ? [past.width, past.height] : [0, 0];
    const context = canvas.getContext("2d");
    const { model, cellOf } = ledger;
    const style = getComputedStyle(canvas);
    // Upon what is light this darkens the ground and leaves bars as they are; likewise in the dark.
    const scheme = style.colorScheme === "dark" ? "dark" : "light";
    canvas.style.mixBlendMode = { light: "darken", dark: "lighten" }[scheme];
    const colours = Object.fromEntries(
      ["ink", "halo", "background"].map((name) => [name, style.getPropertyValue(`--${name}`)]),
    );
    const hit = this.hits(model.graph);
    const cells = new Set();
    for (const operator of this.matches(model.graph))
      if (ledger.isInSight(cellOf[operator])) cells.add(cellOf[operator]);
    for (const cell of cells) this.markRow(context, ledger, cell, colours, FOUND_INK[scheme]);
    context.fillStyle = colours.ink;
    context.strokeStyle = colours.background;
    context.lineWidth = 2 * ratio;
    // In rows that are lower than its marks nobody would see whose they are.
    if (ledger.rowHeight < LEAST_MARKED * ratio) return;
    context.beginPath();
    let count = 0;
    for (const cell of cells) if (count < MOST_MARKS) count += this.markTimes(context, ledger, cell, hit);
    context.stroke();
    context.fill();
  }

  markRow(context, ledger, cell, colours, light) {
    const [high, low] = ledger.lane(cell);
    const { past, ratio } = ledger.layers;
    for (const [ink, alpha, wide] of [
      ["background", 1],
      ["halo", light],
      ["ink", 1, 4 * ratio],
    ]) {
      context.globalAlpha = alpha;
      context.fillStyle = colours[ink];
      context.fillRect(0, high, wide ?? past.width, low - high);
    }
    context.globalAlpha = 1;
  }

  /** A mark above each evaluation of a match in a row, as part of one path for all. @returns {number} how many */
  markTimes(context, ledger, cell, hit) {
    const { model, places } = ledger;
    const { past, ratio } = ledger.layers;
    const own = ledger.marksOf(cell);
    const y = Math.max(ledger.lane(cell)[0], 0);
    const size = 3.5 * ratio;
    let [count, before] = [0, -Infinity];
    for (
      let i = firstAfter(model, own, ledger.scales.extent.stepAt(model, ledger.scales.extent.from) - 1);
      i < own.length;
      i++
    ) {
      const step = model.computes[own[i]];
      const x = ledger.x(places[step]);
      if (x > past.width) break;
      if (!hit[model.targets[step]] || x < before + MARK_APART * ratio) continue;
      before = x;
      count++;
      context.moveTo(x - size, y - size / 2);
      context.lineTo(x + size, y - size / 2);
      context.lineTo(x, y + 1.2 * size);
      context.closePath();
    }
    return count;
  }
}

/** A word as a graph spells it: layers, stages and blocks are one, unless the word itself is there.
 * @param {string} word @param {string[]} texts @returns {string[]}
 */
function spellings(word, texts) {
  const [, kind, number] = /^(\D+?)s?(\d*)$/.exec(word) ?? [];
  const same = ALIASES.find((names) => names.includes(kind));
  return same && !texts.some((text) => text.includes(word)) ? same.map((alias) => alias + number) : [word];
}

/** The edit distance of two words. Source: Levenshtein (1966). @param {string} one @param {string} other */
function editDistance(one, other) {
  let before = Array.from({ length: other.length + 1 }, (_, j) => j);
  for (let i = 1; i <= one.length; i++) {
    const now = [i];
    for (let j = 1; j <= other.length; j++)
      now[j] = Math.min(before[j] + 1, now[j - 1] + 1, before[j - 1] + Number(one[i - 1] !== other[j - 1]));
    before = now;
  }
  return before[other.length];
}
