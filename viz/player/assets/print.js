/**
 * Printing: the current step on one landscape sheet, in the light theme, without controls.
 *
 * Style sheets alone are not enough: canvases have the size and the colours of the screen.
 */

const FINE = 3; // pixels of a picture for one of the sheet, at least
let leastRatio = 1;

/** Pixels of a picture for one of the page. */
export function pixelRatio() {
  return Math.max(window.devicePixelRatio || 1, leastRatio);
}

export function isPrinting() {
  return leastRatio > 1;
}

export class Printing {
  /** @param {any} player */
  constructor(player) {
    this.player = player;
    this.isOn = false;
    window.addEventListener("beforeprint", () => this.begin());
    window.addEventListener("afterprint", () => this.end());
    matchMedia("print").addEventListener("change", ({ matches }) => (matches ? this.begin() : this.end()), {
      signal: player.life.signal,
    });
  }

  begin() {
    if (this.isOn) return;
    this.isOn = true;
    this.player.pause();
    const root = document.documentElement;
    this.theme = root.dataset.theme;
    this.large = this.player.scales.large;
    root.dataset.theme = "light";
    root.classList.add("staged", "printing");
    this.draw(1, FINE);
  }

  end() {
    if (!this.isOn) return;
    this.isOn = false;
    const root = document.documentElement;
    root.dataset.theme = this.theme;
    root.classList.remove("printing");
    root.classList.toggle("staged", root.classList.contains("presenting"));
    this.draw(this.large, 1);
  }

  draw(large, fine) {
    this.player.scales.large = large;
    document.documentElement.style.setProperty("--large", String(large));
    leastRatio = fine;
    this.player.recolour();
  }
}
