/**
 * A trace with what follows from it: totals, when values are resident, when operators are evaluated.
 *
 * @typedef {object} Series  one entry a tick: what a timeline shows
 * @property {Int32Array} steps the step that each tick shows
 */

/** Add to a trace all that is derived from its columns, once.
 * @param {any} trace @param {any} graph @param {number} id @param {boolean} inNodes
 */
function modelOf(trace, graph, id, inNodes) {
  const count = trace.verbs.length;
  const evaluations = new Int32Array(count);
  const peaks = new Float64Array(count);
  const computes = [];
  let peakStep = 0;
  for (let step = 0; step < count; step++) {
    if (trace.verbs[step] === COMPUTE) computes.push(step);
    evaluations[step] = computes.length;
    peaks[step] = Math.max(step ? peaks[step - 1] : 0, trace.live[step]);
    if (trace.live[step] > trace.live[peakStep]) peakStep = step;
  }
  return {
    ...trace,
    id,
    inNodes,
    graph,
    count,
    evaluations,
    peaks,
    peakStep,
    computes: Int32Array.from(computes),
    bytes: trace.bytes ?? trace.live,
    spans: spansOf(trace, graph),
    evaluatedAt: grouped(
      graph.operators.names.length,
      computes.map((step) => trace.targets[step]),
    ),
    fateOf: new Map(Array.from(trace.fates.data, (data, i) => [data, i])),
    histories: new Map(),
  };
}

/** From when to when every value is resident: begins at a step, is gone at another.
 * @param {any} trace @param {any} graph
 * @returns {{first: Int32Array, begins: Int32Array, ends: Int32Array}} spans of value d are
 *     first[d]..first[d+1]
 */
function spansOf(trace, graph) {
  const count = graph.data.names.length;
  const open = new Int32Array(count).fill(-1);
  const data = [];
  const begins = [];
  const ends = [];
  const close = (value, step) => {
    if (open[value] < 0) return;
    ends[open[value]] = step;
    open[value] = -1;
  };
  const begin = (value, step) => {
    if (open[value] >= 0) return;
    open[value] = data.length;
    data.push(value);
    begins.push(step);
    ends.push(trace.verbs.length);
  };
  for (let step = 0; step < trace.verbs.length; step++) {
    const target = trace.targets[step];
    if (trace.verbs[step] === COMPUTE) {
      for (const value of listAt(graph.operators.outputs, target)) begin(value, step);
    } else if (trace.verbs[step] === FETCH) begin(target, step);
    else close(target, step);
  }
  const { first, order } = grouped(count, data);
  return { first, begins: order.map((i) => begins[i]), ends: order.map((i) => ends[i]) };
}

/** Whether a value is resident after a step. */
function isResident(spans, value, step) {
  const at = lastAtMost(spans.begins, step, spans.first[value], spans.first[value + 1]);
  return at >= 0 && spans.ends[at] > step;
}

/** The values that are resident after a step, largest first. */
function residentAt(model, step) {
  const found = [];
  for (let value = 0; value < model.graph.data.names.length; value++) {
    if (isResident(model.spans, value, step)) found.push(value);
  }
  const { nbytes } = model.graph.data;
  return found.sort((a, b) => nbytes[b] - nbytes[a] || a - b);
}

/** The history of one of the graph's views, made when it is first asked for. */
function historyOfView(model, view) {
  if (!model.histories.has(view)) {
    model.histories.set(view, historyOf(model, model.graph, model.graph.views[view]));
  }
  return model.histories.get(view);
}

/** The step that a tick shows: the tick itself, or that of the tick-th evaluation from 0.
 * A shorter trace stays at its end.
 * @param {any} model @param {number} tick @param {"step" | "evaluation"} align
 */
function stepOfTick(model, tick, align) {
  if (tick < 0) return -1;
  if (align === "step") return Math.min(tick, model.count - 1);
  return tick < model.computes.length ? model.computes[tick] : model.count - 1;
}

/** The tick at which a step is shown. */
function tickOfStep(model, step, align) {
  if (align === "step" || step < 0) return step;
  return Math.max(0, model.evaluations[Math.min(step, model.count - 1)] - 1);
}

/** How many ticks a trace has. */
function ticksOf(model, align) {
  return align === "step" ? model.count : model.computes.length;
}

/** What is done at a step, in words. */
function stepWords(model, step) {
  if (step < 0) return "before the first step";
  const verb = model.verbs[step];
  return `${VERBS[verb]} ${targetName(model, step)}`;
}

/** The name of what a step acts on. */
function targetName(model, step) {
  const nodes = model.verbs[step] === COMPUTE ? model.graph.operators : model.graph.data;
  return nodes.names[model.targets[step]];
}

/** Whether a step evaluates an operator that was evaluated before. */
function isAgain(model, step) {
  if (model.verbs[step] !== COMPUTE) return false;
  const { first, order } = model.evaluatedAt;
  const operator = model.targets[step];
  return model.computes[order[first[operator]]] < step;
}
