/** Playback controls of a player: buttons, keys and the URL. */

import { framePng, frameSvg, save } from "./export.js";
import { savedPage } from "./fresh.js";
import { Presentation } from "./present.js";
import { Printing } from "./print.js";
import { setSingle } from "./rows.js";
import { Stops } from "./stops.js";

/**
 * @import { Player } from "./main.js"
 */

export const SPEEDS = [1, 2, 4, 8, 16, 30, 60, 120, 240, 500, 1000, 2000, 4000];
const LONGEST_PLAY = 60; // seconds that the speed at the beginning makes of a trace, at most

/** The speed at which a trace of some ticks begins, in ticks a second. */
export function firstSpeed(ticks, reduced) {
  if (reduced) return 2;
  return SPEEDS.find((speed) => speed >= 4 && ticks / speed <= LONGEST_PLAY) ?? SPEEDS.at(-1);
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/** The parameters of a URL besides the step. @param {string} hash */
function besidesStep(hash) {
  return hash.replace(/^#?[^&]*/, "");
}

export class Controls {
  /** @param {Player} player or another, without the controls that its page does not have */
  constructor(player) {
    this.player = player;
    this.scrub = byId("scrub");
    this.playButton = byId("play");
    this.speed = byId("speed");
    this.speed.append(...player.speeds.map((speed) => new Option(player.speedText(speed), String(speed))));
    this.speed.value = String(player.speed);
    this.speed.addEventListener("change", () => (player.speed = Number(this.speed.value)));
    this.scrub.addEventListener("input", () => player.seek(Number(this.scrub.value)));
    this.buttons();
    this.stops = new Stops(player);
    this.presentation = new Presentation(player);
    this.printing = new Printing(player);
    document.addEventListener("keydown", (event) => this.key(event));
    const foot = document.querySelector("footer");
    new ResizeObserver(() => document.documentElement.style.setProperty("--foot", `${foot.offsetHeight}px`)).observe(
      foot,
    );
    window.addEventListener("hashchange", () => {
      this.follow();
      this.write(false);
    });
  }

  buttons() {
    const { player } = this;
    const actions = {
      play: () => player.toggle(),
      first: () => player.seek(-1),
      back: () => player.step(-1),
      next: () => player.step(1),
      last: () => player.seek(player.ticks - 1),
      front: () => player.setFront(player.scales.front === "graph" ? "ledger" : "graph"),
      rows: () => setSingle(player, !player.scales.single),
      columns: () => this.toggleColumns(),
      theme: () => this.toggleTheme(),
      svg: () => save(new Blob([frameSvg(player.visible)], { type: "image/svg+xml" }), this.fileName("svg")),
      png: () => this.savePng(),
      "save-page": () => save(new Blob([savedPage(player.address())], { type: "text/html" }), this.fileName("html")),
      "tools-open": ({ currentTarget: button }) => (button.ariaExpanded = String(button.ariaExpanded === "false")),
      help: () => this.toggleHelp(),
      "help-close": () => byId("keys").close(),
    };
    for (const [id, action] of Object.entries(actions)) byId(id)?.addEventListener("click", action);
    if (byId("columns")) byId("columns").hidden = player.panels.length < 2;
    this.choices("axis", player.axes, (axis) => player.setAlign(axis));
    this.choices("scale", player.kinds, (kind) => player.setScale(kind));
  }

  /** Fill a select, if the page has it. @param {string} id @param {string[] | undefined} names */
  choices(id, names, onChange) {
    const select = byId(id);
    if (!select || !names) return;
    select.append(...names.map((name) => new Option(name, name)));
    select.addEventListener("change", () => onChange(select.value));
  }

  /** Take the next entry of a select. */
  next(id) {
    const select = byId(id);
    if (!select) return;
    select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
    select.dispatchEvent(new Event("change"));
  }

  async savePng() {
    const image = await framePng(this.player.visible);
    if (image) save(image, this.fileName("png"));
    else byId("status").textContent = "This frame is larger than an image can be here: save it as SVG.";
  }

  fileName(suffix) {
    const names = this.player.visible.map((panel) => panel.model.policy.replace(/\W+/g, "_"));
    return `${names.join("-").slice(0, 60)}-${this.player.tick < 0 ? "start" : `step-${this.player.visible[0].step}`}.${suffix}`;
  }

  toggleHelp() {
    const dialog = byId("keys");
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }

  /** All policies side by side, or as they are at first. */
  toggleColumns() {
    const { player } = this;
    player.differences?.close();
    const side = !byId("panels").classList.contains("side") || player.solo >= 0;
    byId("panels").classList.toggle("side", side);
    byId("columns").setAttribute("aria-pressed", String(side));
    const solo = side || player.opening < 0 ? -1 : player.chosen.model.id;
    if (solo === player.solo) player.resized();
    else player.setSolo(solo);
  }

  toggleTheme() {
    const root = document.documentElement;
    const dark = getComputedStyle(root).colorScheme === "dark";
    root.dataset.theme = dark ? "light" : "dark";
    this.player.recolour();
  }

  /** Show where the player is. */
  show() {
    const { player } = this;
    this.presentation.show();
    this.stops.show();
    const now = String(player.tick);
    if (this.scrub.value !== now) this.scrub.value = now;
    this.scrub.style.setProperty("--share", String(player.share));
    this.scrub.setAttribute("aria-valuetext", player.where());
    const playing = String(player.playing);
    if (this.playButton.dataset.playing !== playing) {
      this.playButton.dataset.playing = playing;
      this.playButton.setAttribute("aria-label", player.playing ? "Pause" : "Play");
    }
  }

  /** Show what the scale is: after a change of alignment. */
  rescale() {
    const { player } = this;
    this.scrub.min = "-1";
    this.scrub.max = String(player.ticks - 1);
    this.stops.show();
    const axes = byId("axis");
    if (axes.options.length !== player.axes.length)
      axes.replaceChildren(...player.axes.map((name) => new Option(name, name)));
    axes.value = player.align;
    byId("scale").value = player.scales.kind;
    byId("front").setAttribute("aria-pressed", String(player.scales.front === "graph"));
  }

  /** Go where the address says. @returns {boolean} whether it says anything */
  follow() {
    const saved = document.documentElement.dataset.at ?? "";
    return this.player.follow(new URLSearchParams(location.hash.slice(1) || saved));
  }

  /** Write into the address where the player is; only on a pause, as browsers allow it seldom. What
   * is more than another step can be gone back to. @param {boolean} [anew] whether it can
   */
  write(anew = true) {
    const address = this.player.address();
    const another = anew && besidesStep(address) !== besidesStep(location.hash);
    try {
      history[another ? "pushState" : "replaceState"](null, "", address);
    } catch {
      // Some viewers of attachments allow none: then there is no link to this step.
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (byId("keys").open && event.key !== "?") return;
    const { target, key } = event;
    const isControl = target.closest?.("button, select, a, summary");
    if (isControl && (key === " " || key === "Enter")) return;
    if (target.closest?.("select")) return;
    if (!this.act(key.length === 1 ? key.toLowerCase() : key)) return;
    event.preventDefault();
  }

  /** Handle a key. @returns {boolean} whether it means anything */
  act(key) {
    const { player } = this;
    const actions = {
      " ": () => player.toggle(),
      ArrowRight: () => player.step(1),
      PageDown: () => player.step(1),
      ArrowLeft: () => player.step(-1),
      PageUp: () => player.step(-1),
      Home: () => player.seek(-1),
      End: () => player.seek(player.ticks - 1),
      p: () => player.toPeak(),
      g: () => this.press("front"),
      x: () => this.next("axis"),
      y: () => this.next("scale"),
      r: () => this.press("rows"),
      c: () => this.press("columns"),
      v: () => this.press("difference"),
      t: () => this.toggleTheme(),
      "+": () => this.faster(1),
      "-": () => this.faster(-1),
      "?": () => this.toggleHelp(),
      Escape: () => this.dismiss() || player.up(),
      Backspace: () => player.up(),
    };
    if (/^\d$/.test(key)) {
      const id = Number(key) - 1;
      if (id >= player.panels.length || player.panels.length < 2) return false;
      player.pick(id);
      return true;
    }
    if (!Object.hasOwn(actions, key)) return false;
    actions[key]();
    return true;
  }

  /** Close what a button has opened over the page. @returns {boolean} whether there is such a thing */
  dismiss() {
    const open = document.querySelectorAll(':is(#tools-open, #lab-sharing)[aria-expanded="true"]');
    const button = /** @type {HTMLElement | undefined} */ (Array.from(open).find((each) => each.checkVisibility()));
    button?.click();
    button?.focus();
    return Boolean(button);
  }

  /** Activate a button, if there is one. */
  press(id) {
    const button = byId(id);
    if (button && !button.hidden) button.click();
  }

  faster(by) {
    const { speeds, speed } = this.player;
    const index = Math.min(Math.max(speeds.indexOf(speed) + by, 0), speeds.length - 1);
    this.player.speed = speeds[index];
    this.speed.value = String(speeds[index]);
  }
}
