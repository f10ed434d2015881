/** Code shared by all interactive questions: elements, plots in pixels, phrases for amounts.
 *
 * predict-data.js has the result of each choice; the scripts show it beside the correct answer. Each
 * kind of question is a function in a file of its own; its arguments are its element on the page and
 * its data.
 *
 * @type {{kinds: Record<string, (place: HTMLElement, data: any) => void>} & Record<string, any>}
 */
const Predict = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  /** An HTML element with its properties and children.
   * @param {string} tag @param {Record<string, any>} [properties] @param {(Node | string)[]} [children]
   */
  function made(tag, properties = {}, children = []) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  /** An SVG element. @param {string} tag @param {Record<string, any>} [attributes] @param {Node[]} [children] */
  function drawn(tag, attributes = {}, children = []) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
  }

  /** An SVG whose unit is a pixel of the page, so that circles stay round at any width.
   * @param {(width: number, height: number) => void} draw called when its size changes
   * @param {Record<string, any>} [attributes]
   */
  function plot(draw, attributes = { "aria-hidden": "true" }) {
    const svg = drawn("svg", attributes);
    new ResizeObserver(() => {
      const [width, height] = [svg.clientWidth, svg.clientHeight];
      if (!width) return;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      draw(width, height);
    }).observe(svg);
    return svg;
  }

  /** A hatch pattern for the difference between guess and answer. @param {string} id */
  function hatch(id) {
    const size = { width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    const line = drawn("path", { class: "slant", d: "M0 3H6" });
    return drawn("defs", {}, [drawn("pattern", { id, ...size }, [line])]);
  }

  /** The outline of a memory curve, closed at zero.
   * @param {number[]} nodes @param {(step: number) => number} x @param {(count: number) => number} y
   */
  function outline(nodes, x, y) {
    const steps = nodes.map((count, step) => `L${x(step)} ${y(count)}L${x(step + 1)} ${y(count)}`);
    return `M${x(0)} ${y(0)}${steps.join("")}L${x(nodes.length)} ${y(0)}`;
  }

  /** @param {number} count @param {string} one @param {string} [many] */
  const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

  return {
    kinds: {},
    made,
    drawn,
    plot,
    hatch,
    outline,
    counted,
    values: (count) => counted(count, "value"),
    /** Numbers written as one digit each, of base 36. @param {string} digits */
    counts: (digits) => Array.from(digits, (digit) => Number.parseInt(digit, 36)),
    /** A difference as a phrase. */
    more(count, one, many = `${one}s`) {
      if (!count) return `as many ${many}`;
      return `${counted(Math.abs(count), one, many)} ${count > 0 ? "more" : "fewer"}`;
    },
    /** A list of names as a phrase. @param {string[]} names */
    listed(names) {
      if (names.length < 2) return names.join("");
      return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
    },
    /** A live region: screen readers announce its changes. */
    told: () => made("p", { className: "said", role: "status" }),
    /** A button. @param {string} words @param {() => void} act */
    button(words, act) {
      const button = made("button", { type: "button", textContent: words });
      button.addEventListener("click", act);
      return button;
    },
  };
})();
