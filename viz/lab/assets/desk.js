/** Drag and drop on a lab without a graph: opens a dropped graph, trace or memory snapshot. */

import { byId } from "../../player/assets/controls.js";
import { sizeText } from "../../player/assets/format.js";
import { explainHost } from "../../player/assets/host.js";
import { start } from "../../player/assets/playback.js";
import { fresh } from "../../player/assets/fresh.js";
import { Lab } from "./lab.js";
import { dataOfPlan, readPlan } from "./planned.js";
import { FormatError } from "./reader.js";
import { LARGEST_FILE, PICKLE, readMeasured } from "./snapshots.js";

const MOST_TEXT = 2 ** 28; // bytes of a document: some browsers have no longer texts
const EMPTY_DOCUMENT = /^(null|\[\s*\]|\{\s*\})?\s*$/; // a file that could have been of any kind

/** The documents opened so far: they survive the restart of the page. */
const page = /** @type {any} */ (window);
const given = (page.given ??= { plan: null, measured: null, device: 0, data: null });

class Desk {
  /** @param {any} constants of Python's */
  constructor(constants) {
    this.constants = constants;
    this.root = document.documentElement;
    this.said = byId("desk-said");
    const files = byId("desk-files");
    byId("desk-open").addEventListener("click", () => files.click());
    files.addEventListener("change", () => this.take(Array.from(files.files)));
    byId("desk-close").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => this.key(event), true);
    this.dragging();
  }

  dragging() {
    const hasFiles = (event) => event.dataTransfer.types.includes("Files"); // and is no text or link
    for (const kind of ["dragenter", "dragover"]) {
      window.addEventListener(kind, (event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        this.root.classList.add("dragging");
      });
    }
    window.addEventListener("dragleave", (event) => event.relatedTarget ?? this.root.classList.remove("dragging"));
    window.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.root.classList.remove("dragging");
      this.take(Array.from(event.dataTransfer.files));
    });
  }

  key(event) {
    if (event.key !== "Escape" || !this.root.classList.contains("asking")) return;
    event.stopPropagation();
    this.close();
  }

  close() {
    this.root.classList.remove("asking");
    this.said.textContent = "";
    byId("open").focus();
  }

  /** Read files and play them; on an error, show it and keep the current page.
   * @param {File[]} files
   */
  async take(files) {
    if (!files.length) return;
    const read = {};
    try {
      for (const file of files) Object.assign(read, await this.read(file));
      if (read.plan) Object.assign(read, { measured: read.measured ?? null, device: 0 });
      if (read.measured) read.device = 0;
      read.data = this.dataOf({ ...given, ...read }); // what cannot be shown fails here
    } catch (error) {
      this.say(
        error instanceof FormatError
          ? /** @type {Error} */ (error).message
          : `It could not be read: ${/** @type {Error} */ (error).message}`,
      );
      return;
    } finally {
      byId("desk-files").value = "";
    }
    Object.assign(given, read);
    if (given.plan) this.anew(Boolean(read.plan));
    else if (given.measured)
      this.say(`${this.measuredWords()}\nNow the graph or the trace that it is to be drawn over.`);
  }

  /** @param {File} file */
  async read(file) {
    if (file.size > LARGEST_FILE) {
      throw new FormatError(
        `${file.name}: ${sizeText(file.size)}; at most ${sizeText(LARGEST_FILE)} are read: record fewer events (max_entries=100000)`,
      );
    }
    const content = new Uint8Array(await file.arrayBuffer());
    // White space may stand before a document's first brace, and a mark of its encoding.
    const begin = new TextDecoder().decode(content.subarray(0, 64)).trimStart();
    if (content.length <= 64 && EMPTY_DOCUMENT.test(begin)) {
      const legal = "a graph, a trace, a schedule, a snapshot, or a list of pairs of seconds and bytes";
      throw new FormatError(`${file.name}: nothing is in it; expected ${legal}`);
    }
    if (content[0] === PICKLE || !begin.startsWith("{"))
      return { measured: this.checked(readMeasured(content, file.name)) };
    if (file.size > MOST_TEXT)
      throw new FormatError(
        `${file.name}: ${sizeText(file.size)}; of a document at most ${sizeText(MOST_TEXT)} are read`,
      );
    return { plan: readPlan(this.text(content, file.name), file.name, this.constants.dtypes) };
  }

  /** A document's bytes as text. */
  text(content, name) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(content);
    } catch {
      throw new FormatError(`${name} is not a complete JSON document (it is no UTF-8); was the file cut short?`);
    }
  }

  /** The data of a page for the opened documents; null without a plan. */
  dataOf({ plan, measured, device }) {
    return plan && dataOfPlan(plan, measured && { ...measured.of(device) }, this.constants);
  }

  /** A reading whose first device can be drawn. */
  checked(reading) {
    reading.of(0);
    return reading;
  }

  measuredWords() {
    const { source, what, held } = given.measured.of(given.device);
    return `${source}: ${what}, at most ${sizeText(held.reduce((a, b) => Math.max(a, b), 0))} at once.`;
  }

  /** @param {string} words */
  say(words) {
    this.said.textContent = words;
    if (!this.root.classList.contains("empty")) this.root.classList.add("asking");
    byId("desk-open").focus();
  }

  /** Restart the page with the opened documents; the old player's listeners are removed. */
  anew(isOther) {
    if (page.player) {
      page.player.life?.abort(); // a desk has none
      page.player.playing = false;
      clearTimeout(page.player.settling);
      for (const due of [page.player.saying, page.player.listing]) due?.cancel();
    }
    if (isOther) history.replaceState(null, "", "#");
    fresh.dataset.theme = this.root.dataset.theme;
    const html = `<!doctype html>${fresh.outerHTML}`;
    document.open();
    document.write(html);
    document.close();
  }

  /** Play the opened documents. @returns {Lab | Desk} */
  begin() {
    const { plan, measured, device, data } = given;
    given.data = null;
    this.root.classList.toggle("empty", !plan);
    byId("desk").role = plan ? "dialog" : "main";
    if (!plan) return this;
    this.opener();
    document.title = document.querySelector("h1").textContent = `${plan.graph.name}: ${plan.path}`;
    byId("save-page").hidden = true; // what was opened is in no file of the page
    explainHost(); // whatever is dropped next may send values there
    const lab = new Lab(data);
    if (measured && measured.names.length > 1) this.devices(measured.names, device);
    return lab;
  }

  /** The way back to the files. */
  opener() {
    const button = document.createElement("button");
    Object.assign(button, {
      type: "button",
      id: "open",
      textContent: "open",
      title: "Open another file; or drop it anywhere",
    });
    button.addEventListener("click", () => {
      this.root.classList.add("asking");
      byId("desk-open").focus();
    });
    byId("search-open").before(button);
    byId("desk-close").hidden = false;
  }

  /** A choice among the devices that were measured. */
  devices(names, device) {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Device that was measured");
    select.append(...names.map((name, i) => new Option(name, String(i), false, i === device)));
    select.addEventListener("change", () => {
      const other = Number(select.value);
      try {
        given.data = this.dataOf({ ...given, device: other });
      } catch (error) {
        select.value = String(given.device);
        this.say(/** @type {Error} */ (error).message);
        return;
      }
      given.device = other;
      this.anew(false);
    });
    byId("measured").append(select);
  }
}

start((constants) => new Desk(constants).begin());
