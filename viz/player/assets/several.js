/** Display modes for several policies: in full, one sparkline each, or the difference of two. */

import { axesOf } from "./axis.js";
import { byId } from "./controls.js";
import { stepOfTick, tickOfStep } from "./model.js";
import { Playback } from "./playback.js";

/**
 * @import { Axis } from "./axis.js"
 * @import { DifferencePanel } from "./difference_panel.js"
 */

export class Several extends Playback {
  /** The difference of two policies, while that is shown. @returns {DifferencePanel | null} */
  get difference() {
    return this.differences?.panel ?? null;
  }

  /** The policies that share the axis. */
  get compared() {
    return this.difference?.models ?? this.models;
  }

  get axes() {
    return axesOf(this.compared);
  }

  /** The panels shown in full: policies, or the difference of two. */
  get visible() {
    if (this.difference) return [this.difference];
    return this.solo < 0 ? this.panels : [this.panels[this.solo]];
  }

  /** The others, a row each. */
  get rows() {
    return this.solo < 0 || this.difference ? [] : this.panels.filter(({ model }) => model.id !== this.solo);
  }

  /** Others are compared, or along another axis: go to a step of one of those before.
   * @param {Axis} align @param {any} model @param {number} step
   */
  recompare(align, model, step) {
    this.align = align;
    if (this.navigation.loop) this.navigation.toggleLoop();
    // What is not compared may have no place on the axis of what is.
    for (const panel of this.panels) if (!this.visible.includes(panel)) panel.hide();
    this.measure();
    const { extent } = this.scales;
    extent.set(0, extent.whole);
    this.controls.rescale();
    if (!this.compared.includes(this.reading.model)) this.read(this.compared[0]);
    const tick = this.compared.includes(model) ? tickOfStep(model, step, align) : this.tick;
    this.show(tick);
    this.resized();
    this.settle();
  }

  /** Open one policy, or compare it. @param {number} id -1 for all of them */
  pick(id) {
    if (this.difference) this.differences.take(id);
    else this.setSolo(id);
  }

  /** Open one policy, the others being a row each; asked again, or for none, open all of them.
   * @param {number} id
   */
  setSolo(id) {
    this.solo = id === this.solo ? -1 : id;
    this.arrange();
    if (this.solo >= 0) this.read(this.models[this.solo]);
    if (!this.visible.includes(this.chosen)) this.choose(this.visible[0], -1);
    this.show(this.tick);
    this.resized();
    this.settle();
  }

  /** The step that a policy is at; before the first one if it is not compared. */
  stepOf(model) {
    return this.compared.includes(model) ? stepOfTick(model, this.tick, this.align) : -1;
  }

  /** Say of every policy in which form it is. */
  arrange() {
    const { solo } = this;
    byId("panels").classList.toggle("rows", solo >= 0);
    for (const panel of this.panels) panel.arrange(solo >= 0 && panel.model.id !== solo, panel.model.id === solo);
  }

  /** Open the policy above another one, or below it. */
  openNeighbour({ model }, by) {
    const panel = this.panels[model.id + by];
    if (!panel) return;
    if (this.solo >= 0) this.setSolo(panel.model.id);
    panel.part(".solo").focus();
  }

  /** Show the side cards for a policy: its memory breakdown, its table, its program. */
  turn(panel) {
    if (!this.visible.includes(panel)) this.setSolo(panel.model.id);
    else if (panel !== this.chosen) this.choose(panel, -1);
    this.read(panel.model);
  }
}
