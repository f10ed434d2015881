/** Lists of a policy's schedule and generated program, which scroll with the current step. */

import { VERBS } from "./allocation.js";
import { countText, liveText } from "./format.js";
import { LongList, fillRow } from "./longlist.js";
import { isAgain, targetName } from "./model.js";
import { lastAtMost } from "./state.js";

/**
 * @import { Model } from "./data.js"
 */

export class Reading {
  /** @param {(step: number) => void} onSeek */
  constructor(onSeek) {
    this.model = this.listed = /** @type {Model} */ (null);
    this.step = -1;
    this.card = /** @type {HTMLDetailsElement} */ (document.getElementById("reading"));
    this.card.addEventListener("toggle", () => this.show(this.model, this.step));
    this.title = document.getElementById("reading-title");
    this.note = document.getElementById("reading-note");
    this.none = document.getElementById("no-program");
    const steps = document.getElementById("steps");
    const program = document.getElementById("program");
    this.steps = new LongList(steps, (row, index) => this.fillStep(row, index));
    this.program = new LongList(program, (row, index) => this.fillLine(row, index));
    steps.addEventListener("click", (event) => {
      const row = /** @type {any} */ (event.target).closest(".row");
      if (row) onSeek(Number(row.dataset.index));
    });
    for (const list of [steps, program]) list.addEventListener("keydown", (event) => this.key(event, onSeek));
    program.addEventListener("click", (event) => {
      const row = /** @type {any} */ (event.target).closest(".row");
      const step = row ? lastAtMost(this.model.lines, Number(row.dataset.index)) : -1;
      if (step >= 0) onSeek(step);
    });
  }

  /** Up and down, from step to step. */
  key(event, onSeek) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    onSeek(Math.min(Math.max(this.steps.current + by, -1), this.model.count - 1));
    event.preventDefault();
    event.stopPropagation();
  }

  /** Read a policy; of one that is not open, nothing is listed. @param {Model} model @param {number} step */
  show(model, step) {
    [this.model, this.step] = [model, step];
    if (!this.card.open) return;
    if (this.listed !== model) this.list();
    this.steps.follow(step);
    if (model.source) this.program.follow(step < 0 ? -1 : model.lines[step]);
  }

  list() {
    const { model } = this;
    this.listed = model;
    this.title.textContent = model.title;
    this.note.textContent = [model.note, model.certificate].filter(Boolean).join(". ");
    this.none.textContent = model.no_source ?? "";
    this.none.hidden = Boolean(model.source);
    this.program.element.hidden = !model.source;
    this.steps.element.style.setProperty("--digits", String(countText(model.count).length));
    this.steps.reset(model.count);
    this.program.reset(model.source?.length ?? 0);
    this.steps.refill();
    this.program.refill();
  }

  fillStep(row, step) {
    const { model } = this;
    row.dataset.verb = isAgain(model, step) ? "again" : VERBS[model.verbs[step]];
    fillRow(row, [
      ["number", countText(step)],
      ["verb", VERBS[model.verbs[step]]],
      ["name", targetName(model, step)],
      ["live", liveText(model.live[step], model.inNodes)],
    ]);
  }

  fillLine(row, line) {
    const text = this.model.source[line];
    const kind = /^\s*del /.test(text) ? "free" : text.endsWith("# again") ? "again" : "";
    row.dataset.verb = kind;
    fillRow(row, [
      ["number", String(line + 1)],
      ["code", text],
    ]);
  }
}
