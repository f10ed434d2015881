/** Playback: play, pause, seek. */

import { dataOf } from "./columns.js";
import { SPEEDS, byId } from "./controls.js";
import { countText } from "./format.js";
import { followFrame } from "./framed.js";
import { stopAt, stopOn } from "./stops.js";

/**
 * @import { Controls } from "./controls.js"
 * @import { Stop } from "./stops.js"
 */

const LONGEST_FRAME = 250; // milliseconds that one frame may move ahead
const SETTLED = 350; // milliseconds without a move after which a pause is spoken and written down

/**
 * What all players do.
 */
export class Playback {
  constructor() {
    this.tick = -1;
    this.speed = 1; // ticks a second
    this.playing = false;
    this.controls = /** @type {Controls} */ (null);
    this.life = new AbortController(); // of listeners that do not go with the page's elements
  }

  // What each player has of its own -----------------------------------------------------------------

  /** How many positions there are. */
  get ticks() {
    return 0;
  }

  /** Keep a position, and show it. @param {number} tick */
  show(tick) {
    this.tick = tick;
  }

  /** The moments that are worth a look. @returns {Stop[]} */
  get stops() {
    return [];
  }

  /** What is there, in words. */
  words() {
    return "";
  }

  /** Draw anew in other colours. */
  recolour() {}

  // What all of them do -----------------------------------------------------------------------------

  get speeds() {
    return SPEEDS;
  }

  speedText(speed) {
    return `${countText(speed)} / s`;
  }

  /** How much of the whole is over. */
  get share() {
    return (this.tick + 1) / this.ticks;
  }

  /** Where playing pauses: at the next stop of a presentation, or at the end. */
  get last() {
    return Math.min(this.until ?? Infinity, this.ticks - 1);
  }

  /** Whether there is nothing more to play. */
  get ended() {
    return this.tick >= this.last;
  }

  /** The position that playing comes to, which may lead back. @param {number} tick */
  wrapped(tick) {
    return tick;
  }

  /** Go to a position at the user's request; playback stops. @param {number} tick */
  seek(tick) {
    this.playing = false;
    this.show(tick);
    this.settle();
  }

  /** Go on by a step, or back. @param {number} by 1 or -1 */
  step(by) {
    this.seek(this.tick + by);
  }

  /** After a while without a move, say and write down where this is. */
  settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      if (this.playing) return;
      byId("status").textContent = [stopOn(this.stops, this.tick)?.words, this.words()].filter(Boolean).join(" ");
      this.controls.write();
    }, SETTLED);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    this.until = undefined;
    if (this.ended) this.show(-1);
    if (this.controls.presentation.isOn) this.until = this.stops[stopAt(this.stops, this.tick) + 1]?.tick;
    this.playing = true;
    this.controls.show();
    let before = performance.now();
    let due = 0;
    // Frames of a run that was paused and begun anew before they came belong to nobody.
    const run = (this.run = {});
    const frame = (now) => {
      if (!this.playing || this.run !== run) return;
      // Behind a hidden tab time goes on, and playing does not.
      due += (Math.min(Math.max(0, now - before), LONGEST_FRAME) / 1000) * this.speed;
      before = now;
      const whole = Math.floor(due);
      due -= whole;
      if (whole > 0) this.show(Math.min(this.wrapped(this.tick + whole), this.last));
      if (this.ended) this.pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    this.playing = false;
    this.controls.show();
    this.settle();
  }
}

/** Wait for the first frame in which everything is told its size, and drawn: who observes last is told last. */
function firstFrame() {
  return new Promise((done) => {
    const last = new ResizeObserver(() => {
      last.disconnect();
      setTimeout(done);
    });
    last.observe(document.documentElement);
  });
}

/** Make a player of the page's data, or leave the still and the table. @param {(data: any) => any} make */
export async function start(make) {
  const root = document.documentElement;
  try {
    // Labels are measured to fit: with the font that they are set in, unless the reader allows none.
    await Promise.allSettled([400, 600].map((weight) => document.fonts.load(`${weight} 12px Inter`)));
    const player = make(await dataOf(byId("data").textContent));
    /** @type {any} */ (window).player = player;
    root.dataset.begun = "true"; // from here on no error takes the page away
    followFrame(player);
    await firstFrame();
    root.dataset.ready = "true";
    performance.mark("ready");
    player.ready?.();
  } catch (error) {
    // The still and the table are there for this.
    root.classList.remove("js");
    byId("failed").hidden = false;
    throw error;
  }
}
