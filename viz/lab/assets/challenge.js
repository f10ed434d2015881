/**
 * Budget challenge: save values by hand to stay within a budget, with as little recomputation as
 * possible.
 *
 * A page written with a budget starts with the challenge: nothing is saved, and the frontier, which
 * would give the answer away, is hidden until the reader has found it or asks to see it.
 */

import { byId } from "../../player/assets/controls.js";
import { TIGHT } from "./offers.js";
import { percentText } from "./texts.js";

/**
 * @import { Choice, Offers } from "./offers.js"
 */

export class Challenge {
  /** @param {Offers} offers @param {HTMLElement} card whose answers are hidden */
  constructor(offers, card) {
    this.offers = offers;
    this.card = card;
    const { challenge } = offers.lab;
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

  /** Show the verdict on a choice; an optimal one reveals everything.
   * @param {Choice} choice
   */
  words(choice) {
    const { offers, all } = this;
    const { budget, best } = all[this.number];
    const which = all.length > 1 ? `${this.number + 1} of ${all.length}: stay` : "Stay";
    const head = `${which} within ${offers.memory(budget)}, and recompute as little as you can.`;
    if (!choice.keep) return `${head} This one was planned: click layers to keep your own.`;
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
