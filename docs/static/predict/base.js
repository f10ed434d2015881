/** What all questions for the mouse share: elements, plots in pixels, words for amounts.
 *
 * What each choice comes to stands in predict-data.js; here it is shown, beside what is true. Each
 * kind of question is a function in a file of its own, and is given its place on the page and its
 * data.
 *
 * @type {{kinds: Record<string, (place: HTMLElement, data: any) => void>} & Record<string, any>}
 */
const Predict = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  /** An element with its properties and what is in it.
   * @param {string} tag @param {Record<string, any>} [properties] @param {(Node | string)[]} [children]
   */
  function made(tag, properties = {}, children = []) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  /** An element of a picture. @param {string} tag @param {Record<string, any>} [attributes] @param {Node[]} [children] */
  function drawn(tag, attributes = {}, children = []) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
  }

  /** A picture whose unit is a pixel of the page, so that a circle is one at any width.
   * @param {(width: number, height: number) => void} draw called when its size is another
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

  /** Slanting lines, to fill with what was drawn otherwise than it is. @param {string} id */
  function hatch(id) {
    const size = { width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    const line = drawn("path", { class: "slant", d: "M0 3H6" });
    return drawn("defs", {}, [drawn("pattern", { id, ...size }, [line])]);
  }

  /** The outline of a memory curve, from the ground and back to it.
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
    /** A difference in words. */
    more(count, one, many = `${one}s`) {
      if (!count) return `as many ${many}`;
      return `${counted(Math.abs(count), one, many)} ${count > 0 ? "more" : "fewer"}`;
    },
    /** Several names in a sentence. @param {string[]} names */
    listed(names) {
      if (names.length < 2) return names.join("");
      return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
    },
    /** A paragraph that is read out when it changes. */
    told: () => made("p", { className: "said", role: "status" }),
    /** A button. @param {string} words @param {() => void} act */
    button(words, act) {
      const button = made("button", { type: "button", textContent: words });
      button.addEventListener("click", act);
      return button;
    },
  };
})();
