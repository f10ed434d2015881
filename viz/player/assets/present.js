/**
 * Presentation mode: full screen, letters legible from the last row, and a sequence of stops,
 * selected by their numbers or by the two keys of a clicker. Playback pauses at each.
 */

import { byId } from "./controls.js";
import { stopAt, stopOn } from "./stops.js";

const STAGE = [1280, 720]; // pixels of a screen on which letters are LETTERS times as large as usual
const LETTERS = 1.6;
const LARGEST = 6;
const FADES = 2500; // milliseconds without a move after which the dot goes

export class Presentation {
  /** @param {any} player has stops: what is there, in order, as { name, tick } */
  constructor(player) {
    this.player = player;
    this.root = document.documentElement;
    this.isOn = false;
    this.build();
    const key = (event) => this.key(event);
    window.addEventListener("keydown", key, true);
    window.addEventListener("resize", () => this.isOn && this.fit());
    document.addEventListener("fullscreenchange", () => document.fullscreenElement || this.end());
    for (const name of ["pointermove", "pointerdown"])
      window.addEventListener(name, (event) => this.point(event), true);
    for (const name of ["pointercancel", "pointerleave"]) this.root.addEventListener(name, () => this.fade());
  }

  /** What only a presentation has: a button to begin, the stops, a button to end, a dot, the dark. */
  build() {
    const add = (tag, id, parent) => Object.assign(parent.appendChild(document.createElement(tag)), { id });
    const begin = add("button", "present", document.querySelector(".tools"));
    document.querySelector("#help").before(begin);
    Object.assign(begin, {
      type: "button",
      textContent: "present",
      title: "Present: the whole screen, large letters (F)",
    });
    begin.addEventListener("click", () => this.begin());
    const transport = document.querySelector(".transport");
    this.list = add("nav", "stops", transport);
    this.list.setAttribute("aria-label", "Stops");
    this.list.addEventListener("click", ({ target }) => target.dataset.stop && this.go(Number(target.dataset.stop)));
    const end = add("button", "present-end", transport);
    Object.assign(end, { type: "button", className: "icon", title: "End the presentation (Esc)" });
    end.setAttribute("aria-label", "End the presentation");
    end.append(byId("help-close").firstElementChild.cloneNode(true));
    end.addEventListener("click", () => this.end());
    this.dot = add("i", "laser", document.body);
    this.dark = add("div", "dark", document.body);
    this.dot.hidden = this.dark.hidden = true;
    this.dark.addEventListener("click", () => this.darken(false));
  }

  begin() {
    if (this.isOn) return;
    this.isOn = true;
    /** @type {HTMLElement | null} */ (document.activeElement)?.blur(); // the keys are the presentation's
    this.root.classList.add("staged", "presenting");
    // Where there is no such thing, or it is not allowed, the page fills its window.
    this.root.requestFullscreen?.()?.catch(() => {});
    this.fit();
    byId("status").textContent = "Presenting. Page down: the next stop. Escape: the end.";
  }

  end() {
    if (!this.isOn) return;
    this.isOn = false;
    this.darken(false);
    this.fade();
    this.root.classList.remove("staged", "presenting");
    if (document.fullscreenElement) document.exitFullscreen();
    this.enlarge(1);
    byId("present").focus();
  }

  /** Let letters be as large as the screen allows. */
  fit() {
    const share = Math.min(innerWidth / STAGE[0], innerHeight / STAGE[1]);
    this.enlarge(Math.min(Math.max(LETTERS * share, 1), LARGEST));
  }

  enlarge(large) {
    this.root.style.setProperty("--large", String(large));
    this.player.scales.large = large;
    this.player.recolour();
    this.show();
  }

  /** Say where among the stops the player is. */
  show() {
    if (!this.isOn) return;
    const { stops, tick } = this.player;
    const words = stops.map(({ name }) => name).join();
    if (words !== this.words) {
      this.words = words;
      const button = ({ name }, i) => {
        const element = Object.assign(document.createElement("button"), {
          type: "button",
          title: `${name} (${i + 1})`,
        });
        element.dataset.stop = String(i);
        element.append(Object.assign(document.createElement("b"), { textContent: String(i + 1) }), ` ${name}`);
        return element;
      };
      this.list.replaceChildren(...stops.map(button));
    }
    const now = stopAt(stops, tick);
    Array.from(this.list.children).forEach((element, i) => {
      if (i === now) element.setAttribute("aria-current", "step");
      else element.removeAttribute("aria-current");
    });
    const current = this.list.children[now];
    if (current)
      this.list.scrollLeft =
        current.offsetLeft - this.list.offsetLeft - (this.list.clientWidth - current.offsetWidth) / 2;
  }

  /** Go to a stop, if there is one. @param {number} index */
  go(index) {
    const stop = this.player.stops[index];
    if (stop) this.player.seek(stop.tick);
  }

  /** To the next stop, or to the one before: that of the present chapter first. */
  turn(by) {
    const { stops, tick } = this.player;
    const now = stopAt(stops, tick);
    if (by > 0) this.go(now + 1);
    else this.go(now >= 0 && !stopOn(stops, tick) ? now : Math.max(now - 1, 0));
  }

  darken(dark) {
    if (dark) this.player.pause();
    this.dark.hidden = !dark;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (event.target.closest?.("select, input:not([type=range]), textarea")) return;
    if (!this.act(event.key.length === 1 ? event.key.toLowerCase() : event.key)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  /** Do what a key means. @returns {boolean} whether it means anything */
  act(key) {
    if (!this.isOn) {
      if (key === "f") this.begin();
      return key === "f";
    }
    if (!this.dark.hidden) {
      this.darken(false);
      return true;
    }
    const actions = {
      PageDown: () => this.turn(1),
      PageUp: () => this.turn(-1),
      b: () => this.darken(true),
      ".": () => this.darken(true),
      Escape: () => this.end(),
      f: () => this.end(),
      F5: () => {}, // by which clickers begin, and pages are loaded anew
    };
    if (/^[1-9]$/.test(key)) this.go(Number(key) - 1);
    else if (!Object.hasOwn(actions, key)) return false;
    actions[key]?.();
    return true;
  }

  /** The dot goes where the pointer is, and after a while without a move it goes. */
  point(event) {
    if (!this.isOn) return;
    this.dot.hidden = false;
    this.dot.style.transform = `translate(${event.clientX}px, ${event.clientY}px)`;
    clearTimeout(this.fading);
    this.fading = setTimeout(() => this.fade(), FADES);
  }

  fade() {
    clearTimeout(this.fading);
    this.dot.hidden = true;
  }
}
