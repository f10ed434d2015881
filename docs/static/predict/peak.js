/** Interactive question: set a line to the peak and a mark to its step; then the curve is shown. */
(() => {
  const { made, drawn, plot, hatch, outline, counts, counted, values, more } = Predict;
  const [TOP, MARK, RING] = [14, 8, 6]; // pixels

  function slider(name, most, text) {
    const input = made("input", { type: "range", min: 0, max: most, value: 0 });
    const output = made("output");
    const show = () => {
      output.textContent = text(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    input.addEventListener("input", show);
    show();
    return { input, label: made("label", {}, [made("span", { textContent: name }), input, output]) };
  }

  Predict.kinds.peak = (place, { steps, nodes }) => {
    const curve = counts(nodes);
    const truth = Math.max(...curve);
    const at = curve.indexOf(truth);
    const most = 2 * truth;
    const how = slider("How high", most, values);
    const when = slider("When", steps.length - 1, (step) => `step ${step}: ${steps[step]}`);
    const said = Predict.told();
    let [revealed, width, height] = [false, 0, 0];
    const guessed = () => [Number(how.input.value), Number(when.input.value)];
    const svg = plot((wide, high) => {
      [width, height] = [wide, high];
      draw();
    });

    function draw() {
      const [guess, step] = guessed();
      const x = (each) => MARK + (each * (width - 2 * MARK)) / steps.length;
      const y = (count) => height - MARK - (count * (height - TOP - MARK)) / most;
      const parts = [hatch("off-peak"), drawn("path", { class: "ground", d: `M0 ${y(0)}H${width}` })];
      if (revealed) {
        const [low, high] = [Math.min(guess, truth), Math.max(guess, truth)];
        const box = { x: 0, y: y(high), width, height: y(low) - y(high) };
        parts.push(drawn("path", { class: "truth", d: outline(curve, x, y) }));
        parts.push(drawn("rect", { fill: "url(#off-peak)", ...box }));
        parts.push(drawn("circle", { class: "peak", cx: x(at + 0.5), cy: y(truth), r: RING }));
      }
      parts.push(drawn("path", { class: "guess", d: `M0 ${y(guess)}H${width}` }));
      parts.push(drawn("circle", { class: "mark", cx: x(step + 0.5), cy: y(guess), r: MARK }));
      svg.replaceChildren(...parts);
    }

    function reveal() {
      revealed = true;
      const [guess, step] = guessed();
      const far = guess === truth ? "right" : `${more(guess - truth, "value")} than there are`;
      const off = Math.abs(step - at);
      const late = off ? `${counted(off, "step")} too ${step > at ? "late" : "early"}` : "right too";
      said.textContent = `The peak is ${values(truth)}, at step ${at}: ${steps[at]}. You said ${guess}: ${far}; and step ${step}: ${late}.`;
      draw();
    }

    for (const { input } of [how, when]) {
      input.addEventListener("input", () => (revealed ? reveal() : draw()));
    }
    svg.addEventListener("pointerdown", (event) => {
      const seize = ({ clientX, clientY }) => {
        const box = svg.getBoundingClientRect();
        const share = (clientX - box.left - MARK) / (width - 2 * MARK);
        const rise = (box.bottom - MARK - clientY) / (height - TOP - MARK);
        when.input.value = String(Math.floor(share * steps.length));
        how.input.value = String(Math.round(rise * most));
        for (const { input } of [how, when]) input.dispatchEvent(new Event("input"));
      };
      svg.setPointerCapture(event.pointerId);
      seize(event);
      svg.onpointermove = seize;
      svg.onpointerup = svg.onpointercancel = () => (svg.onpointermove = null);
    });
    const asked = made("p", { textContent: "Or draw it: how high is the peak, and at which step?" });
    place.replaceChildren(asked, svg, how.label, when.label, Predict.button("Reveal", reveal), said);
  };
})();
