/** The calculator's page: choices, their ledger, the lab on that network, and what to paste. */

import { byId } from "../../player/assets/controls.js";
import { sizeText } from "../../player/assets/format.js";
import { fresh } from "../../player/assets/fresh.js";
import { start } from "../../player/assets/playback.js";
import { calculated } from "./calculated.js";
import { Lab } from "./lab.js";
import { dataOfPlan } from "./planned.js";
import { layerWord, layersInWords, networkText, snippetsOf } from "./snippets.js";
import { percentText } from "./texts.js";

const PAUSE = 600; // milliseconds without a change after which the lab is opened, so that numbers come first
const MOST_KINDS = 6; // of activations that are listed
const EVERY_LAYERS = [1, 2, 3, 4];
const ROW_NAMES = { "optimizer state": "optimiser state", "other sources": "batch, constants", results: "loss" };
const SAVES = 0.98; // of what store-all needs: what needs less saves something
const PLANS = ["store_all", "sqrt_n", "layers"];

class Calculator {
  /** @param {any} page as unpacked */
  constructor(page) {
    this.page = page;
    const { names, texts } = page.templates;
    const known = new Map();
    page.templateOf = (name) => {
      if (!known.has(name)) known.set(name, JSON.parse(texts[names.indexOf(name)]));
      return known.get(name);
    };
    this.root = document.documentElement;
    this.root.classList.add("calculator");
    byId("calculator").role = "main";
    this.tab = "PyTorch";
    byId("calc-form").addEventListener("input", () => this.changed());
    byId("calc-form").addEventListener("submit", (event) => event.preventDefault());
    byId("calc-copy").addEventListener("click", () => this.copy());
    window.addEventListener("hashchange", () => this.follow());
    const given = this.choicesIn(new URLSearchParams(location.hash.slice(1)));
    this.choices = this.choicesIn(new URLSearchParams({ family: given.family }));
    const found = calculated(page, given);
    if (found.problem) this.show(); // the usual network, so that there is something
    this.choices = given;
    this.fields();
    this.show(found);
  }

  /** All choices: those of an address, and for the others the usual ones. @param {URLSearchParams} given */
  choicesIn(given) {
    const { families, types, optimisers } = this.page;
    const among = (name, known, usual) => (Object.hasOwn(known, given.get(name) ?? "") ? given.get(name) : usual);
    const family = among("family", families, "gpt");
    const numbers = families[family].choices.map(({ name, usual, among: few }) => {
      const number = Number(given.get(name) ?? usual);
      return [name, few.length && !few.includes(number) ? usual : number];
    });
    const every = Number(given.get("every"));
    return {
      family,
      ...Object.fromEntries(numbers),
      dtype: among("dtype", types, "float32"),
      optimiser: among("optimiser", optimisers, "AdamW"),
      fused: given.get("fused") === "true",
      every: EVERY_LAYERS.includes(every) ? every : 1,
    };
  }

  /** Go to what the address names: somebody went back, or wrote one. */
  follow() {
    this.choices = this.choicesIn(new URLSearchParams(location.hash.slice(1)));
    this.fields();
    this.show();
  }

  // Choices -------------------------------------------------------------------------------------

  /** The fields of the family. */
  fields() {
    const { families, types, optimisers } = this.page;
    const { family } = this.choices;
    const { choices, variants } = families[family];
    const known = (all) => Object.keys(all).map((value) => [value, all[value].title ?? all[value]]);
    const rules = Object.keys(optimisers).map((name) => [name, name]);
    const word = layerWord(this.choices);
    const ordinals = ["", " 2nd", " 3rd", " 4th"];
    const nth = EVERY_LAYERS.map((n) => [n, `every${ordinals[n - 1]} ${word}`]);
    byId("calc-form").replaceChildren(
      this.select("family", "family", known(families), "wide"),
      ...choices.map((asked) =>
        asked.among.length
          ? this.select(
              asked.name,
              asked.label,
              asked.among.map((value) => [value, value]),
            )
          : this.number(asked),
      ),
      this.select("dtype", "type", known(types), "wide"),
      ...(variants.includes("fused") ? [this.check("fused", "fused attention")] : []),
      this.select("optimiser", "optimiser", rules, "wide"),
      this.select("every", "checkpoint", nth, "wide"),
    );
  }

  labelled(label, field, className) {
    const element = document.createElement("label");
    element.className = className;
    if (className === "check") element.append(field, label);
    else element.append(label, field);
    return element;
  }

  select(name, label, known, className = "") {
    const field = document.createElement("select");
    Object.assign(field, { name, id: `calc-${name}` });
    field.append(...known.map(([value, words]) => new Option(String(words), String(value))));
    field.value = String(this.choices[name]);
    return this.labelled(label, field, className);
  }

  number({ name, label, least, most }) {
    const field = document.createElement("input");
    Object.assign(field, {
      name,
      id: `calc-${name}`,
      type: "number",
      min: String(least),
      max: String(most),
      step: "1",
    });
    field.value = String(this.choices[name]);
    return this.labelled(label, field, "");
  }

  check(name, label) {
    const field = document.createElement("input");
    Object.assign(field, { name, id: `calc-${name}`, type: "checkbox", checked: this.choices[name] });
    return this.labelled(label, field, "check");
  }

  /** A choice was made: another family begins with its usual sizes. */
  changed() {
    const fields = /** @type {any[]} */ (Array.from(byId("calc-form").querySelectorAll("input, select")));
    const given = new URLSearchParams(
      fields.map(({ name, type, checked, value }) => [name, type === "checkbox" ? String(checked) : value || "0"]),
    );
    const isOther = given.get("family") !== this.choices.family;
    if (isOther) for (const { name } of this.page.families[this.choices.family].choices) given.delete(name);
    this.choices = this.choicesIn(given);
    if (isOther) {
      this.fields();
      byId("calc-family").focus();
    }
    this.show();
  }

  // What is answered ------------------------------------------------------------------------------

  /** Show the ledger, or what is wrong: then the last answer stays. */
  show(found = calculated(this.page, this.choices)) {
    byId("calc-problem").textContent = found.problem;
    for (const field of Array.from(byId("calc-form").querySelectorAll("input"))) {
      if (found.wrong === field.name) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
    document.querySelector(".calc-answer").classList.toggle("stale", Boolean(found.problem));
    if (found.problem) return;
    this.found = found;
    this.write();
    this.sentence();
    this.ledger();
    this.snippets();
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.openLab(), PAUSE);
  }

  write() {
    const address = `#${new URLSearchParams(Object.entries(this.choices).map(([name, value]) => [name, String(value)]))}`;
    try {
      history.replaceState(null, "", address);
    } catch {
      // A page in a notebook or a frame may have no address of its own.
    }
  }

  total(plan) {
    const { always, plans } = this.found;
    return Object.values(always).reduce((a, b) => a + b, plans[plan].peak);
  }

  moreWork(plan) {
    const { plans } = this.found;
    return percentText((100 * (plans[plan].cost - plans.store_all.cost)) / plans.store_all.cost);
  }

  /** What training needs, and with which plan it needs less. @param {string} which layers */
  needs(which) {
    const [stored, sqrt, layers] = PLANS.map((plan) => this.total(plan));
    const begin = `${sizeText(stored)} to train`;
    if (layers < SAVES * stored) return `${begin}, or ${sizeText(layers)} with ${which} recomputed`;
    const nothing = `${begin}; to recompute ${which} one by one saves next to nothing`;
    return sqrt < SAVES * stored ? `${nothing}, in √n segments it needs ${sizeText(sqrt)}` : nothing;
  }

  sentence() {
    const { found, choices } = this;
    const which = layersInWords(choices, found.repeated);
    document.querySelector("h1").textContent = `${found.name} needs ${this.needs(which)}.`;
    document.title = `${found.name}: training memory`;
    byId("calc-about").textContent =
      `${(found.elements / 1e6).toLocaleString("en", { maximumFractionDigits: 1 })} million parameters, and what a training step has in memory beside them. Change anything: every number is that of the real graph, to the byte.`;
    byId("calc-which").textContent =
      `Checkpointed: ${which}. Each keeps its input alone, and is computed again in the backward pass: ${this.moreWork("layers")} work.`;
    const { parameters } = found.always;
    byId("calc-note").textContent =
      `Gradients are in memory as far as the backward pass has come; at its end, all ${sizeText(parameters)}. The optimiser counts with its state. What a framework's allocator and fragmentation take comes on top.`;
    const beside = this.total("store_all") - found.plans.store_all.peak;
    byId("calc-beside").textContent =
      `Drag the budget, open what fills the peak, keep or drop values by hand. It counts what a schedule allocates: without parameters, optimiser state and batch, ${sizeText(beside)} here.`;
  }

  ledger() {
    const { always, plans } = this.found;
    const table = byId("calc-ledger");
    const word = layerWord(this.choices);
    const nth = this.choices.every === 1 ? `every ${word}` : `1 in ${this.choices.every} ${word}s`;
    const heads = ["", "store all", "√n segments", `checkpoint ${nth}`];
    table.tHead.replaceChildren(rowOf("", heads, "col"));
    const most = this.total("store_all");
    const rows = [];
    const add = (name, className, amounts) => {
      if (name === "gradients" || amounts.some((amount) => amount > 0))
        rows.push(barsRow(name, className, amounts, most));
    };
    add(
      "total",
      "total",
      PLANS.map((plan) => this.total(plan)),
    );
    for (const [name, bytes] of Object.entries(always))
      add(
        ROW_NAMES[name] ?? name,
        "always",
        PLANS.map(() => bytes),
      );
    for (const name of Object.keys(plans.store_all.held)) {
      const className = name === "gradients" || name === "cotangents" ? "gradient" : name;
      add(
        ROW_NAMES[name] ?? name,
        className,
        PLANS.map((plan) => plans[plan].held[name]),
      );
      if (name === "activations") {
        const kinds = [...plans.store_all.kinds].sort((a, b) => b[1] - a[1]).slice(0, MOST_KINDS);
        for (const [kind] of kinds)
          add(
            kind,
            "part",
            PLANS.map((plan) => plans[plan].kinds.get(kind) ?? 0),
          );
      }
    }
    rows.push(
      rowOf("work", ["work", ...PLANS.map((plan) => (plan === "store_all" ? "once" : this.moreWork(plan)))], "row"),
    );
    table.tBodies[0].replaceChildren(...rows);
  }

  snippets() {
    const found = snippetsOf(this.choices, this.found.repeated);
    byId("calc-tabs").replaceChildren(
      ...found.map(({ name }) => {
        const button = document.createElement("button");
        Object.assign(button, { type: "button", textContent: name });
        button.setAttribute("aria-pressed", String(name === this.tab));
        button.addEventListener("click", () => {
          this.tab = name;
          this.snippets();
          /** @type {HTMLElement} */ (document.querySelector('#calc-tabs [aria-pressed="true"]')).focus();
        });
        return button;
      }),
    );
    byId("calc-text").textContent = found.find(({ name }) => name === this.tab).text;
    byId("calc-copy").textContent = "copy";
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(byId("calc-text").textContent);
      byId("calc-copy").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(byId("calc-text"));
      byId("calc-copy").textContent = "press Ctrl+C";
    }
  }

  // The lab ---------------------------------------------------------------------------------------

  /** Open the lab on this network: this very page in a frame, which asks for the graph. */
  openLab() {
    this.lab = /** @type {HTMLIFrameElement} */ (document.getElementById("calc-lab"));
    const page = /** @type {HTMLElement} */ (fresh.cloneNode(true));
    Object.assign(page.dataset, { calculates: "lab", theme: this.root.dataset.theme });
    this.lab.srcdoc = `<!doctype html>${page.outerHTML}`;
  }

  /** The plan that the lab begins with. */
  plan() {
    const { graph, sqrt } = this.found;
    const policy = { name: "sqrt_n", title: this.page.titles.sqrt_n, note: "", ...sqrt };
    return { path: null, graph, own: null, others: [policy], program: networkText(this.choices) };
  }

  /** The lab takes on the theme that a site around this page asks for. */
  recolour() {
    const { contentDocument, contentWindow } = this.lab ?? {};
    if (!contentDocument) return;
    contentDocument.documentElement.dataset.theme = this.root.dataset.theme;
    /** @type {any} */ (contentWindow).player?.recolour();
  }
}

/** A row of texts. @param {string} className @param {string[]} texts @param {"row" | "col"} scope of the first, or of all */
function rowOf(className, texts, scope) {
  const row = document.createElement("tr");
  row.className = className;
  row.append(
    ...texts.map((text, i) => {
      const cell = document.createElement((scope === "col" ? text : !i) ? "th" : "td");
      if (cell.tagName === "TH") /** @type {HTMLTableCellElement} */ (cell).scope = scope;
      cell.textContent = text;
      return cell;
    }),
  );
  return row;
}

function barsRow(name, className, amounts, most) {
  const row = rowOf(className, [name, ...amounts.map(sizeText)], "row");
  amounts.forEach((amount, i) => {
    const bar = document.createElement("i");
    bar.className = "bar";
    bar.style.width = amount ? `max(1px, ${(100 * amount) / most}%)` : "0";
    row.cells[i + 1].append(bar);
  });
  return row;
}

/** The lab in the calculator's frame. @param {any} page */
function labInFrame(page) {
  const { player } = /** @type {any} */ (parent);
  const data = dataOfPlan(player.plan(), null, page);
  byId("save-page").hidden = true; // it is the calculator's
  byId("lab-command").hidden = true; // no command names this network
  return new Lab({ ...data, opening: { show: 0, stop: "peak" } });
}

start((page) => (document.documentElement.dataset.calculates === "lab" ? labInFrame(page) : new Calculator(page)));
