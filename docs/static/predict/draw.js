/** Interactive question: draw live memory at every step; the answer is shown below the curve. */
(() => {
  const { made, drawn, plot, hatch, outline, counts, values } = Predict;
  const [LEFT, TOP, GROUND, TICK] = [26, 10, 4, 5]; // pixels; values between two lines of the grid

  Predict.kinds.draw = (place, { steps, nodes, question }) => {
    const truth = counts(nodes);
    const least = 2 * Math.max(...truth); // the scale must not reveal the peak
    const most = TICK * Math.ceil(least / TICK);
    const own = steps.map(() => 0);
    const said = Predict.told();
    const shown = made("p", { className: "own" });
    let [revealed, at, width, height] = [false, 0, 0, 0];
    const x = (step) => LEFT + (step * (width - LEFT)) / steps.length;
    const y = (count) => height - GROUND - (count * (height - TOP - GROUND)) / most;

    const sliders = steps.map((step, column) => {
      const slider = drawn("rect", {
        class: "column", role: "slider", "aria-orientation": "vertical", "aria-valuemin": 0,
        "aria-valuemax": most, "aria-label": `step ${column}: ${step}`,
      });
      slider.addEventListener("focus", () => aim(column));
      return slider;
    });
    const picture = drawn("g", { "aria-hidden": "true" });
    const svg = plot(
      (wide, high) => {
        [width, height] = [wide, high];
        sliders.forEach((slider, column) => {
          const box = { x: x(column), y: TOP, width: x(1) - x(0), height: y(0) - TOP };
          for (const [name, value] of Object.entries(box)) slider.setAttribute(name, String(value));
        });
        draw();
      },
      { role: "group", "aria-label": "Memory at every step; arrow keys draw" },
    );
    svg.append(hatch("off-draw"), picture, ...sliders);

    /** Select the column that keys change. */
    function aim(column) {
      at = column;
      sliders.forEach((slider, each) => slider.setAttribute("tabindex", each === at ? "0" : "-1"));
      shown.textContent = `Step ${at}, ${steps[at]}: you say ${values(own[at])}${revealed ? `, it is ${truth[at]}` : ""}.`;
    }

    function set(column, count) {
      own[column] = Math.min(Math.max(count, 0), most);
      sliders[column].setAttribute("aria-valuenow", String(own[column]));
      sliders[column].setAttribute("aria-valuetext", values(own[column]));
    }

    function changed(column) {
      aim(column);
      if (revealed) said.textContent = words();
      if (width) draw();
    }

    function draw() {
      const parts = [];
      for (let count = 0; count <= most; count += TICK) {
        parts.push(drawn("path", { class: "grid", d: `M${LEFT} ${y(count)}H${width}` }));
        const label = drawn("text", { x: LEFT - 5, y: y(count) + 4 });
        label.textContent = String(count);
        parts.push(label);
      }
      if (revealed) {
        parts.push(drawn("path", { class: "truth", d: outline(truth, x, y) }));
        // One curve forward, the other back: the area between them.
        const between = `${outline(own, x, y)}${outline(truth, x, y).replace("M", "L")}z`;
        parts.push(drawn("path", { fill: "url(#off-draw)", "fill-rule": "evenodd", d: between }));
      }
      parts.push(drawn("path", { class: "guess", d: outline(own, x, y) }));
      picture.replaceChildren(...parts);
    }

    function words() {
      const peak = (curve) => `${values(Math.max(...curve))} at step ${curve.indexOf(Math.max(...curve))}`;
      const off = own.map((count, step) => count - truth[step]);
      const right = off.filter((count) => !count).length;
      const [high, low] = [off.filter((count) => count > 0), off.filter((count) => count < 0)];
      const sum = off.reduce((all, count) => all + Math.abs(count), 0);
      return (
        `The peak is ${peak(truth)}, ${steps[truth.indexOf(Math.max(...truth))]}; yours is ${peak(own)}. ` +
        `Of ${steps.length} steps: ${right} right, ${high.length} too high, ${low.length} too low` +
        (sum ? `; hatched, ${values(sum)} total.` : ". You drew it.")
      );
    }

    /** Draw from the previous to the current pointer position, which may be columns apart. */
    function stroke(event, from) {
      const box = svg.getBoundingClientRect();
      const within = (count, last) => Math.min(Math.max(count, 0), last);
      const column = within(Math.floor(((event.clientX - box.left - LEFT) / (width - LEFT)) * steps.length), steps.length - 1);
      const count = within(Math.round(((box.bottom - GROUND - event.clientY) / (height - TOP - GROUND)) * most), most);
      const [start, first] = from ?? [column, count];
      const way = Math.abs(column - start);
      for (let i = 0; i <= way; i++) {
        const share = way ? i / way : 1;
        set(start + Math.sign(column - start) * i, Math.round(first + share * (count - first)));
      }
      changed(column);
      return [column, count];
    }

    svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      svg.setPointerCapture(event.pointerId);
      let from = stroke(event, null);
      sliders[at].focus({ preventScroll: true });
      svg.onpointermove = (move) => (from = stroke(move, from));
      svg.onpointerup = svg.onpointercancel = () => (svg.onpointermove = null);
      event.preventDefault();
    });
    svg.addEventListener("keydown", (event) => {
      const last = steps.length - 1;
      const heights = { ArrowUp: own[at] + 1, ArrowDown: own[at] - 1, PageUp: own[at] + TICK, PageDown: own[at] - TICK };
      const columns = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last };
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key in heights) {
        set(at, heights[event.key]);
        changed(at);
      } else if (event.key in columns) sliders[columns[event.key]].focus();
      else return;
      event.preventDefault();
    });

    const reveal = Predict.button("Reveal", () => show(true));
    const again = Predict.button("Start again", () => {
      steps.forEach((_, column) => set(column, 0));
      show(false);
    });
    function show(is) {
      revealed = is;
      said.textContent = "";
      changed(is ? at : 0);
    }
    const asked = made("p", { textContent: question });
    place.replaceChildren(asked, svg, shown, made("p", { className: "act" }, [reveal, again]), said);
    steps.forEach((_, column) => set(column, 0));
    aim(0);
  };
})();
