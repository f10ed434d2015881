/**
 * Gestures on time axes, by wheel, mouse and touch: zoom, pan, select a range, step.
 *
 * A vertical drag by one finger is the browser's: it scrolls rows, or the page. A horizontal one
 * steps, except on the scrubber; on a zoomed ledger it pans. Two fingers pinch.
 *
 * Handlers are delegated to the container of all panels, since panels may be replaced at any time.
 */

/**
 * @import { Navigation } from "./navigation.js"
 */

const [WHEEL, PINCHED] = [0.0022, 0.012]; // how much nearer a pixel of a wheel brings; of a touchpad's pinch
const LINE = 16; // pixels of a wheel that counts lines
const [DRAGGED, TREMBLED] = [4, 10]; // pixels from which a press is a drag; a finger's
const SWIPED = 30; // pixels from which a touch is a step
const PLOTS = ".ledger .plot, .strip .plot";
const SCRUBBED = ".strip, .timeline, .wide, select"; // where a finger that moves sideways does something else

export class Gestures {
  /** @param {Navigation} navigation */
  constructor(navigation) {
    this.navigation = navigation;
    this.touches = new Map(); // where fingers and the mouse are
    const { holder } = navigation;
    holder.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    holder.addEventListener("pointerdown", (event) => this.down(event), true);
    holder.addEventListener("pointermove", (event) => this.move(event), true);
    for (const end of ["pointerup", "pointercancel"]) holder.addEventListener(end, (event) => this.up(event), true);
    holder.addEventListener("click", (event) => this.click(event), true);
    // Two fingers are a pinch, and no scrolling.
    const pinch = (event) => event.touches.length > 1 && event.target.closest?.(PLOTS) && event.preventDefault();
    holder.addEventListener("touchmove", pinch, { passive: false });
  }

  /** The place on the axis at a point of the screen. */
  placeAt(clientX, plot) {
    const box = plot.getBoundingClientRect();
    const [from, to] = this.navigation.sight;
    return from + ((clientX - box.left) / box.width) * (to - from);
  }

  wheel(event) {
    const plot = event.target.closest(PLOTS);
    // Where a ledger scrolls, the wheel is the rows', unless with Ctrl.
    if (
      !plot ||
      (plot.closest(".scrolls") &&
        !event.ctrlKey &&
        !event.shiftKey &&
        Math.abs(event.deltaY) >= Math.abs(event.deltaX))
    )
      return;
    this.wheeled(event, plot.clientWidth, this.placeAt(event.clientX, plot));
  }

  /** A turn of the wheel at a place. What is in sight as a whole leaves the wheel to the page. */
  wheeled(event, width, place) {
    const unit = [1, LINE, width][event.deltaMode];
    const across = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const whole = this.navigation.extent.isWhole && !this.navigation.wanted;
    if (whole && (sideways || event.deltaY >= 0)) return;
    event.preventDefault();
    if (sideways) this.navigation.pan((across * unit) / width);
    else this.navigation.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? PINCHED : WHEEL)), place);
  }

  down(event) {
    const plot = event.target.closest(PLOTS);
    if (event.button !== 0) return;
    if (event.isPrimary) this.touches.clear();
    this.touches.set(event.pointerId, event);
    this.held = null;
    if (!plot) {
      if (event.pointerType === "touch" && this.touches.size === 1 && !event.target.closest(SCRUBBED))
        this.beginSwipe(event);
      return;
    }
    if (this.touches.size === 2) this.beginPinch(plot);
    else if (event.shiftKey || plot.closest(".ledger")) this.begin(event, plot);
    if (event.shiftKey || this.touches.size > 1) event.stopPropagation();
  }

  /** A press that may become a drag, which pans; with Shift, or where all is in sight, it takes a
   * range, and a finger's is a step. */
  begin(event, plot) {
    const free = event.shiftKey || this.navigation.extent.isWhole;
    const kind = !free ? "pan" : event.pointerType === "touch" && !event.shiftKey ? "swipe" : "range";
    this.held = {
      kind,
      plot,
      x: event.clientX,
      place: this.placeAt(event.clientX, plot),
      sight: this.navigation.sight,
      far: false,
    };
  }

  /** A finger beside what shows time: it steps. */
  beginSwipe(event) {
    this.held = { kind: "swipe", plot: this.navigation.holder, x: event.clientX };
  }

  beginPinch(plot) {
    const [a, b] = [...this.touches.values()];
    const place = this.placeAt((a.clientX + b.clientX) / 2, plot);
    const [from, to] = this.navigation.sight;
    this.held = { kind: "pinch", plot, place, wide: to - from, apart: distance(a, b), far: true };
  }

  move(event) {
    const { held } = this;
    if (!this.touches.has(event.pointerId) || !held) return;
    this.touches.set(event.pointerId, event);
    const by = event.clientX - held.x;
    if (!held.far && Math.abs(by) < (event.pointerType === "touch" ? TREMBLED : DRAGGED)) return;
    if (!held.far) held.plot.setPointerCapture(event.pointerId);
    held.far = true;
    event.stopPropagation();
    this.navigation.player.tip.hide();
    const width = held.plot.clientWidth;
    if (held.kind === "pinch") this.pinch(held, width);
    else if (held.kind === "range") this.navigation.takeRange(held.place, this.placeAt(event.clientX, held.plot));
    else if (held.kind === "pan") {
      const [from, to] = held.sight;
      this.navigation.around(from - (by / width) * (to - from), to - from);
    }
  }

  pinch(held, width) {
    const [a, b] = [...this.touches.values()];
    const most = this.navigation.extent.whole;
    const wide = Math.min(
      Math.max((held.wide * held.apart) / Math.max(distance(a, b), 1), Math.min(this.navigation.least, most)),
      most,
    );
    const left = held.plot.getBoundingClientRect().left;
    const share = ((a.clientX + b.clientX) / 2 - left) / width;
    this.navigation.around(held.place - share * wide, wide);
  }

  up(event) {
    const { held } = this;
    if (!this.touches.delete(event.pointerId) || !held) return;
    this.held = null;
    if (!held.far || event.type === "pointercancel") return;
    this.dragged = true; // the click that follows is none
    setTimeout(() => (this.dragged = false));
    const by = event.clientX - held.x;
    if (held.kind === "swipe" && Math.abs(by) >= SWIPED) this.navigation.player.step(by < 0 ? 1 : -1);
    // A finger that is left of a pinch begins no drag.
    if (held.kind === "pinch") this.touches.clear();
  }

  click(event) {
    if (!this.dragged) return;
    this.dragged = false;
    event.stopPropagation();
    event.preventDefault();
  }
}

/** How far two points of the screen are from each other. */
function distance(a, b) {
  return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
}
