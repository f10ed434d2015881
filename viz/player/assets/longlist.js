/** Virtualised list: only the visible rows exist in the DOM. */

const ROW = 24; // pixels; the same in the style sheet
const TALLEST = 8e6; // pixels: browsers draw nothing beyond some tens of millions

export class LongList {
  /**
   * @param {HTMLElement} element scrolls
   * @param {(row: HTMLElement, index: number) => void} fill writes an entry into a row
   * @param {number} high pixels of a row; the same in the style sheet
   * @param {string} role of a row
   */
  constructor(element, fill, high = ROW, role = "listitem") {
    this.element = element;
    this.fill = fill;
    this.high = high;
    this.role = role;
    this.count = 0;
    this.current = -1;
    this.rows = [];
    this.height = null; // pixels
    this.scroll = 0;
    this.space = document.createElement("div");
    this.space.className = "space";
    this.space.setAttribute("role", "presentation");
    element.replaceChildren(this.space);
    element.addEventListener("scroll", () => {
      if (Math.abs(element.scrollTop - this.scroll) < 1) return;
      this.scroll = element.scrollTop;
      this.render();
    });
    new ResizeObserver(() => this.measure()).observe(element);
  }

  /** Show another list. @param {number} count */
  reset(count) {
    this.count = count;
    this.current = -1;
    this.space.style.height = `${Math.min(count * this.high, TALLEST)}px`;
    // Once it is known, the browser says when it is another.
    if (this.height === null) this.measure();
    else this.fit();
  }

  measure() {
    const wasHidden = !this.height;
    this.height = this.element.clientHeight;
    this.fit();
    if (wasHidden) this.reveal();
  }

  /** Have as many rows as there is room for. */
  fit() {
    const needed = Math.min(this.count, Math.ceil(this.height / this.high) + 2);
    while (this.rows.length < needed) {
      const row = document.createElement("div");
      row.className = "row";
      row.setAttribute("role", this.role);
      this.rows.push(row);
    }
    this.rows.length = needed;
    this.space.replaceChildren(...this.rows);
    this.render();
  }

  /** How many rows a pixel of scrolling stands for. */
  get rate() {
    const range = Math.min(this.count * this.high, TALLEST) - this.height;
    return range > 0 ? (this.count - this.height / this.high) / range : 0;
  }

  render() {
    const top = this.scroll * this.rate;
    const first = Math.max(0, Math.min(Math.floor(top), this.count - this.rows.length));
    this.rows.forEach((row, i) => {
      const index = first + i;
      row.style.transform = `translateY(${this.scroll + (index - top) * this.high}px)`;
      const state = `${index}`;
      if (row.dataset.index !== state) {
        row.dataset.index = state;
        row.setAttribute("aria-posinset", String(index + 1));
        row.setAttribute("aria-setsize", String(this.count));
        this.fill(row, index);
      }
      row.classList.toggle("current", index === this.current);
      if (index === this.current && this.role === "listitem") row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    });
  }

  /** Forget what the rows show, as the entries are others now. */
  refill() {
    for (const row of this.rows) delete row.dataset.index;
    this.render();
  }

  /** Mark an entry and bring it into sight; -1 for the beginning. @param {number} index */
  follow(index) {
    if (index === this.current) return;
    this.current = index;
    this.reveal();
  }

  /** Bring the marked entry into sight; of a list that is hidden, once it is not. */
  reveal() {
    const { current: index } = this;
    if (!this.height) return;
    const top = this.scroll * this.rate;
    const visible = this.height / this.high;
    if (index < top + 1 || index > top + visible - 2) {
      const target = Math.max(0, index - visible / 3) / (this.rate || 1);
      this.element.scrollTop = target;
      const most = Math.max(0, Math.min(this.count * this.high, TALLEST) - this.height);
      this.scroll = Math.min(target, most);
    }
    this.render();
  }
}

/** @param {HTMLElement} row @param {[string, string][]} parts class and text of each */
export function fillRow(row, parts) {
  while (row.childElementCount < parts.length) row.append(document.createElement("span"));
  parts.forEach(([name, text], i) => {
    const span = row.children[i];
    span.className = name;
    span.textContent = text;
  });
}
