/**
 * Formatting and parsing: costs, differences and budgets; sets of values in URLs; command lines and
 * Python code to copy.
 */

/**
 * @import { Choice, Offers } from "./offers.js"
 */

export const MINUS = "\u2212";
const MULTIPLES = {
  b: 1,
  bytes: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};
/** @type {[string, number][]} */
const LARGE = [
  ["P", 1e15],
  ["T", 1e12],
  ["G", 1e9],
  ["M", 1e6],
];
const MOST_RUN = 3; // numbers in a row that are written one by one

/** A chain in words, by the name of its graph; null of another graph. @param {string} name */
export function chainText(name) {
  const [kind, size] = name.split(":");
  return kind === "chain" && size ? `chain of ${size} layer${size === "1" ? "" : "s"}` : null;
}

/** A graph as the subject of a sentence; most functions that are traced are the loss. @param {string} name */
export function subjectText(name) {
  const chain = chainText(name);
  if (chain) return `A ${chain}`;
  return name === "loss" ? "This network" : name;
}

/** A cost with its unit; the same text as in Python. @param {number} cost @param {string} unit */
export function costText(cost, unit) {
  if (unit === "FLOPs" || unit === "bytes moved") {
    const large = LARGE.find(([, factor]) => cost >= factor);
    if (large) return `${Number((cost / large[1]).toPrecision(5))} ${large[0]}${unit}`;
  }
  if (cost === 1 && unit === "evaluations") return "1 evaluation";
  if (!Number.isInteger(cost)) return `${Number(cost.toPrecision(6))} ${unit}`;
  return `${String(cost).replace(/\B(?=(\d{3})+$)/g, ",")} ${unit}`;
}

/** A change in per cent, with its sign. @param {number} share */
export function percentText(share) {
  const amount = Math.abs(share);
  const digits = amount >= 100 ? 0 : amount >= 0.1 ? 1 : 2;
  return `${share < 0 ? MINUS : "+"}${amount.toFixed(digits)} %`;
}

/** The bytes of a budget such as "64 MiB", "9 values" or "50 %"; null if it is none.
 * @param {string} text @param {Offers} offers
 */
export function budgetOf(text, offers) {
  const match = /^\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z%]*)\s*$/.exec(text);
  if (!match) return null;
  const [amount, unit] = [Number(match[1]), match[2].toLowerCase()];
  if (Object.hasOwn(MULTIPLES, unit)) return amount * MULTIPLES[unit];
  if (unit === "%" && amount <= 100) return (amount / 100) * offers.stored.peak;
  const inNodes = unit ? /^(node|value)s?$/.test(unit) : true;
  return inNodes && (offers.inNodes || !unit) ? amount * offers.size : null;
}

/** Ascending numbers as text: runs as 3-7. @param {number[]} numbers */
export function rangesText(numbers) {
  const runs = runsOfNumbers(numbers);
  return runs.map(([low, high]) => (low === high ? `${low}` : `${low}-${high}`)).join(",") || "none";
}

/** The numbers of such a text; null if it is none, or one of them is not allowed.
 * @param {string} text @param {(n: number) => boolean} allowed @param {number} most
 */
export function numbersOf(text, allowed, most) {
  if (text === "none") return [];
  const found = [];
  for (const run of text.split(",")) {
    const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(run);
    if (!match) return null;
    const [low, high] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (high < low || high >= most) return null;
    for (let n = low; n <= high; n++) found.push(n);
  }
  return found.filter(allowed);
}

/** Numbers as runs of such that follow each other: first and last of each. */
function runsOfNumbers(numbers) {
  const runs = [];
  for (const n of numbers) {
    const last = runs.at(-1);
    if (last && n === last[1] + 1) last[1] = n;
    else runs.push([n, n]);
  }
  return runs;
}

/** A list of numbers as Python writes it, runs as ranges. @param {ArrayLike<number>} numbers */
function pythonList(numbers) {
  const parts = runsOfNumbers(Array.from(numbers)).flatMap(([low, high]) =>
    high - low < MOST_RUN
      ? Array.from({ length: high - low + 1 }, (_, i) => `${low + i}`)
      : [`*range(${low}, ${high + 1})`],
  );
  return wrapped(parts, "    ");
}

/** Parts with commas between, in lines that are not too long. */
function wrapped(parts, indent) {
  const lines = [""];
  for (const part of parts) {
    if (lines.at(-1).length + part.length > 88) lines.push("");
    lines[lines.length - 1] += `${lines.at(-1) ? " " : ""}${part},`;
  }
  return parts.length > 8 ? `[\n${lines.map((line) => indent + line).join("\n")}\n]` : `[${parts.join(", ")}]`;
}

/** The program that makes a choice's schedule. @param {Offers} offers @param {Choice} choice */
export function pythonText(offers, choice) {
  const { lab } = offers;
  const graph =
    lab.network === null
      ? (lab.program ?? "# graph is the one that this page was made of")
      : `graph = tc.networks.network_from_text(${JSON.stringify(lab.network)})[0]`;
  const costs = lab.costs_text;
  let schedule = "";
  if (choice.kind === "kept") {
    const names = choice.keep.map((value) => JSON.stringify(offers.nameOf(value)));
    schedule = `schedule = tc.plan(graph, "retain", keep=${wrapped(names, "    ")})`;
  } else if (choice.kind === "named" && costs !== null) {
    schedule = `schedule = tc.plan(graph, ${JSON.stringify(choice.name)}${costs})`;
  } else {
    const rings = offers.plan(choice).checkpoints;
    const more = `${JSON.stringify(choice.policy)}, checkpoints=${pythonList(rings)}`;
    schedule = `order = ${pythonList(choice.order)}\nschedule = tc.from_order(graph, order, ${more})`;
  }
  return `import tinyckpt as tc\n\n${graph}\n${schedule}\nprint(tc.replay(schedule).summary())\n`;
}

/** The command that plays a choice's schedule, or plans for its budget. */
export function commandText(offers, choice) {
  const network = shellWord(offers.lab.network ?? "graph.json");
  if (choice.kind === "named") {
    // A policy may come from a file that anybody wrote.
    return `tinyckpt play ${network} --policy ${shellWord(choice.name)} -o ${choice.name.replaceAll(/\W+/g, "_")}.html`;
  }
  if (choice.kind === "point") return `tinyckpt play ${network} --budget '${choice.peak} bytes' -o plan.html`;
  const keep = choice.keep.map((value) => `--keep=${shellWord(offers.nameOf(value))}`);
  return ["tinyckpt play", network, "--policy retain", ...keep, "-o kept.html"].join(" ");
}

/** A word as a shell reads it. @param {string} word */
function shellWord(word) {
  return /^[\w./:=@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
