/**
 * Budget challenge: save values by hand to stay within a budget, with as little recomputation as
 * possible.
 *
 * A page written with a budget starts with the challenge: nothing is saved, and the frontier, which
 * would give the answer away, is hidden until the reader has found it or asks to see it. Of a task the
 * optimum is known: every choice gets points.
 */

import { byId } from "../../player/assets/controls.js";
import { TIGHT } from "./offers.js";
import { costText, percentText } from "./texts.js";

/**
 * @import { Choice, Offers } from "./offers.js"
 */

export class Challenge {
  /** @param {Offers} offers @param {HTMLElement} card whose answers are hidden */
  constructor(offers, card) {
    this.offers = offers;
    this.card = card;
    const { challenge, task } = offers.lab;
    this.task = task;
    this.given = challenge === null ? [] : [{ budget: challenge, best: offers.bestWithin(challenge) }];
    this.number = this.given.length - 1; // -1: none is asked
    this.hides(this.given.length > 0);
    // Asked by the page, it stands above all else; asked for by somebody, in the card.
    if (this.given.length) document.querySelector("main").prepend(byId("lab-asked"));
  }

  /** All that may be asked, one after the other. */
  get all() {
    return this.given.length ? this.given : this.offers.challenges();
  }

  get isAsked() {
    return this.number >= 0;
  }

  /** The budget of the challenge in bytes; null without one. */
  get budget() {
    return this.isAsked ? this.all[this.number].budget : null;
  }

  hides(hidden) {
    this.hidden = hidden;
    this.card.classList.toggle("asking", hidden);
    byId("lab-title").textContent = hidden ? "a challenge" : "drag the budget";
    byId("lab-challenge").textContent = hidden ? "show the answer" : "challenge";
    byId("lab-challenge").hidden = !hidden && this.given.length > 0;
  }

  /** Reveal the hidden answer, or pose the next challenge. @returns {boolean} whether there is any */
  next() {
    if (this.hidden) this.hides(false);
    else if (this.all.length) this.number = (this.number + 1) % this.all.length;
    return this.isAsked;
  }

  /** What is grey beside a choice: the best answer to a task once it is not hidden, else store-all. */
  get beside() {
    return this.task && !this.hidden ? this.offers.plan(this.offers.keeping(this.task.best)) : this.offers.stored;
  }

  /** Why a keep set is no answer to the task; empty if it is one. @param {Choice} choice */
  fault(choice) {
    const { offers, budget } = this;
    const { minimise, most } = this.task;
    const over = offers.plan(choice).peak - budget;
    if (most !== null && choice.keep.length > most)
      return `${choice.keep.length} values are kept; at most ${most} may be. `;
    return minimise === "cost" && over > 0 ? `${offers.memory(over)} too much. ` : "";
  }

  /** The points of a keep set, by the rule of ``tinyckpt.course.puzzles``. @param {Choice} choice */
  points(choice) {
    const { minimise, optimum, points } = this.task;
    if (this.fault(choice)) return 0;
    const value = this.offers.plan(choice)[minimise];
    return value <= optimum ? points : Math.max(1, Math.min(points - 1, Math.floor((points * optimum) / value)));
  }

  /** Score an answer to the task; the best one reveals everything. @param {Choice} choice */
  score(choice) {
    const { offers, task } = this;
    const points = this.points(choice);
    if (points === task.points && this.hidden) this.hides(false);
    const told = ({ peak, cost }) => `peak ${offers.memory(peak)}, ${costText(cost, offers.unit)}`;
    const names = task.best.map((value) => offers.nameOf(value)).join(", ");
    const least =
      task.minimise === "cost" ? costText(task.optimum, offers.unit) : `peak ${offers.memory(task.optimum)}`;
    const limit = task.minimise === "cost" ? ` within ${offers.memory(this.budget)}` : "";
    const best = this.hidden
      ? `The optimum is ${least}${limit}.`
      : `The best, in grey, keeps ${names}: ${told(this.beside)}; ${task.proof}.`;
    return `Now ${points} of ${task.points} points: ${told(offers.plan(choice))}. ${this.fault(choice)}${best}`;
  }

  /** Show the verdict on a choice; an optimal one reveals everything.
   * @param {Choice} choice
   */
  words(choice) {
    const { offers, all } = this;
    const mine = "This one was planned: click layers to keep your own.";
    if (this.task) return `${this.task.words} ${choice.keep ? this.score(choice) : mine}`;
    const { budget, best } = all[this.number];
    const which = all.length > 1 ? `${this.number + 1} of ${all.length}: stay` : "Stay";
    const head = `${which} within ${offers.memory(budget)}, and recompute as little as you can.`;
    if (!choice.keep) return `${head} ${mine}`;
    const { peak, cost } = offers.plan(choice);
    if (peak > budget) {
      const hint = choice.keep.length ? "" : ": click layers to keep them";
      return `${head} Now ${offers.memory(peak - budget)} too much${hint}.`;
    }
    const proven = offers.isProven(best, budget);
    if (cost <= best * (1 + TIGHT)) {
      if (this.hidden) this.hides(false);
      return `${head} Done: ${proven ? "nothing within it costs less" : "as good as the best known"}.`;
    }
    const above = percentText((100 * (cost - best)) / best);
    return `${head} Within it, ${above.slice(1)} above the ${proven ? "optimum" : "best known"}.`;
  }
}
