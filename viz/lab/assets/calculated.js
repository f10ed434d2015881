/**
 * What the calculator computes: choices to a graph, its plans and its ledger, or to one sentence that
 * says what is wrong with them. No DOM here.
 *
 * @typedef {{name: string, label: string, usual: number, least: number, most: number, among: number[]}} Asked
 * @typedef {{title: string, choices: Asked[], variants: string[]}} AskedFamily
 * @typedef {Record<string, string | number | boolean>} Choices
 */

import { sizeText } from "../../player/assets/format.js";
import { layerOrder, layersOf, sqrtOrder } from "./sqrt_n.js";
import { sourcesOf, sumsAtPeak } from "./sums.js";
import { graphOfTemplate, operatorsIn } from "./template.js";

const MOST_OPERATORS = 50_000; // that a page plans without a pause
const MOST_BYTES = 2 ** 50;
const PIXELS_PER_BLOCK = 32; // of a ResNet's image, by its last stage

/** What is wrong with choices, and in which field; null if nothing is.
 * @param {AskedFamily} family @param {any} c choices @returns {{problem: string, wrong: string} | null}
 */
export function problemOf({ title, choices }, c) {
  const said = (wrong, problem) => ({ wrong, problem });
  for (const { name, label, least, most } of choices)
    if (!Number.isInteger(c[name]) || c[name] < least || c[name] > most)
      return said(name, `${label}: a whole number from ${least} to ${most.toLocaleString("en")} is needed.`);
  const { width, heads, kv_heads: shared, size, patch } = c;
  const each = width / heads;
  if (heads && width % heads) return said("width", `The width ${width} is no multiple of the ${heads} heads.`);
  if (heads && each < 2)
    return said("heads", `Each head needs a width of 2 or more, and ${heads} heads share ${width}.`);
  if (shared && heads % shared)
    return said("kv_heads", `The ${heads} heads cannot share ${shared} kv heads evenly: these must divide them.`);
  if (shared && each % 2)
    return said("width", `Rotary positions need an even width of each head, and ${width} / ${heads} is ${each}.`);
  if (patch && size % patch) return said("patch", `The image of ${size} pixels is no multiple of the patch, ${patch}.`);
  if (c.depth && size % PIXELS_PER_BLOCK) {
    const parts = `${size} pixels are no multiple of ${PIXELS_PER_BLOCK}`;
    return said("size", `A ${title} halves its image five times: ${parts}.`);
  }
  return null;
}

/** The sizes of a network by symbol. @param {any} c choices @returns {Record<string, number>} */
function symbolsOf({ family, ...c }) {
  const side = c.size / (c.patch ?? 1);
  return {
    ...c,
    head_width: c.width / c.heads,
    group: c.heads / c.kv_heads,
    positions: Math.max(family === "bert" ? 512 : 1024, c.length),
    others: c.length - 1,
    side,
    tokens: side ** 2 + 1,
    blocks: c.size / PIXELS_PER_BLOCK,
  };
}

/** The name of a network of these sizes. @param {any} c */
export function nameOfNetwork({ title }, c) {
  if (c.depth) return `${title}-${c.depth}`;
  return `${title} ${c.layers}×${c.width}`;
}

/** Graph, plans and bytes; or the problem with the choices.
 * @param {any} page with families, templates, optimisers and dtypes @param {any} choices @returns {any}
 */
export function calculated(page, choices) {
  const family = page.families[choices.family];
  const found = problemOf(family, choices);
  if (found) return found;
  const c = { ...choices, grouped: choices.kv_heads < choices.heads };
  const template = page.templateOf([c.family, ...family.variants.map((name) => c[name]), c.dtype].join("/"));
  const copies = template.least ? c.layers - template.least : 0;
  const count = operatorsIn(template, copies);
  if (count > MOST_OPERATORS)
    return {
      wrong: "layers",
      problem: `${c.layers} layers are ${count.toLocaleString("en")} operators; ${MOST_OPERATORS.toLocaleString("en")} are planned here: choose fewer layers, or use tinyckpt plan.`,
    };
  const name = nameOfNetwork(family, c);
  const graph = graphOfTemplate(template, copies, symbolsOf(c), name, page.dtypes);
  const bytes = graph.data.nbytes.reduce((a, b) => a + b, 0);
  if (bytes > MOST_BYTES)
    return {
      problem: `All values of this network are ${sizeText(bytes)}; up to ${sizeText(MOST_BYTES)} are planned here.`,
    };
  const { parameters, others } = sourcesOf(graph);
  const [each, once] = page.optimisers[c.optimiser][c.dtype];
  const elements = parameters / page.dtypes[c.dtype];
  const sqrt = sqrtOrder(graph);
  const layers = layerOrder(graph, c.every);
  return {
    problem: "",
    name,
    graph,
    elements,
    repeated: layersOf(graph).reduce((a, b) => Math.max(a, b), -1) + 1,
    always: { parameters, "optimizer state": each * elements + once, "other sources": others },
    sqrt,
    plans: {
      store_all: sumsAtPeak(graph, Array.from(graph.operators.names.keys())),
      sqrt_n: sumsAtPeak(graph, sqrt.order),
      layers: sumsAtPeak(graph, layers.order),
    },
  };
}
