/** Player of pipeline schedules: one current time for all of them, and the views that follow it. */

import { Controls, byId } from "./controls.js";
import { countText } from "./format.js";
import { Lanes } from "./lanes.js";
import { LongList, fillRow } from "./longlist.js";
import { NOTHING, PipelineModel } from "./pipeline_model.js";
import { Playback, start } from "./playback.js";
import { inOrder } from "./stops.js";
import { Tip } from "./tip.js";

const SCRUB_TICKS = 6000; // of the whole
const LASTS = [120, 60, 30, 15, 8, 4, 2]; // seconds that the whole may last
const SAME = 1e-9; // of the whole: a tick that near a moment is meant to be there

/** One schedule: its heading, counters and lanes. */
class PipelinePanel {
  constructor(model, scales, events) {
    this.model = model;
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("panel"));
    this.element = /** @type {HTMLElement} */ (template.content.firstElementChild.cloneNode(true));
    this.element.setAttribute("aria-label", model.title_text);
    this.part(".title").textContent = model.title_text;
    this.part(".subtitle").textContent = model.subtitle;
    const solo = this.part(".solo");
    solo.textContent = String(model.id + 1);
    solo.setAttribute("aria-label", `Show ${model.title_text} alone`);
    solo.addEventListener("click", () => events.solo(model.id));
    this.lanes = new Lanes(this.part(".lanes"), model, scales);
    const all = `${model.subtitle}; makespan ${model.timeText(model.makespan)}, ${model.bubble} of all devices' time idle`;
    this.part(".lanes").setAttribute(
      "aria-label",
      `${model.title_text}: ${all}. Arrow down and up choose a device, Enter a block.`,
    );
    this.device = 0;
    this.listen(events);
  }

  /** @param {string} selector @returns {any} */
  part(selector) {
    return this.element.querySelector(selector);
  }

  listen(events) {
    const { lanes, model } = this;
    const holder = this.part(".lanes");
    const found = (event) => {
      const device = lanes.deviceAt(event.clientY);
      if (device === NOTHING || !lanes.isInLanes(event.clientY)) return NOTHING;
      return model.runningAt(device, lanes.timeAt(event.clientX));
    };
    holder.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const block = found(event);
      if (block !== NOTHING) return void events.choose(this, block);
      holder.setPointerCapture(event.pointerId);
      this.dragging = true;
      events.seek(lanes.timeAt(event.clientX));
    });
    holder.addEventListener("pointermove", (event) => {
      if (event.buttons & 1 && this.dragging) events.seek(lanes.timeAt(event.clientX));
      const device = lanes.deviceAt(event.clientY);
      events.hover(event, this, device === NOTHING ? null : { device, time: lanes.timeAt(event.clientX) });
    });
    holder.addEventListener("pointerup", () => (this.dragging = false));
    holder.addEventListener("pointerleave", (event) => events.hover(event, this, null));
    holder.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (by) this.device = Math.min(Math.max(this.device + by, 0), model.devices - 1);
      else if (event.key !== "Enter") return;
      event.preventDefault();
      if (model.first[this.device] === model.first[this.device + 1]) return; // it does nothing
      const block = model.blockAt(this.device, lanes.time);
      events.choose(this, block === NOTHING ? model.first[this.device] : block);
    });
  }

  show(time) {
    const { model } = this;
    this.lanes.show(time);
    const now = Math.min(time, model.makespan);
    const busy = this.lanes.running.filter((block) => block !== NOTHING).length;
    this.write("time", `${model.timeText(now).split(" ")[0]} / ${model.timeText(model.makespan)}`);
    this.write("busy", `${countText(busy)} / ${countText(model.devices)}`);
    this.write("idle", `${(100 * model.idleAt(now)).toFixed(1)} %`);
    this.write("peak", model.heldText(model.peakAt(now)));
  }

  write(counter, text) {
    const element = this.part(`[data-counter="${counter}"]`);
    if (element.textContent !== text) element.textContent = text;
  }
}

class PipelinePlayer extends Playback {
  /** @param {any} data as unpacked */
  constructor(data) {
    super();
    this.models = data.traces.map((trace, id) => new PipelineModel(trace, id));
    const beside = this.models.flatMap((model) => [...model.idle, ...model.peakTexts]);
    this.scales = {
      large: 1,
      shown: data.traces.length,
      longest: data.longest,
      highest: data.highest,
      beside: [...new Set(beside)],
    };
    this.moments = Float64Array.from(new Set(this.models.flatMap((model) => Array.from(model.moments)))).sort();
    this.time = 0;
    this.tick = 0;
    this.solo = -1;
    this.motion = matchMedia("(prefers-reduced-motion: reduce)");
    this.speed = this.speeds[this.motion.matches ? 1 : 3];
    const events = {
      choose: (panel, block) => this.choose(panel, block),
      hover: (event, panel, at) => this.hover(event, panel, at),
      seek: (time) => this.seekTime(time),
      solo: (id) => this.setSolo(id),
    };
    this.panels = this.models.map((model) => new PipelinePanel(model, this.scales, events));
    this.chosen = this.panels[0];
    this.tip = new Tip();
    this.list = new LongList(byId("steps"), (row, index) => this.fill(row, index));
    this.listen();
    this.controls = new Controls(/** @type {any} */ (this));
    this.place();
  }

  listen() {
    byId("steps").addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row) return;
      const block = this.reading.model.first[this.reading.device] + Number(row.dataset.index);
      this.seekTime(this.reading.model.begin[block]);
      this.choose(this.panels[this.reading.model.id], block);
    });
    byId("node-close").addEventListener("click", () => this.choose(this.chosen, NOTHING));
    byId("policy").addEventListener("change", () => {
      const [id, device] = byId("policy").value.split(" ").map(Number);
      this.read(this.models[id], device);
    });
  }

  place() {
    const holder = byId("panels");
    holder.replaceChildren(...this.panels.map((panel) => panel.element));
    holder.classList.toggle("several", this.panels.length > 1);
    for (const model of this.models) {
      for (let device = 0; device < model.devices; device++) {
        const name = this.models.length > 1 ? `${model.title_text}, device ${device}` : `device ${device}`;
        byId("policy").append(new Option(name, `${model.id} ${device}`));
      }
    }
    const kinds = new Set(
      this.models.flatMap((model) => Array.from(model.kind).filter((_, i) => model.end[i] > model.begin[i])),
    );
    for (const item of byId("legend").querySelectorAll("[data-kinds]")) {
      item.hidden = !item.dataset.kinds.split(" ").some((kind) => kinds.has(Number(kind)));
    }
    this.read(this.models[0], 0);
    const scrub = byId("scrub");
    [scrub.min, scrub.max, scrub.step] = ["0", String(SCRUB_TICKS), "any"];
    new ResizeObserver(() => this.resized()).observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour(), {
      signal: this.life.signal,
    });
    this.resized();
    if (!this.controls.follow()) this.show(this.stops.find(({ name }) => name.includes("peak")).tick);
  }

  get visible() {
    return this.solo < 0 ? this.panels : [this.panels[this.solo]];
  }

  get ticks() {
    return SCRUB_TICKS + 1;
  }

  get share() {
    return this.tick / SCRUB_TICKS;
  }

  /** The stops of the chosen schedule. */
  get stops() {
    const { model } = this.chosen;
    if (this.known?.model !== model) this.known = { model, stops: this.stopsOf(model) };
    return this.known.stops;
  }

  stopsOf(model) {
    const firstOf = (...kinds) =>
      Math.min(
        ...Array.from(model.begin).filter((_, i) => kinds.includes(model.kind[i]) && model.end[i] > model.begin[i]),
      );
    /** @type {[string, number, string][]} */
    const times = [
      ["start", 0, "The first device begins; the others wait."],
      ["first recomputation", firstOf(1), "The first recomputation: a block's forward pass runs again."],
      ["first backward", firstOf(2, 3), "The first backward: from here on memory is given back."],
      ["peak", model.peakTime, `Memory is fullest on a device: ${model.heldText(model.peakAt(model.makespan))}.`],
      ["end", model.makespan, `The end: ${model.bubble} of all devices' time was idle.`],
    ];
    const known = times.filter(([, time]) => Number.isFinite(time));
    return inOrder(
      known.map(([name, time, words]) => ({ name, tick: (time / this.scales.longest) * SCRUB_TICKS, words })),
    );
  }

  get speeds() {
    return LASTS.map((seconds) => SCRUB_TICKS / seconds);
  }

  speedText(speed) {
    return `all in ${SCRUB_TICKS / speed} s`;
  }

  /** The last moment at which anything changes, up to a time. */
  momentBefore(time) {
    let [low, high] = [0, this.moments.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.moments[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return Math.max(low - 1, 0);
  }

  /** Show a tick: the moment that is meant, or any time between two. @param {number} tick */
  show(tick) {
    this.tick = Math.min(Math.max(tick, 0), SCRUB_TICKS);
    const near = SAME * this.scales.longest;
    const time = (this.tick / SCRUB_TICKS) * this.scales.longest;
    const moment = this.moments[this.momentBefore(time + near)];
    // Without motion, the cursor leaps from moment to moment.
    this.time = time - moment <= near || (this.playing && this.motion.matches) ? moment : time;
    for (const panel of this.visible) panel.show(this.time);
    const { model, device } = this.reading;
    this.list.follow(model.blockAt(device, this.time) - model.first[device]);
    this.controls.show();
  }

  seekTime(time) {
    this.seek((time / this.scales.longest) * SCRUB_TICKS);
  }

  /** Go to the next moment at which anything changes, or back to the last. */
  step(by) {
    const at = this.momentBefore(this.time);
    const place = by < 0 && this.time > this.moments[at] ? at : at + by;
    this.seekTime(this.moments[Math.min(Math.max(place, 0), this.moments.length - 1)]);
  }

  toPeak() {
    const times = [...new Set(this.visible.map(({ model }) => model.peakTime))];
    this.seekTime(times[(times.indexOf(this.time) + 1) % times.length]);
  }

  words() {
    return this.visible.map(({ model }) => model.words(Math.min(this.time, model.makespan))).join(" ");
  }

  where() {
    return `time ${this.models[0].timeText(this.time)}`;
  }

  address() {
    return `#time=${Number(this.time.toPrecision(15))}`;
  }

  /** Go where an address says. @param {URLSearchParams} parameters @returns {boolean} whether it says anything */
  follow(parameters) {
    const time = Number.parseFloat(parameters.get("time") ?? "");
    if (Number.isNaN(time)) return false;
    this.pause();
    this.seekTime(time);
    return true;
  }

  /** Take a schedule by its number. @param {number} id */
  pick(id) {
    this.setSolo(id);
  }

  /** Show one schedule alone; asked again, or for none, all of them. */
  setSolo(id) {
    this.solo = id === this.solo ? -1 : id;
    for (const panel of this.panels) {
      panel.element.hidden = this.solo >= 0 && panel.model.id !== this.solo;
      panel.part(".solo").setAttribute("aria-pressed", String(panel.model.id === this.solo));
    }
    this.scales.shown = this.visible.length;
    if (!this.visible.includes(this.chosen)) this.choose(this.visible[0], NOTHING);
    this.resized();
    this.show(this.tick);
  }

  /** Show what one device does. */
  read(model, device) {
    this.reading = { model, device };
    byId("policy").value = `${model.id} ${device}`;
    this.list.element.style.setProperty("--digits", String(this.startText(model, model.first[device + 1] - 1).length));
    this.list.reset(model.first[device + 1] - model.first[device]);
    this.list.refill();
    this.list.follow(model.blockAt(device, this.time) - model.first[device]);
  }

  startText(model, block) {
    return block < 0 || !model.kind.length ? "" : model.timeText(model.begin[block]).split(" ")[0];
  }

  fill(row, index) {
    const { model, device } = this.reading;
    const block = model.first[device] + index;
    row.dataset.kind = String(model.kind[block]);
    fillRow(row, [
      ["number", this.startText(model, block)],
      ["name", model.title(block)],
    ]);
  }

  /** Select a block of a panel; NOTHING for none. */
  choose(panel, block) {
    for (const other of this.panels) other.lanes.select(other === panel ? block : NOTHING);
    this.chosen = panel;
    byId("node").hidden = block === NOTHING;
    if (block === NOTHING) return;
    const { model } = panel;
    panel.device = model.device[block];
    byId("node-title").textContent = model.title(block);
    byId("node-facts").replaceChildren(
      ...model.facts(block).flatMap(([term, text]) => {
        const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
        [dt.textContent, dd.textContent] = [term, text];
        return [dt, dd];
      }),
    );
    byId("status").textContent = `${model.title(block)}: ${model
      .facts(block)
      .map(([term, text]) => `${term} ${text}`)
      .join("; ")}`;
    this.read(model, model.device[block]);
  }

  /** Leave what was entered last: the selection, the one schedule. */
  up() {
    if (this.chosen.lanes.selected !== NOTHING) this.choose(this.chosen, NOTHING);
    else if (this.solo >= 0) this.setSolo(this.solo);
  }

  hover(event, panel, at) {
    if (at === null || event.pointerType === "touch") return this.tip.hide();
    const { model } = panel;
    if (at.time > model.makespan) return this.tip.hide();
    const block = model.runningAt(at.device, at.time);
    const held = `device ${at.device} holds ${model.heldText(model.heldAt(at.device, at.time))}`;
    if (block === NOTHING) {
      const next =
        model.blockAt(at.device, at.time) === NOTHING ? model.first[at.device] : model.blockAt(at.device, at.time) + 1;
      const then =
        next < model.first[at.device + 1] ? [`then ${model.title(next)}`, `it waits ${model.waits(next)}`] : [];
      return this.tip.show(event, ["idle", held, ...then]);
    }
    const span = `${model.timeText(model.begin[block])} to ${model.timeText(model.end[block])}`;
    return this.tip.show(event, [model.title(block), span, held, `waits ${model.waits(block)}`]);
  }

  resized() {
    for (const panel of this.visible) panel.lanes.redraw();
  }

  recolour() {
    for (const panel of this.panels) panel.lanes.redraw();
  }
}

start((data) => new PipelinePlayer(data));
