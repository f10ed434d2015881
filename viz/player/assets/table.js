/**
 * Accessible table in place of the space-time diagram: the live values of every row at the current
 * step, its live intervals, and its number of evaluations. The same content as the bars, for screen
 * readers.
 */

import { DASH, countText, setText } from "./format.js";
import { firstAfter } from "./reasons.js";
import { cellWords, heldWords } from "./words.js";

/**
 * @import { Panel } from "./panel.js"
 */

const TABLE_HEAD = ["row", "forward", "backward", "evaluated", "forward held at steps", "backward held at steps"];

export class LedgerTable {
  constructor() {
    this.details = /** @type {HTMLDetailsElement} */ (document.getElementById("as-table"));
    this.head = this.details.querySelector("thead tr");
    this.body = this.details.querySelector("tbody");
    this.details.addEventListener("toggle", () => this.show(this.panel));
  }

  /** @param {Panel} panel */
  show(panel) {
    this.panel = panel;
    if (!panel || !this.details.open) return;
    if (panel.pair) return this.showDifference(/** @type {any} */ (panel).table());
    const { model, step, index } = panel;
    const rows = `${model.id} ${index}`;
    if (this.model !== model || this.rows !== rows) this.build(panel);
    else if (this.step === step) return;
    this.model = model;
    this.rows = rows;
    this.step = step;
    this.lines.forEach((cells, row) => {
      this.texts(panel, row).forEach((text, i) => {
        setText(cells[i], text);
      });
    });
  }

  /** All of it anew: little stays from step to step. @param {{head: string[], lines: string[][]}} table */
  showDifference({ head, lines }) {
    this.model = null;
    this.headings(head);
    this.body.replaceChildren(...lines.reverse().map((texts) => tableRow(texts, head)));
  }

  headings(texts) {
    this.head.replaceChildren(...texts.map((text) => cellOf("th", "columnheader", text)));
  }

  /** Rows with all that no step changes. @param {Panel} panel */
  build({ ledger, model }) {
    this.headings(TABLE_HEAD);
    const { rows, history } = ledger;
    this.lines = rows.names.map(() => []);
    const built = rows.names.map((name, row) => {
      const held = cellsOf(rows, row).map((cell) => (cell < 0 ? DASH : heldWords(history, cell, model.count)));
      const line = tableRow([name, "", "", "", ...held], TABLE_HEAD);
      this.lines[row] = Array.from(line.children).slice(1, 4);
      return line;
    });
    this.body.replaceChildren(...built.reverse());
  }

  /** The entries of a row at a step. @param {Panel} panel */
  texts({ ledger, model, step }, row) {
    const { rows, view, history } = ledger;
    const cells = cellsOf(rows, row);
    const looks = cells.map((cell) => (cell < 0 ? DASH : cellWords(model.graph, view, history, cell, step)));
    const own = cells.filter((cell) => cell >= 0).map((cell) => ledger.marksOf(cell));
    const sum = (counts) => countText(counts.reduce((all, count) => all + count, 0));
    return [
      ...looks,
      `${sum(own.map((marks) => firstAfter(model, marks, step)))} of ${sum(own.map((marks) => marks.length))}`,
    ];
  }
}

/** The cells of a row, forward and backward; -1 for none. */
export function cellsOf({ forward, backward }, row) {
  return [forward[row], backward[row]];
}

/** @param {string[]} texts the first is the row's heading @param {string[]} head names of the columns */
function tableRow(texts, head) {
  const row = document.createElement("tr");
  row.role = "row"; // on a phone it is laid out as a list, which would no longer be a row
  row.append(...texts.map((text, i) => cellOf(i ? "td" : "th", i ? "cell" : "rowheader", text, head[i])));
  return row;
}

/** @param {string} tag @param {string} role @param {string} text @param {string} [head] name of its column */
function cellOf(tag, role, text, head) {
  const cell = document.createElement(tag);
  if (tag === "th") cell.setAttribute("scope", role === "rowheader" ? "row" : "col");
  if (head) cell.dataset.head = head;
  return Object.assign(cell, { role, textContent: text });
}
