/** Hit testing and pointer actions in a space-time diagram (ledger). */

import { COMPUTE } from "./allocation.js";
import { AGAIN_BAND, KEPT_BAND, PASSING_BAND, STAYING_BAND } from "./blocks.js";
import { listAt } from "./columns.js";
import { evaluationsOf } from "./details.js";
import { countText, shortSize } from "./format.js";
import { MIDDLE } from "./ledger.js";
import { isAgain } from "./model.js";
import { blockLines } from "./reasons.js";
import { DROPPED, NOT_YET, changeAt, lastAtMost } from "./state.js";
import { heldBytes, lookWords, sizesOf } from "./words.js";

/**
 * @import { Ledger } from "./ledger.js"
 */

export class LedgerPointer {
  /** @param {Ledger} ledger */
  constructor(ledger) {
    this.ledger = ledger;
    this.listen();
  }

  listen() {
    const { ledger } = this;
    const { panel } = ledger;
    const { canvas } = ledger.layers;
    const over = (found) => {
      const moved = found?.cell !== ledger.hovered?.cell || found?.begin !== ledger.hovered?.begin;
      ledger.hovered = found;
      if (moved) ledger.show(ledger.step);
      canvas.style.cursor = found ? "pointer" : "";
    };
    canvas.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      const found = this.barAt(event);
      over(found);
      if (found) panel.events.say(event, this.lines(found));
      else panel.events.hover(event, panel, null);
    });
    canvas.addEventListener("pointerleave", (event) => {
      over(null);
      panel.events.hover(event, panel, null);
    });
    canvas.addEventListener("click", (event) => this.clicked(event));
  }

  /** A bar is chosen; where there is none, time goes there. */
  clicked(event) {
    const { panel, model } = this.ledger;
    const found = this.barAt(event);
    if (found) panel.events.choose(panel, found.cell, found.value ?? -1);
    else panel.events.seekStep(model, this.stepAt(event));
  }

  /** The step at a point of the screen. */
  stepAt(event) {
    const { plot, model, scales } = this.ledger;
    const box = plot.getBoundingClientRect();
    return scales.extent.stepAt(model, scales.extent.place(event.clientX - box.left, box.width));
  }

  /** The bar at a point of the screen: a value's time in memory, of a group all it holds then. */
  barAt(event) {
    const { ledger } = this;
    const { past, ratio } = ledger.layers;
    if (!past) return null;
    const y = (event.clientY - ledger.plot.getBoundingClientRect().top) * ratio;
    const row = Math.floor((ledger.ground - y) / ledger.rowHeight);
    if (row < 0 || row >= ledger.rows.count) return null;
    const inside = (y - ledger.top(row)) / ledger.rowHeight;
    const { forward, backward } = ledger.rows;
    const [near, far] = inside > MIDDLE ? [backward[row], forward[row]] : [forward[row], backward[row]];
    const found = near < 0 ? null : this.heldIn(near, event);
    // A finger means a row: there is no more in it than two bars.
    return found || event.pointerType !== "touch" || far < 0 ? found : this.heldIn(far, event);
  }

  /** Live memory of a cell at a point of the screen, if any. */
  heldIn(cell, event) {
    return this.heldAt(cell, this.stepAt(event));
  }

  /** Live memory of a cell after a step, if any. @param {number} cell @param {number} step */
  heldAt(cell, step) {
    const { history, view, model } = this.ledger;
    const fill = history.looks[changeAt(history, cell, step)] & 7;
    if (fill === NOT_YET || fill === DROPPED || step < 0) return null;
    if (view.groups[cell]) return { cell, step };
    const { spans } = model;
    for (const value of listAt(view.data, cell)) {
      const at = lastAtMost(spans.begins, step, spans.first[value], spans.first[value + 1]);
      if (at >= 0 && spans.ends[at] > step) return { cell, step, value, begin: spans.begins[at], end: spans.ends[at] };
    }
    return { cell, step };
  }

  /** The tooltip of a bar. @param {any} found */
  lines({ cell, value, begin, end, step }) {
    const { model, view, history } = this.ledger;
    if (value === undefined) return groupLines(model, view, history, cell, step);
    const { graph } = model;
    const forward = graph.data.producers[value] < graph.forward_count;
    const again = begin >= 0 && model.verbs[begin] === COMPUTE && isAgain(model, begin);
    const band = forward
      ? again
        ? AGAIN_BAND
        : KEPT_BAND
      : graph.data.results.includes(value)
        ? STAYING_BAND
        : PASSING_BAND;
    return blockLines(model, { value, band, amount: model.inNodes ? 1 : graph.data.sizes[value], begin, end, step });
  }
}

/** The tooltip of a group's bar. */
function groupLines(model, view, history, cell, step) {
  const { sofar, all } = evaluationsOf(model, listAt(view.operators, cell), step);
  const held = heldBytes(model.graph, view, history, cell, changeAt(history, cell, step));
  return [
    view.rows[view.mirrors[cell] < 0 ? cell : view.mirrors[cell]],
    `holds ${shortSize(held)} of ${shortSize(sizesOf(model.graph, view)[cell])}`,
    lookWords(history, cell, step),
    `evaluations so far: ${countText(sofar)} of ${countText(all)}`,
  ];
}
