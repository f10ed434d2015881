/** Tooltip at the pointer. */

export class Tip {
  constructor() {
    this.element = document.getElementById("tip");
  }

  hide() {
    this.element.hidden = true;
  }

  /** @param {{clientX: number, clientY: number}} event where @param {string[]} lines what it says */
  show(event, lines) {
    this.element.hidden = false;
    this.element.replaceChildren(
      ...lines.map((line) => {
        const div = document.createElement("div");
        div.textContent = line;
        return div;
      }),
    );
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 18;
    const top = below + height > window.innerHeight - 8 ? event.clientY - height - 12 : below;
    this.element.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
  }
}

/** Where the middle of an element is on the screen, as an event says it. @param {Element} element */
export function middleOf(element) {
  const { left, top, width, height } = element.getBoundingClientRect();
  return { clientX: left + width / 2, clientY: top + height / 2 };
}
