/** Controls of the difference view: whether two policies are overlaid, and which two. */

import { wholeIn } from "./address.js";
import { byId } from "./controls.js";
import { DifferencePanel, SIDES } from "./difference_panel.js";
import { pairOf } from "./differing.js";
import { areComparable } from "./progress.js";

/**
 * @import { Model } from "./data.js"
 * @import { Player } from "./main.js"
 */

export class Differences {
  /** @param {Player} player */
  constructor(player) {
    this.player = player;
    this.panel = null;
    this.holder = byId("panels");
    this.button = byId("difference");
    this.button.hidden = !this.known.length;
    this.button.addEventListener("click", () => this.toggle());
    this.build();
  }

  /** The policies that have another one of the same graph. */
  get known() {
    const { models } = this.player;
    return models.filter((model) => models.some((other) => other !== model && areComparable([model, other])));
  }

  /** Those that a policy can be compared with. @param {Model} model */
  partners(model) {
    return this.known.filter((other) => other !== model && areComparable([model, other]));
  }

  /** The two select fields, and the button that swaps them. */
  build() {
    this.which = document.createElement("div");
    this.which.className = "which";
    this.selects = SIDES.map((side) => {
      const label = document.createElement("label");
      const badge = document.createElement("b");
      badge.className = `badge ${side.toLowerCase()}`;
      badge.textContent = side;
      const select = document.createElement("select");
      select.setAttribute("aria-label", `Policy ${side}`);
      select.addEventListener("change", () =>
        this.chosen(SIDES.indexOf(side), this.player.models[Number(select.value)]),
      );
      label.append(badge, select);
      return select;
    });
    const turn = document.createElement("button");
    turn.type = "button";
    turn.className = "icon";
    turn.textContent = "\u21c4";
    turn.setAttribute("aria-label", "Turn A and B round");
    turn.title = "Turn A and B round";
    turn.addEventListener("click", () => this.open(this.panel.pair.b, this.panel.pair.a));
    this.which.append(this.selects[0].parentElement, turn, this.selects[1].parentElement);
  }

  toggle() {
    if (this.panel) this.close();
    else if (this.known.length) this.open(...this.usual());
  }

  /** The policy that is chosen against the first that it can be compared with. */
  usual() {
    const { chosen } = this.player;
    const b = this.partners(chosen.model).length ? chosen.model : this.known[1];
    const [a] = this.partners(b);
    return this.player.models.indexOf(a) < this.player.models.indexOf(b) ? [a, b] : [b, a];
  }

  /** Somebody chose one of the two: the other stays, unless the two cannot be compared. */
  chosen(side, model) {
    const { a, b } = this.panel.pair;
    const other = side ? a : b;
    const partner = other === model ? (side ? b : a) : areComparable([model, other]) ? other : this.partners(model)[0];
    this.open(...(side ? [partner, model] : [model, partner]));
    this.selects[side].focus();
  }

  /** A digit: that policy against the first of the two. @param {number} id -1 for none */
  take(id) {
    const model = this.player.models[id];
    if (id < 0) this.close();
    else if (this.known.includes(model)) this.chosen(1, model);
  }

  /** Show the difference of two policies. */
  open(a, b) {
    const { player } = this;
    const { model, step, index } = player.visible[0];
    const before = this.panel;
    if (!before) this.axis = player.align;
    this.panel = new DifferencePanel(pairOf(a, b), player.scales, player.events, model.graph === a.graph ? index : 0);
    before?.element.remove();
    this.holder.append(this.panel.element);
    this.panel.part(".title").after(this.which);
    this.fill(a, b);
    this.changed(before ? player.align : "progress", model, step, this.panel);
  }

  /** Say in the fields which two there are. */
  fill(a, b) {
    this.selects.forEach((select, side) => {
      select.replaceChildren(...this.known.map(({ title, id }) => new Option(title, String(id))));
      select.value = String((side ? b : a).id);
    });
  }

  /** Show all policies again. */
  close() {
    if (!this.panel) return;
    const { player } = this;
    const { model, step } = this.panel;
    this.panel.element.remove();
    this.panel = null;
    this.changed(player.align === "progress" ? this.axis : player.align, model, step, player.visible[0]);
  }

  /** Others are compared: along an axis of theirs, at the moment where that was. */
  changed(align, model, step, panel) {
    const { player } = this;
    const isOpen = this.panel !== null;
    this.button.setAttribute("aria-pressed", String(isOpen));
    this.holder.classList.toggle("differing", isOpen);
    document.documentElement.classList.toggle("differing", isOpen);
    if (player.scales.front === "graph") player.setFront("ledger");
    player.recompare(align, model, step);
    player.choose(panel, -1);
  }

  /** Apply a URL. @param {URLSearchParams} parameters */
  follow(parameters) {
    const ids = (parameters.get("difference") ?? this.player.usualPair)
      .split("-")
      .map((text) => wholeIn(text, 1, this.player.models.length));
    const [a, b] = ids.map((id) => (id === null ? null : this.player.models[id - 1]));
    if (!a || !b || a === b || !areComparable([a, b])) this.close();
    else if (this.panel?.pair.a !== a || this.panel.pair.b !== b) this.open(a, b);
  }
}
