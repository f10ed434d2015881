/**
 * Stops: moments that are worth a look, each with a sentence. A button leads to the next one, and marks
 * under the slider to each.
 */

import { setText } from "./format.js";
import { textWidth } from "./ruler.js";

/**
 * @typedef {{name: string, tick: number, words: string}} Stop
 */

const SAME_TICK = 1e-6; // ticks that are rounding
const [NAME_SIZE_OF_MARK, APART_MARKS] = [11.5, 10]; // pixels of a mark's letters; between two of them
const [NAME_SIZE_OF_BUTTON, STEP_OF_WIDTH] = [14, 12]; // pixels of the button's letters; of its width
const THUMB = 9; // pixels from the slider's edge to its thumb's middle

/** Stops as they follow each other; those of one moment are one. @param {Stop[]} stops @returns {Stop[]} */
export function inOrder(stops) {
  const known = new Map();
  for (const stop of stops) known.set(stop.tick, [...(known.get(stop.tick) ?? []), stop]);
  const joined = (own, key, between) => [...new Set(own.map((stop) => stop[key]))].join(between);
  return [...known]
    .map(([tick, own]) => ({ name: joined(own, "name", ", "), tick, words: joined(own, "words", " ") }))
    .sort((a, b) => a.tick - b.tick);
}

/** Where a position is among stops: the last one up to it; -1 before all. @param {Stop[]} stops @param {number} tick */
export function stopAt(stops, tick) {
  return stops.findLastIndex((stop) => stop.tick <= tick + SAME_TICK);
}

/** The stop that a position is on, if any. @param {Stop[]} stops @param {number} tick */
export function stopOn(stops, tick) {
  return stops.find((stop) => Math.abs(stop.tick - tick) <= SAME_TICK);
}

/** The left edges of names, each over its moment, as near to its middle as those beside it allow; or the first
 * name for which there is no room.
 * @param {number[]} at where the moments are @param {number[]} widths of names @param {number} room
 * @returns {number[] | number}
 */
export function edgesOfNames(at, widths, room) {
  const most = [...at];
  for (let i = at.length - 1; i >= 0; i--) most[i] = Math.min(at[i], (most[i + 1] ?? room) - widths[i]);
  const lefts = [];
  let end = 0;
  for (const [i, wide] of widths.entries()) {
    const least = Math.max(at[i] - wide, end);
    if (least > most[i]) return i;
    lefts.push(Math.min(Math.max(at[i] - wide / 2, least), most[i]));
    end = lefts[i] + wide;
  }
  return lefts;
}

/** Button, sentence and marks of a player. */
export class Stops {
  /** @param {any} player */
  constructor(player) {
    this.player = player;
    this.button = document.getElementById("next-stop");
    this.words = document.getElementById("stop-words");
    this.marks = document.getElementById("marks");
    this.button.addEventListener("click", () => player.seek(this.next.tick));
    this.marks.addEventListener("click", ({ target }) => {
      const stop = this.known[Number(/** @type {HTMLElement} */ (target).dataset.stop)];
      if (stop) player.seek(stop.tick);
    });
    this.room = 0; // pixels that the marks are wide
    new ResizeObserver(() => {
      this.room = this.marks.clientWidth;
      this.place();
    }).observe(this.marks);
  }

  /** The stop after the present one; after the last the first. @returns {Stop} */
  get next() {
    const { stops, tick } = this.player;
    return stops[stopAt(stops, tick) + 1] ?? stops[0];
  }

  show() {
    const { stops, tick, ticks } = this.player;
    if (stops !== this.known || ticks !== this.ticks) {
      this.known = stops;
      this.ticks = ticks;
      // As wide as the longest name, in steps: what stands beside the button stays where it is.
      const widest = Math.max(...stops.map(({ name }) => textWidth(name, NAME_SIZE_OF_BUTTON)));
      /** @type {HTMLElement} */ (this.button.lastElementChild).style.minWidth =
        `${STEP_OF_WIDTH * Math.ceil(widest / STEP_OF_WIDTH)}px`;
      this.place();
    }
    const { name } = this.next;
    if (this.button.dataset.name !== name) {
      this.button.dataset.name = name;
      this.button.lastElementChild.textContent = name;
      this.button.title = `To the next stop: ${name}`;
    }
    setText(this.words, stopOn(stops, tick)?.words ?? "");
  }

  /** Put each mark where its moment is on the slider; names that would meet move aside, or one is left out. */
  place() {
    if (!this.known) return;
    const { room } = this;
    const { min, max } = /** @type {HTMLInputElement} */ (document.getElementById("scrub"));
    const placeOf = ({ tick }) =>
      THUMB + ((tick - Number(min)) / Math.max(Number(max) - Number(min), 1)) * (room - 2 * THUMB);
    const widths = this.known.map(({ name }) => textWidth(name, NAME_SIZE_OF_MARK) + APART_MARKS);
    const edgesWith = (named) =>
      edgesOfNames(
        named.map((i) => placeOf(this.known[i])),
        named.map((i) => widths[i]),
        room,
      );
    // The fewest are left out, and of those that make room the shortest.
    const byWidth = [...widths.keys()].sort((a, b) => widths[a] - widths[b]);
    let named = [...widths.keys()];
    let lefts = edgesWith(named);
    while (typeof lefts === "number") {
      const without = byWidth.filter((i) => named.includes(i)).map((out) => named.filter((i) => i !== out));
      named = without.find((some) => typeof edgesWith(some) !== "number") ?? without.at(-1);
      lefts = edgesWith(named);
    }
    const leftOf = new Map(named.map((i, place) => [i, lefts[place]]));
    const marks = /** @type {HTMLElement[]} */ (Array.from(this.marks.children));
    while (marks.length > 2 * this.known.length) marks.pop().remove();
    this.known.forEach((stop, i) => {
      if (!marks[2 * i]) {
        marks.push(...["i", "span"].map((tag) => document.createElement(tag)));
        for (const element of marks.slice(-2)) element.dataset.stop = String(i);
        this.marks.append(...marks.slice(-2));
      }
      const [line, text] = marks.slice(2 * i);
      line.style.left = `${placeOf(stop)}px`;
      text.style.left = `${(leftOf.get(i) ?? 0) + APART_MARKS / 2}px`;
      setText(text, leftOf.has(i) ? stop.name : "");
    });
  }
}
