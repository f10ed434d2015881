/** The element tiny-ckpt as the view of an anywidget: step, budget and kept tiles go both ways. */

import "./tiny_ckpt.js";

/** Show a model of viz/widget/live.py; the function that is returned removes it.
 * @param {{ model: any, el: HTMLElement }} view
 */
export function renderWidget({ model, el }) {
  /** @type {any} */
  const widget = document.createElement("tiny-ckpt");
  for (const [name, value] of Object.entries(model.get("attributes"))) widget.setAttribute(name, value);
  widget.setAttribute("keep", "");
  let taking = false; // while what the model says is shown: the page answers when all of it is
  const shown = { row: () => widget.row, budget: () => widget.getAttribute("budget"), step: () => widget.step };
  // Of all that is shown, only what follows from the change: another view may not have heard of the change before.
  /** @param {("row" | "budget" | "step")[]} names */
  const tell = (...names) => {
    if (taking) return;
    const changed = names.filter((name) => model.get(name) !== shown[name]());
    for (const name of changed) model.set(name, shown[name]());
    if (changed.length) model.save_changes();
  };
  /** @param {() => void} take @param {("row" | "budget" | "step")[]} names of what follows from it */
  const taken =
    (take, ...names) =>
    () => {
      taking = true;
      take();
      taking = false;
      tell(...names);
    };
  const takeRow = () => {
    const row = model.get("row");
    // Some notebooks tell of a row before the data that have it.
    if (widget.row !== row && row < widget.data.rows.length) widget.row = row;
  };
  const takeBudget = () => {
    const budget = model.get("budget");
    if (budget === null) {
      widget.removeAttribute("budget");
      takeRow();
    } else if (budget !== widget.getAttribute("budget")) widget.setAttribute("budget", budget);
  };
  const takeStep = () => {
    takeRow(); // a step is of a row, of which this view may not have heard
    widget.step = model.get("step");
  };
  const takeData = () => {
    widget.data = model.get("data");
    takeBudget();
    takeRow();
  };
  const takers = {
    "change:data": taken(takeData, "step"),
    "change:budget": taken(takeBudget, "row", "step"),
    "change:row": taken(takeRow, "step"),
    "change:step": taken(takeStep, "step"),
  };
  widget.addEventListener("ckpt-step", () => tell("step"));
  widget.addEventListener("ckpt-schedule", () => tell("row", "budget"));
  widget.addEventListener("ckpt-keep", (/** @type {any} */ { detail }) => {
    model.set("kept", detail.kept);
    model.save_changes();
  });
  taken(() => {
    el.append(widget);
    takeData();
    takeStep();
  }, "step")();
  for (const [name, take] of Object.entries(takers)) model.on(name, take);
  return () => {
    for (const [name, take] of Object.entries(takers)) model.off(name, take);
    widget.remove();
  };
}
