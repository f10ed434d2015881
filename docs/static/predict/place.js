/** Interactive question: choose the values to save, one button each; then both memory curves. */
(() => {
  const { made, drawn, plot, hatch, outline, counts, values, more, listed } = Predict;
  const [TOP, LEAST] = [8, 8]; // pixels above the curves; values of the vertical scale, at least

  Predict.kinds.place = (place, { names, nodes, evaluations, policy }) => {
    const said = Predict.told();
    const own = made("p", { className: "own" });
    const row = made("div", { className: "nodes", role: "group" });
    row.setAttribute("aria-label", "Values to keep");
    let [number, revealed, width, height] = [0, false, 0, 0];
    const svg = plot((wide, high) => {
      [width, height] = [wide, high];
      draw();
    });
    const buttons = names.map((name, bit) => Predict.button(name, () => choose(number ^ (1 << bit))));
    row.append(...buttons);
    const peaks = nodes.map((digits) => Math.max(...counts(digits)));
    const theirs = counts(policy.nodes);
    const least = Math.max(...theirs);

    function choose(next) {
      number = next;
      const kept = names.filter((_, bit) => (number >> bit) & 1);
      buttons.forEach((button, bit) => button.setAttribute("aria-pressed", String(Boolean((number >> bit) & 1))));
      own.textContent = kept.length ? `You keep ${kept.join(", ")}.` : "You keep nothing yet.";
      show();
    }

    function show() {
      svg.toggleAttribute("hidden", !revealed);
      said.textContent = revealed ? words() : "";
      if (revealed && width) draw();
    }

    function words() {
      const peak = peaks[number];
      const fewest = Math.min(...evaluations.filter((_, other) => peaks[other] <= peak));
      const spare = evaluations[number] - fewest;
      return (
        `Yours, the line: peak ${values(peak)}, ${evaluations[number]} evaluations. ` +
        `sqrt_n, filled, keeps ${listed(policy.kept)}: peak ${values(least)}, ${policy.evaluations} evaluations. ` +
        `You take ${more(peak - least, "value")}, and ${more(evaluations[number] - policy.evaluations, "evaluation")}. ` +
        `Of all ${nodes.length} sets, within your peak, ` +
        (spare ? `the best takes ${more(-spare, "evaluation")}; and ` : "none takes fewer evaluations; ") +
        `the lowest peak of all is ${Math.min(...peaks)}.`
      );
    }

    function draw() {
      const [yours, peak] = [counts(nodes[number]), peaks[number]];
      const steps = Math.max(yours.length, theirs.length);
      const x = (step) => (step * width) / steps;
      const y = (count) => height - (count * (height - TOP)) / Math.max(peak, least, LEAST);
      const top = y(Math.max(peak, least));
      const box = { x: 0, y: top, width, height: y(Math.min(peak, least)) - top };
      svg.replaceChildren(
        hatch("off-place"),
        drawn("path", { class: "truth", d: outline(theirs, x, y) }),
        drawn("rect", { fill: "url(#off-place)", ...box }),
        drawn("path", { class: "guess", d: outline(yours, x, y) }),
      );
    }

    const reveal = Predict.button("Reveal", () => {
      revealed = true;
      show();
    });
    const again = Predict.button("Start again", () => {
      revealed = false;
      choose(0);
    });
    place.replaceChildren(row, own, made("p", { className: "act" }, [reveal, again]), svg, said);
    choose(0);
  };
})();
