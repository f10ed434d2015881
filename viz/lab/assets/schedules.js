/**
 * Schedule and trace documents: parsed as ``tinyckpt.documents.schedules`` does, with the same
 * errors. The schedule of a trace is replayed, and its numbers must be those in the document.
 */

import { Allocation, COMPUTE, FETCH, OFFLOAD } from "../../player/assets/allocation.js";
import { listAt } from "../../player/assets/columns.js";
import { readGraph } from "./graphs.js";
import { FormatError, typeName } from "./reader.js";

/**
 * @import { DocumentReader } from "./reader.js"
 */

const STEP_NAMES = ["compute", "free", "offload", "fetch", "update"]; // the first four are VERBS
export const UPDATE_STEP = 4;
const COLUMNS_OF_TRACE = ["nodes", "activation", "cotangent", "output", "workspace", "host", "evaluations_so_far"];

/** @param {DocumentReader} reader @param {any} document @param {string} where */
export function readSchedule(reader, document, where, dtypes) {
  const graph = readGraph(reader, reader.get(document, "graph", ["dict"], where), `${where}.graph`, dtypes);
  const rows = reader.get(document, "steps", ["list"], where);
  const [verbs, targets] = [new Int32Array(rows.length), new Int32Array(rows.length)];
  rows.forEach((value, i) => {
    const at = `${where}.steps[${i}]`;
    const [verb, target] = reader.row(value, 2, at);
    verbs[i] = STEP_NAMES.indexOf(reader.oneOf(verb, ["compute", "update", "free", "offload", "fetch"], at));
    const evaluates = verbs[i] === COMPUTE || verbs[i] === UPDATE_STEP;
    targets[i] = reader.count(target, at, evaluates ? graph.operators.names.length : graph.data.names.length);
  });
  const policy = reader.get(document, "policy", ["str"], where);
  readOptions(reader, reader.get(document, "options", ["dict"], where), `${where}.options`);
  const note = reader.get(document, "note", ["str"], where);
  const checkpoints = reader.counts(
    reader.get(document, "checkpoints", ["list"], where),
    `${where}.checkpoints`,
    graph.data.names.length,
  );
  return { graph, verbs, targets, policy, note, checkpoints };
}

function readOptions(reader, options, where) {
  for (const [name, option] of Object.entries(options)) {
    if (typeName(option) !== "dict" || Object.keys(option).join() !== "fraction") continue;
    const at = `${where}.${name}.fraction`;
    const [above, below] = reader.row(option.fraction, 2, at);
    reader.check(above, ["int"], `${at}[0]`);
    if (!reader.count(below, `${at}[1]`)) reader.fail(`${at}[1]`, "0 is below no fraction");
  }
}

/** A trace's schedule, whose numbers are its own. */
export function readTrace(reader, document, dtypes) {
  const schedule = readSchedule(reader, reader.get(document, "schedule", ["dict"], "trace"), "schedule", dtypes);
  const columns = COLUMNS_OF_TRACE.map((name) =>
    reader.counts(reader.get(document, name, ["list"], "trace"), `trace.${name}`),
  );
  const seconds = reader.get(document, "seconds", ["list"], "trace");
  if (seconds.length) reader.row(seconds, schedule.verbs.length, "trace.seconds");
  seconds.forEach((value, i) => reader.number(value, `trace.seconds[${i}]`));
  const replayed = checkedReplay(reader, schedule);
  if (
    columns.some(
      (column, i) => column.length !== replayed[i].length || column.some((value, k) => value !== replayed[i][k]),
    )
  ) {
    throw new FormatError(`${reader.path}: the numbers are not those of its schedule; was it edited?`);
  }
  return schedule;
}

/** The columns of a schedule's trace, or an error that names the first step that is not legal. */
export function checkedReplay(reader, schedule) {
  const machine = new Verifier(reader, schedule);
  const rows = Array.from(schedule.verbs, (_, step) => machine.row(step));
  machine.checkOutputs();
  return COLUMNS_OF_TRACE.map((_, column) => rows.map((row) => row[column]));
}

/** The machine without arrays that knows whether a schedule is legal: ``tinyckpt.replay``. */
class Verifier extends Allocation {
  constructor(reader, schedule) {
    super(schedule.graph);
    this.graph = schedule.graph;
    this.policy = schedule.policy;
    this.verbs = schedule.verbs;
    this.targets = schedule.targets;
    this.reader = reader;
    const { data, operators } = this.graph;
    this.kinds = Uint8Array.from(data.roles, (role) => Number(role === "cotangent"));
    for (const value of data.results) this.kinds[value] = 2;
    this.live = [0, 0, 0];
    this.nodes = 0;
    this.host = 0;
    this.evaluations = 0;
    this.freedAt = new Map();
    this.onHost = new Map();
    this.updatedAt = new Map();
    this.onceAt = new Map();
    this.once = new Set(this.graph.planning.once);
    this.isUpdate = operators.kinds.map((kind) => kind === "update");
  }

  fail(step, what) {
    throw new FormatError(`${this.reader.path}: the schedule is not legal: step ${step}: ${what}`);
  }

  /** A step's verb and the name of its operand. @param {number} step */
  said(step) {
    const evaluates = this.verbs[step] === COMPUTE || this.verbs[step] === UPDATE_STEP;
    const { plain } = evaluates ? this.graph.operators : this.graph.data;
    return `${STEP_NAMES[this.verbs[step]]} ${plain[this.targets[step]]}`;
  }

  /** Do one step. @param {number} step @returns {number[]} the trace's row */
  row(step) {
    const [verb, target] = [this.verbs[step], this.targets[step]];
    let workspace = 0;
    if (verb === COMPUTE || verb === UPDATE_STEP) {
      workspace = this.compute(step, target, verb);
      if (verb === UPDATE_STEP) this.updatedAt.set(listAt(this.graph.operators.inputs, target)[0], step);
    } else if (verb === FETCH) this.fetch(step, target);
    else {
      this.require(step, target, false);
      if (verb === OFFLOAD) this.onHost.set(target, step);
      this.freedAt.set(target, step);
      this.take(verb, target);
    }
    return [this.nodes, ...this.live, workspace, this.host, this.evaluations];
  }

  compute(step, operator, verb) {
    const { data, operators } = this.graph;
    const name = operators.plain[operator];
    if (this.isUpdate[operator] !== (verb === UPDATE_STEP))
      this.fail(step, `${this.said(step)}; ${this.isUpdate[operator] ? "update" : "compute"} it`);
    if (this.once.has(operator) && this.onceAt.has(operator)) {
      this.fail(
        step,
        `${this.said(step)}, which may not be evaluated twice and was at step ${this.onceAt.get(operator)}; keep its outputs`,
      );
    }
    this.onceAt.set(operator, step);
    const inputs = listAt(operators.inputs, operator);
    for (const value of inputs) this.require(step, value, true);
    if (this.updatedAt.size) for (const value of inputs) this.requireOld(step, value);
    const outputs = listAt(operators.outputs, operator);
    for (const value of outputs) {
      if (this.resident[value] || this.onHost.has(value)) {
        this.fail(
          step,
          `${STEP_NAMES[verb]} ${name}, whose result ${data.plain[value]} is still resident; free it first`,
        );
      }
    }
    this.take(COMPUTE, operator);
    this.evaluations++;
    return operators.workspace[operator];
  }

  fetch(step, value) {
    if (!this.onHost.delete(value)) this.fail(step, `fetch ${this.graph.data.plain[value]}, which is not on the host`);
    this.take(FETCH, value);
  }

  /** @param {number} value @param {number} now */
  become(value, now) {
    this.nodes += Number(now > 0) - Number(this.resident[value] > 0);
    super.become(value, now);
  }

  /** @param {number} block @param {number} sign */
  count(block, sign) {
    const owner = this.owner.items[block];
    this.live[this.kinds[owner]] += sign * this.data.sizes[owner];
  }

  /** @param {number} value @param {number} sign */
  move(value, sign) {
    this.host += sign * this.data.sizes[value];
  }

  require(step, value, isRead) {
    if (this.resident[value]) return;
    const { plain, producers } = this.graph.data;
    const said = this.said(step);
    if (producers[value] < 0) {
      if (isRead) return;
      this.fail(step, `${said}, a source; sources stay with the caller`);
    }
    const need = `${said}${isRead ? ` needs ${plain[value]}` : ""}, which`;
    if (this.onHost.has(value)) this.fail(step, `${need} was moved to the host at step ${this.onHost.get(value)}`);
    if (this.freedAt.has(value)) this.fail(step, `${need} was freed at step ${this.freedAt.get(value)}`);
    this.fail(step, `${need} has not been computed yet`);
  }

  /** The source whose memory a value shows as the caller gave it; -1 if it shows none. @param {number} value */
  oldSource(value) {
    const { bases, producers } = this.graph.data;
    for (; bases[value] >= 0; value = bases[value]) if (this.isUpdate[producers[value]]) return -1;
    return producers[value] < 0 ? value : -1;
  }

  requireOld(step, value) {
    const source = this.oldSource(value);
    if (!this.updatedAt.has(source)) return;
    const { plain } = this.graph.data;
    const shows = source === value ? "" : `, a view of ${plain[source]}`;
    this.fail(
      step,
      `${this.said(step)} needs ${plain[value]}${shows} as it was before its update at step ${this.updatedAt.get(source)}`,
    );
  }

  checkOutputs() {
    const { plain, producers, results } = this.graph.data;
    const illegal = (what) => {
      throw new FormatError(`${this.reader.path}: the schedule is not legal: ${this.policy}: ${what}`);
    };
    const missing = Array.from(results).filter((value) => !this.resident[value] && producers[value] >= 0);
    if (missing.length)
      illegal(
        `the schedule ends without ${missing.map((value) => plain[value]).join(", ")}; every result must be computed and not freed`,
      );
    for (const value of results) {
      if (!this.updatedAt.has(this.oldSource(value))) continue;
      illegal(`the result ${plain[value]} shows a source that is updated; return what it is updated to, or a copy`);
    }
  }
}
