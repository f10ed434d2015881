/** Export of the current frame to a file: SVG, and PNG rendered from it. */

import { STRIPES } from "./blocks.js";
import { captionsOf, fitting } from "./caption.js";
import { SVG, svgElement } from "./graph.js";
import { cutTo, ruler } from "./ruler.js";
import { HEAD, outlinesOf, runsOf, wordsEnd } from "./timeline.js";

/**
 * @import { Panel } from "./panel.js"
 */

export const [FRAME_WIDTH, FRAME_MARGIN, FRAME_HEADER, FRAME_STRIP, FRAME_GAP] = [800, 26, 66, 64, 14];
const FRAME_CAPTION = 22;
const PNG_SCALE = 2;
const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "paint-order"];

/** Copy an SVG element with its looks as attributes, so that it needs no style sheet. */
function standalone(element) {
  const copy = /** @type {any} */ (element.cloneNode(true));
  const originals = [element, ...element.querySelectorAll("*")];
  const copies = [copy, ...copy.querySelectorAll("*")];
  copies.forEach((target, i) => {
    const style = getComputedStyle(originals[i]);
    if (style.visibility === "hidden" || (style.opacity === "0" && target !== copy)) {
      target.remove();
      return;
    }
    for (const name of PAINT) target.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["role", "tabindex", "aria-label", "class", "style"]) target.removeAttribute(name);
  });
  for (const text of copy.querySelectorAll("text")) {
    text.setAttribute("text-anchor", "middle");
    text.setAttribute("font-weight", "600");
  }
  return copy;
}

/** A builder of one frame. */
export class Frame {
  constructor() {
    this.style = getComputedStyle(document.documentElement);
    this.root = svgElement("svg", { xmlns: SVG, "font-family": "Inter, system-ui, sans-serif" });
    this.ground = svgElement("rect", { width: "100%", height: "100%", fill: this.ink("background") }, this.root);
    this.root.append(standalone(document.querySelector(".patterns defs")));
    this.top = 0;
  }

  ink(name) {
    return this.style.getPropertyValue(`--${name}`).trim();
  }

  text(x, y, words, size, ink, weight = 400, anchor = "start") {
    const attributes = { x, y, "font-size": size, "font-weight": weight, "text-anchor": anchor, fill: this.ink(ink) };
    svgElement("text", attributes, this.root).textContent = words;
  }

  panel(panel) {
    const { top } = this;
    this.text(FRAME_MARGIN, top + 34, panel.title, 20, "ink", 600);
    ruler.font = "600 16px Inter, system-ui, sans-serif";
    let right = FRAME_WIDTH - FRAME_MARGIN;
    const host = panel.host ? [["host", "on the host"]] : [];
    for (const [key, name] of [
      ...host,
      ["peak", "peak so far"],
      ["live", "in memory"],
      ["evaluations", "evaluations"],
      ["step", "step"],
    ]) {
      const words = panel.counters[key].textContent;
      right -= Math.max(ruler.measureText(words).width, 5.8 * name.length);
      this.text(right, top + 24, name, 12, "muted");
      this.text(right, top + 44, words, 16, "ink", 600);
      right -= FRAME_MARGIN;
    }
    this.text(FRAME_MARGIN, top + 54, cutTo(panel.subtitle, 12, right), 12, "muted");
    this.top += FRAME_HEADER;
    if (panel.isGraph) this.graph(panel);
    else saveLedger(this, panel);
    for (const timeline of [...(panel.isGraph ? [panel.timeline] : []), ...panel.timeline.lanes]) {
      if (timeline.save) timeline.save(this);
      else this.strip(timeline);
      this.top += FRAME_STRIP + FRAME_GAP;
    }
  }

  graph(panel) {
    const graph = standalone(panel.graph.element);
    const { height } = panel.graph.view;
    for (const [name, value] of Object.entries({ y: this.top, width: FRAME_WIDTH, height })) {
      graph.setAttribute(name, value);
    }
    this.root.append(graph);
    this.top += height;
    this.caption(panel);
  }

  caption(panel) {
    this.text(
      FRAME_MARGIN,
      this.top + 13,
      fitting(captionsOf(panel.model, panel.step), 12, FRAME_WIDTH - 2 * FRAME_MARGIN),
      12,
      "ink",
      600,
    );
    this.top += FRAME_CAPTION;
  }

  /** The timeline in columns of one pixel: the past filled, the future in outline. */
  strip(timeline) {
    const { model, scales } = timeline;
    const width = FRAME_WIDTH - 2 * FRAME_MARGIN;
    const place = { transform: `translate(${FRAME_MARGIN} ${this.top})` };
    const group = svgElement("g", place, this.root);
    svgElement("rect", { width, height: FRAME_STRIP, fill: this.ink("panel") }, group);
    const runs = runsOf(model, timeline.stepsOf(width));
    const unit = (FRAME_STRIP - HEAD) / Math.max(scales.highest, 1);
    const now = timeline.nowAt(width);
    model.bands.forEach(({ fill }, band) => {
      const past = timeline
        .areas(runs, band, unit, 1)
        .map(([left, low, right, high]) => [left, low, Math.min(right, now), high]);
      const future = outlinesOf(runs, band, unit, 1).map(([left, ...rest]) => [Math.max(left, now), ...rest]);
      const filled = band in STRIPES ? `url(#hatch-${fill})` : this.ink(fill);
      for (const [boxes, paint] of [
        [past, filled],
        [future, this.ink(fill)],
      ]) {
        const d = boxes
          .filter(([left, low, right, high]) => right > left && high > low)
          .map(
            ([left, low, right, high]) =>
              `M${left} ${FRAME_STRIP - low}V${FRAME_STRIP - high}H${right}V${FRAME_STRIP - low}z`,
          )
          .join("");
        if (d) svgElement("path", { d, fill: paint }, group);
      }
    });
    for (const { amount, dashes } of model.strip_lines) {
      const looks = { stroke: this.ink("muted"), "stroke-dasharray": dashes.join(" ") };
      svgElement("path", { d: `M0 ${FRAME_STRIP - amount * unit}H${width}`, ...looks }, group);
    }
    svgElement("path", { d: `M${now} ${HEAD}V${FRAME_STRIP}`, stroke: this.ink("ink"), "stroke-width": 2 }, group);
    this.text(FRAME_MARGIN + 4, this.top + 10, model.strip_words, 10, "muted");
    ruler.font = "400 10px Inter, system-ui, sans-serif";
    const widths = model.strip_lines.map(({ words }) => ruler.measureText(words).width + 8);
    const ends = wordsEnd(model.strip_lines, widths, unit);
    model.strip_lines.forEach(({ words, amount }, i) => {
      const [right, wide] = [FRAME_WIDTH - FRAME_MARGIN - ends[i], widths[i]];
      const y = this.top + FRAME_STRIP - amount * unit;
      // The cursor runs below the words.
      const ground = { x: right - wide, y: y - 13, width: wide, height: 12, fill: this.ink("panel") };
      svgElement("rect", ground, this.root);
      this.text(right - 4, y - 3, words, 10, "muted", 400, "end");
    });
  }

  legend() {
    let x = FRAME_MARGIN;
    ruler.font = "400 12px Inter, system-ui, sans-serif";
    for (const item of document.querySelectorAll(".legend li")) {
      if (!item.checkVisibility()) continue;
      const wide = 24 + ruler.measureText(item.textContent.trim()).width;
      if (x + wide > FRAME_WIDTH) [x, this.top] = [FRAME_MARGIN, this.top + 22];
      const mark = standalone(item.querySelector("svg"));
      for (const [name, value] of Object.entries({ x, y: this.top + 6, width: 22, height: 22 })) {
        mark.setAttribute(name, value);
      }
      this.root.append(mark);
      this.text(x + 24, this.top + 21, item.textContent.trim(), 12, "muted");
      x += wide + 10;
    }
    this.top += 38;
  }

  /** The finished document as text. @param {string} fonts style sheet to bring along */
  finish(fonts) {
    this.root.setAttribute("viewBox", `0 0 ${FRAME_WIDTH} ${this.top}`);
    this.root.setAttribute("width", String(FRAME_WIDTH));
    this.root.setAttribute("height", String(this.top));
    svgElement("style", {}, this.root).textContent = fonts;
    return new XMLSerializer().serializeToString(this.root);
  }
}

/** Ledger and strip of a panel into a frame: pictures of what is drawn, and all texts as texts.
 * @param {Frame} frame @param {Panel} panel
 */
function saveLedger(frame, panel) {
  const scale = (FRAME_WIDTH - 2 * FRAME_MARGIN) / panel.element.clientWidth;
  for (const { element } of [panel.ledger, panel.strip]) {
    const whole = element.getBoundingClientRect();
    const place = (part) => {
      const { left, top, width, height } = part.getBoundingClientRect();
      const at = { x: FRAME_MARGIN + (left - whole.left) * scale, y: frame.top + (top - whole.top) * scale };
      return { ...at, width: width * scale, height: height * scale };
    };
    for (const canvas of element.querySelectorAll("canvas:not(.found)")) {
      svgElement("image", { ...place(canvas), href: canvas.toDataURL() }, frame.root);
    }
    for (const nodes of element.querySelectorAll(".rail-row svg")) {
      const copy = standalone(nodes);
      for (const [name, value] of Object.entries(place(nodes))) copy.setAttribute(name, String(value));
      frame.root.append(copy);
    }
    for (const line of element.querySelectorAll(".limit")) {
      const { x, y, width } = place(line);
      const dashes = line.classList.contains("budget") ? "" : "4 3";
      svgElement(
        "path",
        { d: `M${x} ${y}h${width}`, stroke: frame.ink("muted"), "stroke-dasharray": dashes },
        frame.root,
      );
    }
    for (const words of element.querySelectorAll(".name, .axis span, .limit span, .number, .ghost")) {
      const { x, y, width, height } = place(words);
      if (words.closest(".plot")) svgElement("rect", { x, y, width, height, fill: frame.ink("panel") }, frame.root);
      const strong = words.matches(".name, .number, .ghost");
      const size = Number.parseFloat(getComputedStyle(words).fontSize) * scale;
      frame.text(
        x,
        y + height / 2 + 0.36 * size,
        words.textContent,
        size,
        strong ? "ink" : "muted",
        strong ? 600 : 400,
      );
    }
    frame.top += whole.height * scale + FRAME_GAP;
  }
  frame.caption(panel);
}

/** The present frame of some panels as SVG text. @param {Panel[]} panels */
export function frameSvg(panels) {
  const frame = new Frame();
  for (const panel of panels) {
    panel.say(); // while something plays, words are older than what is drawn
    frame.panel(panel);
  }
  frame.legend();
  const sheet = document.querySelector("style").textContent;
  return frame.finish(sheet.slice(0, sheet.indexOf("\n")));
}

/** The present frame of some panels as PNG; null if the browser has no canvas as large.
 * @param {Panel[]} panels @returns {Promise<Blob | null>}
 */
export async function framePng(panels) {
  const url = URL.createObjectURL(new Blob([frameSvg(panels)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * PNG_SCALE, image.height * PNG_SCALE];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Offer a file for saving. @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
