/** What happens, in one sentence. */

const MOST_IN_CAPTION = 3; // names

/** What a step does, in words; nothing before the first one. The same texts as in Python. */
function captionOf(model, step) {
  if (step < 0) return "";
  const { data, operators } = model.graph;
  const [verb, target] = [model.verbs[step], model.targets[step]];
  if (verb === COMPUTE) {
    const read = new Set(listAt(operators.inputs, target));
    const names = [...read].filter((i) => data.producers[i] >= 0).map((i) => data.names[i]);
    const from = names.length ? ` from ${namesText(names)}` : "";
    return `${operators.names[target]} is computed${isAgain(model, step) ? " again" : ""}${from}`;
  }
  const size = sizeText(data.sizes[target]);
  if (verb === OFFLOAD) return `${data.names[target]} goes to the host (${size})`;
  if (verb === FETCH) return `${data.names[target]} comes back from the host (${size})`;
  const freed = [];
  for (let i = step; i >= 0 && model.verbs[i] === FREE; i--) freed.unshift(data.names[model.targets[i]]);
  return `${namesText(freed)} ${freed.length === 1 ? "is" : "are"} freed`;
}

/** A few names as a text. @param {string[]} names */
function namesText(names) {
  const shown = names.length > MOST_IN_CAPTION ? [...names.slice(0, 2), `${names.length - 2} more`] : names;
  return [shown.slice(0, -1).join(", "), shown.at(-1)].filter(Boolean).join(" and ");
}
