/** Interactive question: click the values that an adjoint reads; the answer is shown as arrows. */
(() => {
  const { made, drawn, listed } = Predict;
  const MARKS = { right: "✓", missed: "!", surplus: "✗" };
  const SAID = { right: "right", missed: "missed", surplus: "not needed" };
  const [HEAD, GAP] = [7, 3]; // pixels of an arrow, and between it and a node

  /** An arrow between two nodes, bent around the nodes between them. */
  function arrow(from, to) {
    const [a, b] = [from, to].map((node) => [
      node.offsetLeft + node.offsetWidth / 2, node.offsetTop + node.offsetHeight / 2,
      Math.hypot(node.offsetWidth, node.offsetHeight) / 2.8 + GAP,
    ]);
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const far = Math.abs(dy) < from.offsetHeight && Math.abs(dx) > 2 * from.offsetWidth;
    const bend = far ? -0.9 * from.offsetHeight : 0;
    const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2 + bend];
    /** The point on the edge of a node in the direction of the bend. */
    const edge = ([x, y, radius]) => {
      const [along, down] = [middle[0] - x, middle[1] - y];
      const long = Math.hypot(along, down) || 1;
      return [x + (along * radius) / long, y + (down * radius) / long];
    };
    const [start, end] = [edge(a), edge(b)];
    const angle = Math.atan2(end[1] - middle[1], end[0] - middle[0]);
    const wing = (turn) => [end[0] - HEAD * Math.cos(angle + turn), end[1] - HEAD * Math.sin(angle + turn)];
    return drawn("g", {}, [
      drawn("path", { class: "read", d: `M${start}Q${middle} ${end}` }),
      drawn("path", { class: "head", d: `M${end}L${wing(0.5)}L${wing(-0.5)}z` }),
    ]);
  }

  Predict.kinds.needs = (place, { columns, rounds }) => {
    const asked = made("p", { className: "asked" });
    const said = Predict.told();
    const score = made("p", { className: "own" });
    const arrows = drawn("svg", { class: "arrows", "aria-hidden": "true" });
    const graph = made("div", { className: "values", role: "group" }, [arrows]);
    graph.setAttribute("aria-label", "Values of the graph");
    /** @type {Map<string, HTMLButtonElement>} */
    const buttons = new Map();
    for (const pair of columns) {
      const column = made("div", {}, pair.map((name) => (name ? node(name) : made("span", { className: "none" }))));
      graph.append(column);
    }
    let [round, revealed] = [0, false];
    const chosen = new Set();
    const points = rounds.map(() => null);

    function node(name) {
      const button = Predict.button(name, () => {
        if (revealed) return; // the verdict is about the clicks before it
        if (!chosen.delete(name)) chosen.add(name);
        show();
      });
      buttons.set(name, button);
      return button;
    }

    function stateOf(name) {
      const { right, target, held } = rounds[round];
      if (name === target) return "target";
      if (!revealed) return held.includes(name) ? "held" : "";
      if (right.includes(name)) return chosen.has(name) ? "right" : "missed";
      return chosen.has(name) ? "surplus" : held.includes(name) ? "held" : "";
    }

    function show() {
      const { question, target, edges } = rounds[round];
      asked.textContent = `${round + 1} of ${rounds.length}: ${question}`;
      for (const [name, button] of buttons) {
        const state = stateOf(name);
        button.dataset.state = state;
        button.dataset.mark = MARKS[state] ?? "";
        button.disabled = name === target;
        button.setAttribute("aria-pressed", String(chosen.has(name)));
        const words = { ...SAID, held: "in memory", target: "asked for" }[state];
        button.setAttribute("aria-label", words ? `${name}, ${words}` : name);
      }
      arrows.replaceChildren(...(revealed ? edges.map((ends) => arrow(...ends.map((name) => buttons.get(name)))) : []));
      next.hidden = !revealed;
      next.textContent = round + 1 < rounds.length ? "Next" : "Start again";
      reveal.disabled = revealed;
      said.textContent = revealed ? verdict() : "";
      const known = points.filter((point) => point !== null);
      score.textContent = known.length > 1 ? `So far ${known.filter(Boolean).length} of ${known.length} correct.` : "";
    }

    /** The inputs found, missed and clicked in error. */
    function verdict() {
      const { right, truth, why } = rounds[round];
      const missed = right.filter((name) => !chosen.has(name));
      const surplus = [...chosen].filter((name) => !right.includes(name));
      const faults = [
        missed.length ? `missed ${listed(missed)}` : "",
        surplus.length ? `clicked ${listed(surplus)}, ${surplus.length === 1 ? "which is" : "which are"} not needed` : "",
      ].filter(Boolean);
      points[round] = !faults.length;
      const own = faults.length ? `You found ${right.length - missed.length} of ${right.length}, ${faults.join(", and ")}.` : "You were right.";
      return `${truth} ${own} ${why}`;
    }

    const reveal = Predict.button("Reveal", () => {
      revealed = true;
      show();
      next.focus({ preventScroll: true });
    });
    const next = Predict.button("Next", () => {
      revealed = false;
      round = (round + 1) % rounds.length;
      if (!round) points.fill(null);
      chosen.clear();
      show();
      reveal.focus({ preventScroll: true });
    });
    new ResizeObserver(() => show()).observe(graph);
    place.replaceChildren(asked, graph, made("p", { className: "act" }, [reveal, next]), said, score);
    show();
  };
})();
