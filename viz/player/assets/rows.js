/**
 * Row layout of a space-time diagram (ledger): all rows compressed to fit, or rows of a legible and
 * touchable height with scrolling.
 *
 * The browser scrolls; the part that shows rows sticks to the ledger's upper edge and is redrawn.
 */

import { byId } from "./controls.js";

/**
 * @import { Ledger } from "./ledger.js"
 * @import { Player } from "./main.js"
 */

const [READ_ROW, TOUCHED_ROW] = [24, 28]; // pixels of a row that is read, that a finger finds
const AROUND = 1.5; // rows beyond one that is brought into sight
export const coarse = matchMedia("(pointer: coarse)");

export class RowWindow {
  /** @param {Ledger} ledger */
  constructor(ledger) {
    this.ledger = ledger;
    this.scrolls = false;
    this.top = Infinity; // pixels above what is in sight; at first the lowest row is
    ledger.element.addEventListener("scroll", () => {
      const { scrollTop } = ledger.element;
      if (!this.scrolls || Math.abs(scrollTop - this.top) < 1) return;
      this.top = scrollTop;
      this.moved();
    });
  }

  /** Pixels of a row that is not to be lower. */
  get least() {
    return (coarse.matches ? TOUCHED_ROW : READ_ROW) * this.ledger.scales.large;
  }

  /** Whether rows are lower than that where all are in sight. */
  get isCrowded() {
    return this.ledger.rows.count * this.least > this.high + 1;
  }

  /** Take on another size, other rows, or that each is to be read. */
  fit() {
    const { element, rows, scales, panel } = this.ledger;
    this.high = element.clientHeight;
    if (!this.high) return;
    const begins = !this.scrolls;
    this.scrolls = scales.single && this.isCrowded;
    this.whole = this.scrolls ? rows.count * this.least : this.high;
    element.classList.toggle("scrolls", this.scrolls);
    element.style.setProperty("--seen", `${this.high}px`);
    element.style.setProperty("--whole", `${this.whole}px`);
    panel.element.style.setProperty("--bar", `${element.offsetWidth - element.clientWidth}px`);
    this.go(this.top);
    if (begins) this.reveal(this.ledger.activeRow);
  }

  /** Scroll to so many pixels from the top, or as near as that can be. */
  go(top) {
    if (!this.scrolls) return;
    this.top = Math.min(Math.max(top, 0), this.whole - this.high);
    this.ledger.element.scrollTop = this.top;
  }

  /** Pixels below what is in sight. */
  get below() {
    return this.scrolls ? this.whole - this.high - this.top : 0;
  }

  /** The rows that are in sight, even in part: the first, and the one after the last. */
  get range() {
    const { count } = this.ledger.rows;
    if (!this.scrolls) return [0, count];
    return [Math.floor(this.below / this.least), Math.min(Math.ceil((this.below + this.high) / this.least), count)];
  }

  /** Bring a row into sight. @returns {boolean} whether it was not */
  reveal(row) {
    if (!this.scrolls || row < 0) return false;
    const { top, least, high } = this;
    const own = (this.ledger.rows.count - 1 - row) * least;
    const around = Math.min(AROUND * least, (high - least) / 2);
    if (own < top) this.go(own - around);
    else if (own + least > top + high) this.go(own + least + around - high);
    return this.top !== top;
  }

  /** Other rows are in sight. */
  moved() {
    this.ledger.redraw(true);
    this.ledger.panel.rail.redraw();
  }
}

/** Show each row as high as one can read it, or all of them. @param {Player} player @param {boolean} single */
export function setSingle(player, single) {
  player.scales.single = single;
  player.resized();
  player.settle();
}

/** Offer it where rows are low. @param {Player} player */
export function offerRows(player) {
  const button = byId("rows");
  button.hidden = !player.visible.some(({ ledger }) => ledger.window.isCrowded);
  button.setAttribute("aria-pressed", String(player.scales.single));
}
