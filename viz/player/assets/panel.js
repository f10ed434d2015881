/** One policy: its heading, counters, graph and timeline, at one step. */

class Panel {
  /**
   * @param {any} model
   * @param {any} scales shared by all timelines
   * @param {{choose: Function, hover: Function, seek: Function, solo: Function}} events
   */
  constructor(model, scales, events) {
    this.model = model;
    this.events = events;
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("panel"));
    this.element = template.content.firstElementChild.cloneNode(true);
    this.element.setAttribute("aria-label", model.title);
    this.part(".title").textContent = model.title;
    this.part(".subtitle").textContent = model.subtitle;
    const solo = this.part(".solo");
    solo.textContent = String(model.id + 1);
    solo.setAttribute("aria-label", `Show ${model.title} alone`);
    solo.addEventListener("click", () => events.solo(model.id));
    this.counters = Object.fromEntries(
      Array.from(this.element.querySelectorAll("[data-counter]"), (e) => [e.dataset.counter, e]),
    );
    this.timeline = new Timeline(this.part(".timeline"), model, scales);
    this.listen();
    this.selected = -1;
    this.step = -1;
    if (scales.host !== null) this.host = new HostPart(this, scales);
    this.open(0);
  }

  /** @param {string} selector @returns {any} */
  part(selector) {
    return this.element.querySelector(selector);
  }

  listen() {
    const { canvas } = this.timeline;
    const seek = (event) => this.events.seek(this.timeline.tickAt(event.clientX));
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      seek(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) seek(event);
      this.events.hover(event, this, { tick: this.timeline.tickAt(event.clientX) });
    });
    const holder = this.part(".holder");
    holder.addEventListener("pointermove", (event) => {
      const cell = event.pointerType === "touch" ? -1 : this.graph.cellAt(event.clientX, event.clientY);
      holder.style.cursor = cell < 0 ? "" : "pointer";
      this.events.hover(event, this, cell < 0 ? null : { cell });
    });
    for (const element of [canvas, holder]) {
      element.addEventListener("pointerleave", (event) => this.events.hover(event, this, null));
    }
  }

  /** Open one of the graph's views. @param {number} index */
  open(index) {
    const back = this.graph?.index;
    this.graph = new GraphView(this.model, index, (cell) => this.chosen(cell));
    this.part(".holder").replaceChildren(this.graph.element);
    this.graph.show(this.step);
    this.selected = -1;
    this.path();
    this.resized();
    if (back === undefined) return;
    // Whoever went back stands where they went in.
    const from = Object.entries(this.graph.view.opens).find(([, view]) => view === back);
    this.graph.focus(from ? Number(from[0]) : 0, true);
  }

  /** Show the way from the whole graph to the present view. */
  path() {
    const nav = this.part(".path");
    const { views } = this.model.graph;
    const way = [];
    for (let i = this.graph.index; i !== null; i = views[i].parent) way.unshift(i);
    nav.hidden = way.length < 2;
    nav.replaceChildren(
      ...way.map((index) => {
        const crumb = document.createElement("button");
        crumb.type = "button";
        crumb.textContent = views[index].title;
        if (index === this.graph.index) crumb.setAttribute("aria-current", "page");
        else crumb.addEventListener("click", () => this.open(index));
        return crumb;
      }),
    );
  }

  /** Go back to the view that this one was opened from. @returns {boolean} whether there is one */
  up() {
    const { parent } = this.graph.view;
    if (parent === null) return false;
    this.open(parent);
    return true;
  }

  chosen(cell) {
    const opened = this.graph.view.opens[cell];
    if (opened !== undefined) {
      this.open(opened);
      this.events.hover(null, this, null);
    }
    this.events.choose(this, opened === undefined ? cell : -1);
  }

  /** Mark a cell; -1 for none. */
  select(cell) {
    this.selected = cell;
    this.graph.select(cell);
  }

  /** @param {number} tick @param {"step" | "evaluation"} align */
  show(tick, align) {
    const { model } = this;
    const step = stepOfTick(model, tick, align);
    this.step = step;
    this.graph.show(step);
    this.timeline.show(Math.min(tick, ticksOf(model, align) - 1));
    const before = step < 0;
    this.write("step", `${before ? DASH : countText(step)} / ${countText(model.count - 1)}`);
    const evaluations = before ? 0 : model.evaluations[step];
    this.write("evaluations", `${countText(evaluations)} / ${countText(model.computes.length)}`);
    this.write("live", liveText(before ? 0 : model.live[step], model.inNodes));
    this.write("peak", liveText(before ? 0 : model.peaks[step], model.inNodes));
    this.host?.show(step);
  }

  write(counter, text) {
    const element = this.counters[counter];
    if (element.textContent !== text) element.textContent = text;
  }

  resized() {
    this.graph.resized();
    this.timeline.redraw();
  }

  /** The present state in a sentence. */
  words() {
    const { model, step } = this;
    if (step < 0) return `${model.title}: before the first step.`;
    const live = model.inNodes ? counted(model.live[step], "node") : sizeText(model.live[step]);
    const again = isAgain(model, step) ? " again" : "";
    return `${model.title}, step ${step} of ${model.count - 1}: ${stepWords(model, step)}${again}; ${live} live.`;
  }
}
