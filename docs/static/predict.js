/** Questions asked with the mouse, a finger or the keyboard: guess the peak, place the checkpoints.
 *
 * What each choice comes to stands in predict-data.js; here it is shown, beside what is true.
 */
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const [WIDTH, HEIGHT] = [640, 180];

  /** An element with its properties and what is in it. */
  function made(tag, properties = {}, children = []) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function drawn(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  function picture(...children) {
    const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    svg.append(...children);
    return svg;
  }

  const counts = (digits) => Array.from(digits, (digit) => Number.parseInt(digit, 36));
  const values = (count) => `${count} value${count === 1 ? "" : "s"}`;
  const more = (count, one, many = `${one}s`) => {
    if (!count) return `as many ${many}`;
    return `${Math.abs(count)} ${Math.abs(count) === 1 ? one : many} ${count > 0 ? "more" : "fewer"}`;
  };

  /** The outline of a memory curve, from the ground and back to it. */
  function outline(nodes, steps, most) {
    const [wide, high] = [WIDTH / steps, (HEIGHT - 20) / most];
    let path = `M0 ${HEIGHT}`;
    nodes.forEach((count, step) => {
      const y = HEIGHT - count * high;
      path += `L${step * wide} ${y}L${(step + 1) * wide} ${y}`;
    });
    return `${path}L${nodes.length * wide} ${HEIGHT}`;
  }

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

  /** How high does the memory get, and when? A line and a mark, and then the curve. */
  function peak(place, { steps, nodes }) {
    const curve = counts(nodes);
    const truth = Math.max(...curve);
    const at = curve.indexOf(truth);
    const most = 2 * truth;
    const how = slider("How high", most, values);
    const when = slider("When", steps.length - 1, (step) => `step ${step}: ${steps[step]}`);
    const svg = picture();
    const said = made("p", { className: "said", role: "status" });
    const button = made("button", { type: "button", textContent: "Reveal" });
    let revealed = false;
    const x = (step) => ((step + 0.5) * WIDTH) / steps.length;
    const y = (count) => HEIGHT - (count * (HEIGHT - 20)) / most;

    function draw() {
      const [guess, step] = [Number(how.input.value), Number(when.input.value)];
      const parts = [drawn("path", { class: "ground", d: `M0 ${HEIGHT - 0.5}H${WIDTH}` })];
      if (revealed) {
        parts.push(drawn("path", { class: "truth", d: outline(curve, steps.length, most) }));
        const [low, high] = [Math.min(guess, truth), Math.max(guess, truth)];
        const height = y(low) - y(high);
        parts.push(drawn("rect", { class: "difference", x: 0, y: y(high), width: WIDTH, height }));
        parts.push(drawn("circle", { class: "peak", cx: x(at), cy: y(truth), r: 6 }));
      }
      parts.push(drawn("path", { class: "guess", d: `M0 ${y(guess)}H${WIDTH}` }));
      parts.push(drawn("circle", { class: "mark", cx: x(step), cy: y(guess), r: 8 }));
      svg.replaceChildren(...parts);
    }

    function reveal() {
      revealed = true;
      const [guess, step] = [Number(how.input.value), Number(when.input.value)];
      const far = guess === truth ? "right" : `${more(guess - truth, "value")} than there are`;
      const off = Math.abs(step - at);
      const late = off ? `${off} step${off === 1 ? "" : "s"} too ${step > at ? "late" : "early"}` : "right too";
      said.textContent = `The peak is ${values(truth)}, at step ${at}: ${steps[at]}. You said ${guess}: ${far}; and step ${step}: ${late}.`;
      draw();
    }

    for (const { input } of [how, when]) {
      input.addEventListener("input", () => (revealed ? reveal() : draw()));
    }
    svg.addEventListener("pointerdown", (event) => {
      const seize = ({ clientX, clientY }) => {
        const box = svg.getBoundingClientRect();
        const share = (clientX - box.left) / box.width;
        const height = (box.bottom - clientY) / box.height;
        when.input.value = Math.floor(share * steps.length);
        how.input.value = Math.round((height * HEIGHT * most) / (HEIGHT - 20));
        for (const { input } of [how, when]) input.dispatchEvent(new Event("input"));
      };
      svg.setPointerCapture(event.pointerId);
      seize(event);
      svg.onpointermove = seize;
      svg.onpointerup = svg.onpointercancel = () => (svg.onpointermove = null);
    });
    button.addEventListener("click", reveal);
    place.replaceChildren(made("p", { textContent: "Or draw it: how high does the memory get, and when?" }),
      svg, how.label, when.label, button, said);
    draw();
  }

  /** Which values are kept? A button a value, and then the memory of both, one over the other. */
  function checkpoints(place, { names, nodes, evaluations, policy }) {
    const svg = picture();
    const said = made("p", { className: "said", role: "status" });
    const own = made("p", { className: "own", textContent: "You keep nothing yet." });
    const reveal = made("button", { type: "button", textContent: "Reveal" });
    const again = made("button", { type: "button", textContent: "Start again" });
    const row = made("div", { className: "nodes", role: "group" });
    row.setAttribute("aria-label", "Values to keep");
    let [number, revealed] = [0, false];
    const buttons = names.map((name, bit) => {
      const button = made("button", { type: "button", textContent: name });
      button.addEventListener("click", () => choose(number ^ (1 << bit)));
      row.append(button);
      return button;
    });
    const peaks = nodes.map((digits) => Math.max(...counts(digits)));

    function choose(next) {
      number = next;
      const kept = names.filter((_, bit) => (number >> bit) & 1);
      buttons.forEach((button, bit) => button.setAttribute("aria-pressed", String(Boolean((number >> bit) & 1))));
      own.textContent = kept.length ? `You keep ${kept.join(", ")}.` : "You keep nothing yet.";
      draw();
    }

    function draw() {
      svg.toggleAttribute("hidden", !revealed);
      if (!revealed) {
        said.textContent = "";
        return;
      }
      const [yours, theirs] = [counts(nodes[number]), counts(policy.nodes)];
      const [peak, least] = [peaks[number], Math.max(...theirs)];
      const [steps, most] = [Math.max(yours.length, theirs.length), Math.max(peak, least, 8)];
      const share = (HEIGHT - 20) / most;
      const height = Math.abs(peak - least) * share;
      const top = HEIGHT - Math.max(peak, least) * share;
      svg.replaceChildren(
        drawn("path", { class: "truth", d: outline(theirs, steps, most) }),
        drawn("rect", { class: "difference", x: 0, y: top, width: WIDTH, height }),
        drawn("path", { class: "guess", d: outline(yours, steps, most) }),
      );
      const fewest = Math.min(...evaluations.filter((_, other) => peaks[other] <= peak));
      const spare = evaluations[number] - fewest;
      said.textContent =
        `Yours, the line: peak ${values(peak)}, ${evaluations[number]} evaluations. ` +
        `sqrt_n, filled, keeps ${policy.kept.join(" and ")}: peak ${values(least)}, ${policy.evaluations} evaluations. ` +
        `You take ${more(peak - least, "value")}, and ${more(evaluations[number] - policy.evaluations, "evaluation")}. ` +
        `Of all ${nodes.length} sets, within your peak, ` +
        (spare ? `the best takes ${more(-spare, "evaluation")}; and ` : "none takes fewer evaluations; ") +
        `the lowest peak of all is ${Math.min(...peaks)}.`;
    }

    reveal.addEventListener("click", () => {
      revealed = true;
      draw();
    });
    again.addEventListener("click", () => {
      revealed = false;
      choose(0);
    });
    place.replaceChildren(row, own, made("p", { className: "act" }, [reveal, again]), svg, said);
    choose(0);
  }

  const kinds = { peak, place: checkpoints };
  addEventListener("DOMContentLoaded", () => {
    for (const place of document.querySelectorAll("[data-predict]")) {
      kinds[place.dataset.predict](place, PREDICT[place.dataset.predict]);
    }
  });
})();
