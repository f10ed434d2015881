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
  const takeBudget = () => {
    const budget = model.get("budget");
    if (budget === widget.getAttribute("budget")) return;
    if (budget === null) widget.removeAttribute("budget");
    else widget.setAttribute("budget", budget);
  };
  const takers = {
    "change:budget": takeBudget,
    "change:policy": () => widget.setAttribute("policy", model.get("policy")),
    "change:data": () => (widget.data = model.get("data")),
    "change:step": () => (widget.step = model.get("step")),
  };
  const given = {
    "ckpt-step": ({ detail }) => ({ step: detail.step }),
    "ckpt-schedule": ({ detail }) => ({ row: detail.row, budget: detail.budget }),
    "ckpt-keep": ({ detail }) => ({ kept: detail.kept }),
  };
  takeBudget();
  widget.data = model.get("data");
  el.append(widget);
  for (const [name, values] of Object.entries(given)) {
    widget.addEventListener(name, (event) => {
      const changes = values(event);
      for (const key of Object.keys(changes)) model.set(key, changes[key]);
      model.save_changes();
    });
  }
  for (const [name, take] of Object.entries(takers)) model.on(name, take);
  return () => {
    for (const [name, take] of Object.entries(takers)) model.off(name, take);
    widget.remove();
  };
}
