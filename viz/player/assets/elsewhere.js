/** Summary of what lies outside an expanded group: live memory, and current activity. */

import { COMPUTE } from "./allocation.js";
import { blocksAt } from "./blocks.js";
import { amountText, setText } from "./format.js";
import { homes } from "./state.js";

/**
 * @import { Graph } from "./data.js"
 * @import { Panel } from "./panel.js"
 */

const HOMES = new WeakMap(); // by view: which cell every operator is in

/** The cell of a view that an operator is in; -1 if in none. */
function cellIn(graph, index, operator) {
  const view = graph.views[index];
  if (!HOMES.has(view)) HOMES.set(view, homes(graph.operators.names.length, view.operators));
  return HOMES.get(view)[operator];
}

/** The view that shows an operator and is nearest to another one, above it or the same.
 * @param {Graph} graph @param {number} index of that other @param {number} operator
 * @param {boolean} inside whether to open all groups that it is in
 */
export function viewWith(graph, index, operator, inside) {
  let view = index;
  while (cellIn(graph, view, operator) < 0 && graph.views[view].parent !== null) view = graph.views[view].parent;
  if (!inside) return view;
  const opened = () => graph.views[view].opens[cellIn(graph, view, operator)];
  for (let next = opened(); next !== undefined; next = opened()) view = next;
  return view;
}

/** Live memory outside the open view, in the unit of memory. */
function heldElsewhere({ model, ledger, step }) {
  let sum = 0;
  for (const { value, amount } of blocksAt(model, step)) if (value >= 0 && ledger.homeOf[value] < 0) sum += amount;
  return sum;
}

/** Say beside the way to an open group what is active elsewhere; the button leads there. @param {Panel} panel */
export function showElsewhere(panel) {
  const nav = panel.part(".path");
  if (nav.hidden || panel.pair) return;
  panel.beyond ??= elsewhereOf(panel);
  const { element, held, button } = panel.beyond;
  if (nav.lastChild !== element) nav.append(element);
  const { model, step, index } = panel;
  const amount = step < 0 ? 0 : heldElsewhere(panel);
  const words = amount
    ? `also active elsewhere: ${amountText(amount, model.inNodes)} held`
    : "nothing is held elsewhere";
  setText(held, words);
  const operator = step >= 0 && model.verbs[step] === COMPUTE ? model.targets[step] : -1;
  const away = operator >= 0 && cellIn(model.graph, index, operator) < 0;
  button.hidden = !away;
  if (!away) return;
  const scope = model.graph.operators.scopes[operator];
  setText(button, `now ${model.graph.operators.names[operator]}${scope ? ` in ${scope}` : ""}`);
}

function elsewhereOf(panel) {
  const element = document.createElement("span");
  element.className = "elsewhere";
  const held = document.createElement("span");
  const button = document.createElement("button");
  button.type = "button";
  button.addEventListener("click", () => {
    const { model, step, index } = panel;
    panel.open(viewWith(model.graph, index, model.targets[step], true));
    panel.events.choose(panel, -1);
  });
  element.append(held, " ", button);
  return { element, held, button };
}
