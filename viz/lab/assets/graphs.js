/**
 * Graph documents: parsed as ``tinyckpt.documents.graphs`` does, with the same errors, into the
 * page's data model. The attributes of a document are described there.
 */

import { BEYOND, plainText, printable, quoted, shortened80 } from "./reader.js";

/**
 * @import { Lists } from "../../player/assets/columns.js"
 * @import { DocumentReader } from "./reader.js"
 */

const ADJOINT = /([^/ ()]+)_vjp(?:_(\d+))?(?=\)?$| \(\d+\)\)?$)/;
const DOCUMENT_KEYS = ["schema", "version", "name", "data", "operators", "arguments", "results", "gradients"];
const DATA_KEYS = ["name", "bytes", "shape", "dtype", "role", "view_of", "label"];
const OPERATOR_KEYS = [
  "name",
  "inputs",
  "outputs",
  "kind",
  "phase",
  "adjoint_of",
  "scope",
  "regions",
  "flops",
  "workspace",
  "cost",
  "once",
];
const SOURCE_ROLES = ["input", "parameter", "constant"];
const ROLES = [...SOURCE_ROLES, "activation", "cotangent"];
const DEEPEST = 900; // values inside each other
const MOST_MEMORY = 2 ** 60;
const MOST_FLOPS = 2 ** 52; // of one operator: whole numbers that the page can add up
const LONGEST_NAME = 200; // characters that are shown

/** @param {DocumentReader} reader @param {any} document @param {string} where
 * @param {Record<string, number>} dtypes bytes of an element @returns {any} the page's graph
 */
export function readGraph(reader, document, where, dtypes) {
  const dataRows = reader.get(document, "data", ["list"], where);
  const operatorRows = reader.get(document, "operators", ["list"], where);
  const ids = numbered(reader, dataRows, `${where}.data`);
  const operatorIds = numbered(reader, operatorRows, `${where}.operators`);
  reader.only(document, DOCUMENT_KEYS, where);
  const operators = operatorRows.map((row, i) =>
    readOperator(reader, row, i, ids, operatorIds, `${where}.operators[${i}]`),
  );
  const producers = producersIn(reader, operators, dataRows, where);
  const costed = operators.filter(({ cost }) => cost !== null).length;
  if (costed && costed < operators.length)
    reader.fail(`${where}.operators`, `${costed} of ${operators.length} have a cost: all or none`);
  const order = placesInOrder(operators, producers, dataRows.length);
  const data = order.map((old, i) =>
    readData(reader, dataRows[old], i, ids, operators[producers[old]], dtypes, `${where}.data[${i}]`),
  );
  const place = new Int32Array(order.length);
  order.forEach((old, i) => (place[old] = i));
  for (const operator of operators) {
    for (const key of ["inputs", "outputs"]) operator[key] = operator[key].map((old) => place[old]);
  }
  for (const node of data) if (node.base >= 0) node.base = place[node.base];
  const memory = [...data.map(({ size }) => size), ...operators.map(({ workspace }) => workspace)];
  if (memory.reduce((a, b) => a + b, 0) >= MOST_MEMORY)
    reader.fail(where, "values and workspaces together have too many bytes");
  const name = reader.get(document, "name", ["str"], where);
  leavesOf(reader, document, "arguments", ["list"], ids, where);
  const wanted = ["results", "gradients"].flatMap((key) =>
    leavesOf(reader, document, key, ["list", "dict", "str", "NoneType"], ids, where),
  );
  const results = [...new Set(wanted)].map((old) => place[old]).sort((a, b) => a - b);
  if (!results.length) reader.fail(where, "results and gradients name no value: there is nothing to compute");
  data.forEach((node, i) => (node.producer = producers[order[i]]));
  checkGraph(reader, data, operators, where);
  return pageGraph(name, data, operators, results, place[wanted[0]]);
}

/** The position of each name; one that occurs twice is an error. */
function numbered(reader, rows, where) {
  const numbers = new Map();
  rows.forEach((row, i) => {
    const name = printable(reader.get(row, "name", ["str"], `${where}[${i}]`));
    if (numbers.has(name)) reader.fail(`${where}[${i}]`, `the name ${quoted(shortened80(name))} is taken`);
    numbers.set(name, i);
  });
  return numbers;
}

function numberOf(reader, name, numbers, where) {
  const found = typeof name === "string" ? numbers.get(printable(name)) : undefined;
  if (found === undefined)
    reader.fail(where, `${quoted(shortened80(plainText(name)))} is not the name of anything in this document`);
  return found;
}

function readOperator(reader, row, id, ids, operatorIds, at) {
  reader.only(row, OPERATOR_KEYS, at);
  const values = (key) => reader.get(row, key, ["list"], at).map((name) => numberOf(reader, name, ids, `${at}.${key}`));
  const count = (key) => reader.count(reader.given(row, key, ["int"], 0, at), `${at}.${key}`, BEYOND);
  const adjoint = row.adjoint_of ?? null;
  const cost = row.cost ?? null;
  const phase = reader.given(row, "phase", ["str"], adjoint === null ? "forward" : "backward", at);
  return {
    id,
    name: row.name,
    kind: reader.given(row, "kind", ["str"], row.name, at),
    inputs: values("inputs"),
    outputs: values("outputs"),
    phase: reader.oneOf(phase, ["forward", "backward"], `${at}.phase`),
    adjoint: adjoint === null ? -1 : numberOf(reader, adjoint, operatorIds, `${at}.adjoint_of`),
    scope: reader.given(row, "scope", ["str"], "", at),
    flops: count("flops"),
    workspace: count("workspace"),
    regions: reader.counts(reader.given(row, "regions", ["list"], [], at), `${at}.regions`),
    cost: cost === null ? null : reader.number(cost, `${at}.cost`),
    once: reader.given(row, "once", ["bool"], false, at),
  };
}

/** The operator that makes each value; -1 for none. */
function producersIn(reader, operators, rows, where) {
  const made = new Int32Array(rows.length).fill(-1);
  for (const { id, outputs } of operators) {
    const at = `${where}.operators[${id}].outputs`;
    if (!outputs.length) reader.fail(at, "an operator needs at least one output");
    for (const output of outputs) {
      if (made[output] >= 0 && made[output] !== id)
        reader.fail(at, `${quoted(shortened80(rows[output].name))} is an output of two operators`);
      made[output] = id;
    }
  }
  return made;
}

/** Values in the order in which they are made, sources first; as they are listed if that is one. */
function placesInOrder(operators, producers, count) {
  const listed = Array.from({ length: count }, (_, i) => i);
  const isOrder = operators.every(({ inputs, outputs }) => {
    const first = outputs.reduce((a, b) => Math.min(a, b));
    return inputs.every((value) => producers[value] < 0 || value < first);
  });
  if (isOrder) return listed;
  const made = operators.flatMap(({ outputs }) => outputs);
  return [...listed.filter((value) => producers[value] < 0), ...new Set(made)];
}

function readData(reader, row, id, ids, producer, dtypes, at) {
  reader.only(row, DATA_KEYS, at);
  let [shape, dtype] = [null, "uint8"];
  if (Object.hasOwn(row, "bytes")) shape = [reader.count(row.bytes, `${at}.bytes`, BEYOND)];
  else if (!Object.hasOwn(row, "shape")) reader.fail(at, "'bytes' is missing, or 'shape' and 'dtype'");
  else {
    shape = reader.counts(reader.get(row, "shape", ["list"], at), `${at}.shape`, BEYOND);
    dtype = reader.oneOf(reader.get(row, "dtype", ["str"], at), Object.keys(dtypes), `${at}.dtype`);
  }
  const size = shape.reduce((a, b) => a * b, 1) * dtypes[dtype];
  if (size > BEYOND) reader.fail(at, "its shape is too large"); // as near as its last digits tell
  const made = producer ? (producer.phase === "forward" ? "activation" : "cotangent") : "input";
  const role = reader.oneOf(reader.given(row, "role", ["str"], made, at), ROLES, `${at}.role`);
  if (SOURCE_ROLES.includes(role) !== !producer) {
    reader.fail(
      `${at}.role`,
      `${role} cannot be, since ${producer ? `${producer.name} makes it` : "no operator makes it"}`,
    );
  }
  const base = row.view_of ?? null;
  return {
    id,
    name: row.name,
    spec: `${dtype}[${shape.join(",")}]`,
    size,
    role,
    base: base === null ? -1 : numberOf(reader, base, ids, `${at}.view_of`),
    label: reader.given(row, "label", ["str", "NoneType"], null, at),
  };
}

/** The values that a nesting of names names. @returns {number[]} */
function leavesOf(reader, document, key, kinds, ids, where) {
  const at = `${where}.${key}`;
  const found = [];
  const visit = (node, depth) => {
    if (depth > DEEPEST) reader.fail(at, "it is nested too deeply");
    if (node === null) return;
    if (typeof node === "object") for (const value of Object.values(node)) visit(value, depth + 1);
    else found.push(numberOf(reader, node, ids, at));
  };
  visit(reader.given(document, key, kinds, key === "arguments" ? [] : null, where), 0);
  return found;
}

/** The number of operators before the first backward one. */
function forwardCount(operators) {
  const first = operators.findIndex(({ phase }) => phase === "backward");
  return first < 0 ? operators.length : first;
}

/** Invariants of every graph; see ``tinyckpt.core.graph``. */
function checkGraph(reader, data, operators, where) {
  const fail = (at, problem) => reader.fail(where, `${at}: ${problem}`);
  const forward = forwardCount(operators);
  operators.forEach(({ outputs }, i) => {
    if (new Set(outputs).size < outputs.length)
      fail(`operators[${i}]`, "an operator needs at least one output, and each once");
  });
  data.forEach(({ producer, base }, i) => {
    if (producer < 0 && base >= 0) fail(`data[${i}]`, "a source is not a view");
  });
  for (const operator of operators) {
    const at = `operators[${operator.id}]`;
    for (const value of operator.inputs) {
      if (data[value].producer >= operator.id) fail(at, `reads ${data[value].name}, which is produced later`);
    }
    for (const value of operator.outputs) {
      const { base } = data[value];
      if (base >= 0 && !operator.inputs.includes(base))
        fail(at, `output ${value} is a view of something that is not an input`);
    }
    if (operator.kind === "update") checkUpdate(fail, data, operators, operator, at);
    if (operator.phase === "forward" && operator.id >= forward) fail(at, "a forward operator after a backward one");
  }
}

function checkUpdate(fail, data, operators, operator, at) {
  if (operator.inputs.length !== 2 || operator.outputs.length !== 1)
    fail(at, "an update reads a source and a value, and returns one");
  const [source, value, result] = [...operator.inputs, ...operator.outputs].map((id) => data[id]);
  if (source.producer >= 0 || source.role === "constant" || result.base !== source.id)
    fail(at, `${source.name} is not a source that can be updated`);
  if (source.spec !== value.spec || value.spec !== result.spec)
    fail(at, `${source.name}: ${source.spec} cannot take ${value.name}: ${value.spec}`);
  if (operators.filter(({ kind, inputs }) => kind === "update" && inputs.includes(source.id)).length > 1)
    fail(at, `${source.name} is updated twice`);
}

/** A name as it is shown. @param {string} text */
export function shownName(text) {
  const line = printable(text);
  return line.length <= LONGEST_NAME ? line : `${line.slice(0, LONGEST_NAME - 1)}…`;
}

/** A title of the backward pass in words, as `spoken` of base/display.py. @param {string} title */
function spoken(title) {
  if (title.length > LONGEST_NAME) return title;
  const said = title.replace(ADJOINT, (_, name, number) => `gradient of ${name}${number ? ` (${number})` : ""}`);
  return said === title ? title : spoken(said);
}

/** The display name: scope and user-given name come first. @param {boolean} backward */
function titled(scope, labels, name, backward) {
  const title = [...new Set(labels)].join(", ") || name;
  const own = title === name ? title : `${title} (${name})`;
  const full = scope ? `${scope}/${own}` : own;
  return shownName(backward ? spoken(full) : full);
}

/** Lists of numbers end to end, and where each begins. @param {number[][]} lists @returns {Lists} */
export function endToEnd(lists) {
  const first = new Int32Array(lists.length + 1);
  lists.forEach((list, i) => (first[i + 1] = first[i] + list.length));
  return { first, items: Int32Array.from(lists.flat()) };
}

/** A graph in the page's data model, with the inputs of planning. @param {number} loss or the first result */
export function pageGraph(name, data, operators, results, loss = results[0]) {
  const of = (rows, key) => Float64Array.from(rows, (row) => row[key]);
  const scopeOf = ({ producer }) => (producer < 0 ? "" : operators[producer].scope);
  const costs = operators.map(({ cost }) => cost ?? 1);
  const given = operators.some(({ cost }) => cost !== null);
  const unit = !given ? "evaluations" : operators.every(({ cost, flops }) => cost === flops) ? "FLOPs" : "cost";
  const forward = forwardCount(operators);
  // As loss_label of planner/model/value_fates.py: a loss that nobody named is called one.
  const isLoss = ({ id, producer, name: own }) =>
    id === loss &&
    producer >= 0 &&
    producer < forward &&
    forward < operators.length &&
    own.replace(/_\d+$/, "") === operators[producer].kind &&
    own !== operators[producer].kind;
  const labelOf = (node) => node.label || (isLoss(node) ? "loss" : "");
  const numbers = (test) => Int32Array.from(operators.filter(test), ({ id }) => id);
  return {
    name: shownName(name),
    forward_count: forward,
    data: {
      names: data.map((node) =>
        titled(scopeOf(node), [labelOf(node)].filter(Boolean), node.name, node.producer >= forward),
      ),
      plain: data.map((node) => node.name),
      roles: data.map(({ role }) => role),
      specs: data.map(({ spec }) => spec),
      nbytes: Float64Array.from(data, ({ base, size }) => (base < 0 ? size : 0)),
      bases: Int32Array.from(data, ({ base }) => base),
      sizes: of(data, "size"),
      producers: Int32Array.from(data, ({ producer }) => producer),
      results: Int32Array.from(results),
    },
    operators: {
      names: operators.map((each) =>
        titled(each.scope, each.outputs.map((id) => labelOf(data[id])).filter(Boolean), each.name, each.id >= forward),
      ),
      plain: operators.map((each) => each.name),
      kinds: operators.map(({ kind }) => shownName(kind)),
      scopes: operators.map(({ scope }) => shownName(scope)),
      workspace: of(operators, "workspace"),
      flops: Float64Array.from(operators, ({ flops }) => Math.min(flops, MOST_FLOPS)),
      adjoints: Int32Array.from(operators, ({ adjoint }) => adjoint),
      inputs: endToEnd(operators.map(({ inputs }) => inputs)),
      outputs: endToEnd(operators.map(({ outputs }) => outputs)),
    },
    planning: {
      once: numbers(({ once }) => once),
      updates: numbers(({ kind }) => kind === "update"),
      costs,
      unit,
      names: data.filter(({ producer }) => producer >= 0 && producer < forward).map((node) => node.name),
    },
  };
}
