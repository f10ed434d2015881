/** The interactive planning page (lab): a player with a choice of budget and saved values. */

import { byId } from "../../player/assets/controls.js";
import { tipLines } from "../../player/assets/details.js";
import { countText, counted, setText } from "../../player/assets/format.js";
import { Player } from "../../player/assets/main.js";
import { stepOfTick, tickOfStep } from "../../player/assets/model.js";
import { ownName } from "../../player/assets/reasons.js";
import { cutTo } from "../../player/assets/ruler.js";
import { ADDRESSES } from "../../player/assets/scale.js";
import { middleOf } from "../../player/assets/tip.js";
import { stopOn } from "../../player/assets/stops.js";
import { Challenge } from "./challenge.js";
import { FrontierPlot } from "./frontier.js";
import { BarActs, toggled } from "./keeping.js";
import { connectControls } from "./lab_controls.js";
import { MemoryArea, ghostOf, valuesText } from "./memory_area.js";
import { Offers } from "./offers.js";
import { budgetOf, costText, numbersOf, percentText, subjectText } from "./texts.js";

/**
 * @import { Model } from "../../player/assets/data.js"
 * @import { Panel } from "../../player/assets/panel.js"
 * @import { Choice } from "./offers.js"
 */

const TWICE = 450; // milliseconds within which two clicks are one
const NAME_ROOM = 110; // pixels of a name on a button

export class Lab extends Player {
  /** The schedule of the page's trace: a policy's, or what is offered within its peak. */
  firstModels() {
    const { lab, graphs, traces, in_nodes: inNodes, opening } = this.data;
    const [trace] = traces;
    this.offers = new Offers(lab, graphs[trace.graph], trace, inNodes);
    const first = opening?.budget ? null : this.offers.named.find(({ name }) => name === trace.policy);
    this.asked = new Challenge(this.offers, document.querySelector(".card.lab"));
    const peak = () => this.offers.plan({ ...trace, key: "", order: [], steps: trace }).peak;
    const within = () => this.offers.within(opening?.budget ?? peak());
    this.choice = this.start = this.asked.isAsked ? this.offers.keeping([]) : (first ?? within());
    this.budget = null;
    return [this.offers.modelOf(this.choice, this.asked.budget)];
  }

  /** Called by the player when all else is there. */
  place() {
    this.past = [];
    this.coming = [];
    this.pointed = /** @type {PointerEvent} */ (null); // what was pressed last
    this.keeps = true; // whether a click keeps or drops
    this.more = false; // whether everything is shown, or what is seen first
    this.carded = /** @type {Choice} */ (null); // what the card is about
    document.documentElement.classList.add("planner");
    let [ghosts, other] = [new WeakMap(), null];
    this.scales.ghostOf = (shown) => {
      if (other !== this.asked.beside) [ghosts, other] = [new WeakMap(), this.asked.beside];
      if (!ghosts.has(shown)) ghosts.set(shown, ghostOf(other, this.offers.size, shown));
      return ghosts.get(shown);
    };
    this.plot = new FrontierPlot(byId("lab-plot"), this.offers, (choice, settled) => {
      this.drag(choice, settled);
    });
    this.scales.highest = Math.floor(Math.max(this.offers.highest, this.offers.stored.peak) / this.offers.size);
    if (this.scales.kind === "broken") this.scales.kind = "linear"; // there another's memory may stand
    this.data.highest = this.scales.highest;
    this.measurements?.fit();
    connectControls(this);
    this.area = new MemoryArea(this);
    this.scales.stacked = () => this.area.place();
    const unmarked = ["peak", "budget"]; // the line that is dragged says it
    this.scales.isMarked = (name, amount) =>
      !unmarked.includes(name) && (this.more || (name !== "store all" && !this.area.covers(amount)));
    this.filling.acts = new BarActs(this);
    this.tell(this.models[0]);
    super.place();
  }

  ready() {
    super.ready();
    this.offers.prepare(this.life.signal, () => this.isMoving);
  }

  key(event) {
    if (event.altKey || event.defaultPrevented || event.target.closest?.("input, select, dialog")) return;
    const key = event.key.toLowerCase();
    const command = event.ctrlKey || event.metaKey;
    if (command && key === "z") this.undo(...(event.shiftKey ? [this.coming, this.past] : [this.past, this.coming]));
    else if (command && key === "y") this.undo(this.coming, this.past);
    else if (!command && key === "k" && !event.shiftKey) this.setKeeps(!this.keeps);
    else if (!command && key === "k" && !byId("lab-flip").hidden) byId("lab-flip").click();
    else return;
    event.preventDefault();
  }

  /** Say in a sentence what this is about. */
  headline() {
    const { offers } = this;
    const { graph, lab } = offers;
    const isTrained = graph.operators.names.length > graph.forward_count;
    const least = Math.min(...[...offers.points, ...offers.named].map(({ peak }) => peak));
    let request = this.asked.hidden ? "Save less of it." : "Drag the line to use less.";
    if (least >= offers.stored.peak)
      request = lab.smallest >= offers.stored.peak ? "Nothing can use less." : "No plan found uses less.";
    setText(
      document.querySelector("h1"),
      `${lab.subject ?? subjectText(graph.name)} needs ${valuesText(offers, offers.stored.peak)} to ${isTrained ? "train" : "run"}. ${request}`,
    );
    const grey = this.asked.beside === offers.stored ? "everything is saved" : "the best answer";
    setText(
      byId("lab-about"),
      `Memory over one step, forward and back. Grey: ${grey}. Colour: this plan; hatched is computed again.`,
    );
  }

  /** Show everything that there is, or what is seen first. @param {boolean} more */
  setMore(more) {
    this.more = more;
    document.documentElement.classList.toggle("more", more);
    byId("lab-more").setAttribute("aria-pressed", String(more));
    if (more) this.setSharing(false);
    else if (this.scales.kind === ADDRESSES) this.setScale(this.usualKind);
    this.resized();
    this.settle();
  }

  /** Addresses only where everything is shown: the first screen says that grey is another plan. @param {string} kind */
  setScale(kind) {
    super.setScale(this.more || kind !== ADDRESSES ? kind : this.usualKind);
  }

  /** Offer the ways to share what is shown. @param {boolean} isOpen */
  setSharing(isOpen) {
    document.documentElement.classList.toggle("sharing", isOpen);
    byId("lab-sharing").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) byId("lab-link").focus();
  }

  // What is chosen --------------------------------------------------------------------------------

  /** Choose a schedule for good. @param {Choice} choice @param {number | null} [budget] in bytes */
  take(choice, budget = null) {
    if (choice.key === this.choice.key && budget === this.budget) return;
    this.past.push(this.settled ?? this.choice);
    this.coming = [];
    this.settled = undefined;
    [this.choice, this.budget] = [choice, budget];
    this.present();
    this.settle();
  }

  /** Choose while it is dragged, or for good. */
  drag(choice, settled) {
    if (settled) {
      const before = this.settled ?? this.choice;
      this.settled = undefined;
      if (before.key === choice.key) return this.rest();
      [this.choice, this.settled] = [choice.key === this.choice.key ? before : this.choice, before];
      this.take(choice);
      return;
    }
    if (choice.key === this.choice.key) return;
    this.settled ??= this.choice;
    [this.choice, this.budget] = [choice, null];
    // A pointer moves more often than a frame is drawn.
    this.due ??= requestAnimationFrame(() => this.present());
  }

  get isMoving() {
    return super.isMoving || this.settled !== undefined;
  }

  undo(from, to) {
    const choice = from.pop();
    if (!choice) return;
    to.push(this.choice);
    [this.choice, this.budget] = [choice, null];
    this.present();
    this.settle();
  }

  /** Go to a typed budget. @param {string} text */
  ask(text) {
    const budget = budgetOf(text, this.offers);
    const forms = this.offers.inNodes ? "9 values, 4 KiB, 50 %" : "64 MiB, 2000000, 50 %";
    if (budget === null) this.say(`"${text.slice(0, 40)}" is no budget; write ${forms}`);
    else if (budget < this.offers.points[0].peak) this.say(this.tooSmall(budget));
    else {
      this.say("");
      this.take(this.offers.within(budget), budget);
    }
  }

  tooSmall(budget) {
    const { points, lab } = this.offers;
    const least = `the smallest peak found is ${this.offers.memory(points[0].peak)}`;
    return budget < lab.smallest
      ? `Nothing runs within ${this.offers.memory(budget)}: ${lab.proof[0]}.`
      : `Nothing was found within ${this.offers.memory(budget)}: ${least}.`;
  }

  // Keep or recompute -----------------------------------------------------------------------------

  /** The choice that toggles saving of a cell or a value; null if nothing can be saved. */
  toggled(panel, cell, value = -1) {
    return toggled(this.offers, this.choicesSoFar, panel, cell, value);
  }

  /** The choices that lead to the present one; to meet a challenge, that alone. */
  get choicesSoFar() {
    return this.asked.isAsked ? [this.choice] : [...this.past, this.choice];
  }

  /** Toggle saving of a cell's values. @returns {boolean} whether there was anything */
  flip(panel, cell) {
    const found = this.keeps ? this.toggled(panel, cell) : null;
    if (!found) return false;
    const opens = panel.view.opens[cell] !== undefined;
    if (this.pointed?.pointerType === "touch") {
      this.choose(this.panels[0], cell); // a tap selects, and a button acts
      return true;
    }
    const again = this.flipped?.cell === cell && performance.now() - this.flipped.at < TWICE;
    if (opens && again) {
      // What the first click of two did is undone: they open the group.
      this.undo(this.past, []);
      this.flipped = undefined;
      this.panels[0].open(panel.view.opens[cell]);
      this.choose(this.panels[0], -1);
      this.tip.hide();
      return true;
    }
    this.flipped = { cell, at: performance.now() };
    const words = this.takeFlipped(found);
    this.choose(this.panels[0], opens ? -1 : cell);
    this.tip.show(this.pointed ?? middleOf(document.activeElement), [found.name, words]);
    return true;
  }

  /** Choose a schedule that toggles saving. @returns {string} what that changed */
  takeFlipped({ choice, keeps, name, change }) {
    this.take(choice);
    const words = `${keeps ? "kept" : "dropped"}: ${change}`;
    this.say(`${name} ${words}`);
    return words;
  }

  /** Toggle saving of the selection: a value, or all values of a cell. */
  flipAimed() {
    const { chosen } = this;
    const found = this.toggled(chosen, chosen.selected, chosen.value);
    if (found) this.takeFlipped(found);
  }

  /** Offer to toggle saving of the selection. */
  aim() {
    const { chosen } = this;
    const button = byId("lab-flip");
    const found = this.toggled(chosen, chosen.selected, chosen.value);
    byId("lab-inside").hidden = chosen.value >= 0 || chosen.view.opens[chosen.selected] === undefined;
    button.hidden = !found;
    if (!found) return;
    const name = ownName(found.name);
    button.textContent = `${found.keeps ? "keep" : "drop"} ${cutTo(name, 12.5, NAME_ROOM)}: ${found.change}`;
  }

  /** Open the group that is selected. */
  openAimed() {
    const { chosen } = this;
    chosen.open(chosen.view.opens[chosen.selected]);
    this.choose(chosen, -1);
  }

  choose(panel, cell, value = -1) {
    super.choose(panel, cell, value);
    this.aim();
  }

  /** The effect of a click on a cell, as text; empty if there is none. @param {Panel} panel @param {number} cell */
  preview(panel, cell) {
    const found = this.keeps ? this.toggled(panel, cell) : null;
    if (!found) return [];
    const opens = panel.view.opens[cell] === undefined ? [] : ["twice to open"];
    return [`click to ${found.keeps ? "keep" : "drop"}: ${found.change}`, ...opens];
  }

  setKeeps(keeps) {
    this.keeps = keeps;
    this.showMode();
    this.tip.hide();
  }

  nextChallenge() {
    if (this.asked.next()) this.present();
    else this.say("No challenge here: nothing that is kept by hand is within less than store-all.");
  }

  // What is shown ---------------------------------------------------------------------------------

  /** Show the schedule that is chosen, in everything. */
  present() {
    cancelAnimationFrame(this.due);
    this.due = undefined;
    const [before] = this.models;
    const atPeak = this.tick >= 0 && stepOfTick(before, this.tick, this.align) === before.peakStep;
    const model = this.offers.modelOf(this.choice, this.budget ?? this.asked.budget);
    this.tell(model);
    this.replace(model, ({ peakStep }) => (atPeak ? tickOfStep(model, peakStep, this.align) : this.tick));
  }

  /** Say what is chosen, on the axes and in words. @param {Model} model */
  tell(model) {
    this.data.highest = Math.max(this.data.highest, model.peaks.at(-1));
    this.scales.highest = Math.max(this.scales.highest, model.peaks.at(-1));
    this.scales.lively = false;
    this.carded = null;
    // The words may end a challenge.
    byId("lab-asked").textContent = this.asked.isAsked ? this.asked.words(this.choice) : "";
    this.headline();
    this.plot.show(this.offers.plan(this.choice), this.budget ?? this.asked.budget);
    this.area.show();
  }

  list() {
    super.list();
    if (this.carded !== this.choice) this.showCard();
  }

  showCard() {
    const { offers, choice } = this;
    this.carded = choice;
    const plan = offers.plan(choice);
    const ratio = offers.least ? ` = ${(plan.cost / offers.least).toFixed(2)}× store-all` : "";
    byId("lab-now").textContent =
      `${choice.title}: peak ${offers.memory(plan.peak)}, ${costText(plan.cost, offers.unit)}${ratio}`;
    byId("lab-known").textContent = `${this.knownWords(plan)}.`;
    byId("lab-budget").placeholder = offers.memory(plan.peak);
    byId("lab-advice").textContent = offers.advice(plan);
    byId("lab-kept").textContent =
      `${counted(offers.keptBy(choice).length, "value")} of ${countText(offers.candidates.length)} kept`;
    byId("lab-undo").disabled = !this.past.length;
    byId("lab-redo").disabled = !this.coming.length;
    byId("lab-proof").textContent = this.proofWords();
    byId("lab-text").hidden = true;
    this.say("");
    byId("lab-policy").value = choice.kind === "named" ? choice.name : "";
    this.showMode();
    this.aim();
  }

  /** The distance from the optimum, and its proof. */
  knownWords({ peak, cost }) {
    const { offers } = this;
    if (offers.isProven(cost, peak)) return "Optimal: nothing within this peak costs less";
    const best = offers.bestWithin(peak);
    if (best < cost)
      return `${percentText((100 * (cost - best)) / best).slice(1)} above the best known within this peak`;
    const bound = Math.max(offers.boundAt(peak), offers.least);
    return `The best known; at most ${percentText((100 * (cost - bound)) / bound).slice(1)} above any other`;
  }

  /** The infeasible region and its reason; named only where it is visible. */
  proofWords() {
    const { lab } = this.offers;
    const [alone, cuts] = lab.proof;
    const smallest = this.offers.memory(lab.smallest);
    return this.asked.hidden
      ? `Nothing runs within less than ${smallest}: ${alone}. What more must cost: ${cuts}.`
      : `What is hatched cannot be. Less than ${smallest}: ${alone}. The rest: ${cuts}.`;
  }

  showMode() {
    byId("lab-mode").setAttribute("aria-pressed", String(this.keeps));
  }

  /** Say something in the card, and to those who listen. @param {string} words */
  say(words) {
    byId("lab-said").textContent = words;
  }

  // Player ----------------------------------------------------------------------------------------

  /** Describe the effect of a click on a row of the rail. */
  hoverRow(event) {
    const row = event.target.closest?.(".rail-row");
    if (!row && !this.onRow) return;
    this.onRow = Boolean(row);
    const [panel] = this.panels;
    this.hover(event, panel, row ? { cell: panel.rail.cellOf(Number(row.dataset.row)) } : null);
  }

  hover(event, panel, at) {
    super.hover(event, panel, at);
    if (at !== null && "cell" in at && event.pointerType !== "touch") {
      const more = this.preview(panel, at.cell);
      const lines = tipLines(panel, at.cell);
      this.tip.show(event, more.length ? [...lines.filter((line) => line !== "click to open"), ...more] : lines);
    }
  }

  /** At a stop its sentence comes first. @param {string[]} texts */
  captions(texts) {
    const words = this.more ? "" : stopOn(this.stops, this.tick)?.words;
    return words ? [`${words} ${texts[0]}`, words] : texts;
  }

  address() {
    return `${super.address()}&${this.choice.key}${this.more ? "&more=1" : ""}`;
  }

  link() {
    return `${location.href.split("#")[0]}${this.address()}`;
  }

  follow(parameters) {
    const choice = this.choiceOf(parameters);
    if (choice && choice.key !== this.choice.key) {
      this.past.push(this.choice);
      this.choice = choice;
      this.present();
    }
    const more = parameters.get("more") === "1";
    if (more !== this.more) this.setMore(more);
    return super.follow(parameters);
  }

  /** The choice that an address names; null if none. @param {URLSearchParams} parameters */
  choiceOf(parameters) {
    const { offers } = this;
    const policy = offers.named.find(({ name }) => name === parameters.get("policy"));
    if (policy) return policy;
    const budget = Number(parameters.get("budget") ?? Number.NaN);
    if (budget >= offers.points[0].peak) return offers.within(budget);
    const keep = parameters.get("keep");
    const count = offers.graph.data.names.length;
    const values = keep === null ? null : numbersOf(keep, (value) => offers.canKeep(value), count);
    return values && offers.keeping(values);
  }

  /** Offer a text for copying: to the clipboard where that is allowed, and to be seen. */
  async copy(text) {
    const area = byId("lab-text");
    area.hidden = false;
    area.value = text;
    area.rows = Math.min(text.split("\n").length + 1, 10);
    area.wrap = text.includes("\n") ? "off" : "soft";
    area.focus();
    area.select();
    area.scrollTop = 0;
    try {
      await navigator.clipboard.writeText(text);
      this.say("copied");
    } catch {
      this.say("press Ctrl+C to copy");
    }
  }
}
