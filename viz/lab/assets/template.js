/**
 * Evaluation of a family's template: the training graph of a network for a choice of sizes, as
 * ``docs/parametric.py`` derives it from traced graphs. Every number in it is ``a + b copies + c copy``
 * for the copies of a layer, and every extent a polynomial of the sizes. No DOM here.
 *
 * @typedef {{least: number, symbols: string[], keys: any[], polynomials: [number, number, number[]][][],
 *     data: [number, any[]][], operators: [number, any[]][]}} Template
 */

import { pageGraph } from "./graphs.js";
import { flopsByRule, workspaceByRule } from "./workspaces.js";

/** What the ledger counts separately. */
export const [IN_GRADIENTS, IN_ACTIVATIONS, IN_COTANGENTS, IN_RESULTS] = [0, 1, 2, 3];

/** How many operators a template has for a number of copies. @param {Template} template @param {number} copies */
export function operatorsIn(template, copies) {
  return template.operators.reduce((sum, [copied, rows]) => sum + rows.length * (copied ? copies : 1), 0);
}

/** The graph of a network. Beside the page's columns it has separators, and the category of each value.
 * @param {Template} template @param {number} copies @param {Record<string, number>} sizes by symbol
 * @param {string} name @param {Record<string, number>} dtypes bytes of an element
 * @returns {any} the page's graph
 */
export function graphOfTemplate(template, copies, sizes, name, dtypes) {
  const powers = template.symbols.map((symbol) => sizes[symbol]);
  const amounts = template.polynomials.map((terms) =>
    terms.reduce((sum, [above, below, exponents]) => sum + (above * monomial(powers, exponents)) / below, 0),
  );
  const data = valuesOfTemplate(template, copies, amounts, dtypes);
  const made = data.filter(({ role }) => role === "activation" || role === "cotangent");
  let next = 0;
  const operators = [];
  for (const [key, take] of rowsOfTemplate(template, "operators", copies)) {
    const [title, kind, place, phase, once, inputs, outputs, facts] = template.keys[key];
    const id = operators.length;
    const own = { id, kind, phase, once, name: withNumbers(title, take), scope: withNumbers(place, take) };
    const results = made.slice(next, (next += outputs));
    for (const result of results) result.producer = id;
    const reads = Array.from({ length: inputs }, () => results[0].id - take());
    const offset = take();
    const shaped = { kind, facts, inputs: reads.map((value) => data[value]), outputs: results };
    const flops = take(false);
    const workspace = take(false);
    const work = flops < 0 ? flopsByRule(shaped) : amounts[flops];
    operators.push({
      ...own,
      inputs: reads,
      outputs: results.map((result) => result.id),
      adjoint: offset ? id - offset : -1,
      flops: work,
      cost: work,
      workspace: workspace < 0 ? workspaceByRule(shaped) : amounts[workspace],
    });
  }
  const wanted = data.filter(({ result }) => result).map(({ id }) => id);
  const graph = pageGraph(name, data, operators, wanted);
  const separators = data.filter(({ separates }) => separates).map(({ id }) => id);
  return Object.assign(graph, { separators, categories: categoriesOf(data) });
}

function monomial(powers, exponents) {
  let amount = 1;
  for (let i = 0; i < powers.length; i++) for (let k = 0; k < exponents[i]; k++) amount *= powers[i];
  return amount;
}

/** The rows of a part: their keys, each with what takes the next of its numbers. */
function* rowsOfTemplate(template, part, copies) {
  for (const [copied, rows] of template[part]) {
    for (let copy = 0; copy < (copied ? copies : 1); copy++) {
      for (const row of rows) {
        let at = 0;
        const take = (affine = true) => {
          const number = row[++at];
          return affine && typeof number !== "number" ? number[0] + number[1] * copies + number[2] * copy : number;
        };
        yield/** @type {[number, (affine?: boolean) => number]} */ ([row[0], take]);
      }
    }
  }
}

/** A text with its numbers. @param {string} text @param {() => number} take */
function withNumbers(text, take) {
  return text.replaceAll("#", () => String(take()));
}

function valuesOfTemplate(template, copies, amounts, dtypes) {
  const data = [];
  for (const [key, take] of rowsOfTemplate(template, "data", copies)) {
    const [title, role, dtype, label, result, separates, rank] = template.keys[key];
    const id = data.length;
    const name = withNumbers(title, take);
    const offset = take();
    const shape = Array.from({ length: rank }, () => amounts[take(false)]);
    const size = shape.reduce((product, extent) => product * extent, dtypes[dtype]);
    const base = offset ? id - offset : -1;
    const spec = `${dtype}[${shape.join(",")}]`;
    data.push({ id, name, role, dtype, label, result, separates, shape, size, base, spec, producer: -1 });
  }
  return data;
}

/** The category of each value. A gradient may be a view; then its base is the gradient's memory. */
function categoriesOf(data) {
  const found = Uint8Array.from(data, ({ role, result }) =>
    result === 1 ? IN_RESULTS : role === "cotangent" ? IN_COTANGENTS : IN_ACTIVATIONS,
  );
  for (const { id, result } of data)
    if (result === 2) for (let value = id; value >= 0; value = data[value].base) found[value] = IN_GRADIENTS;
  return found;
}
