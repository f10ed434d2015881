/** Widths of texts, measured on a canvas, and texts cut to a width. */

export const ruler = document.createElement("canvas").getContext("2d");

/** How wide a text is. @param {string} text @param {number} size of the font */
export function textWidth(text, size) {
  ruler.font = `600 ${size}px Inter, system-ui, sans-serif`;
  return ruler.measureText(text).width;
}

/** A text cut to a width. */
export function cutTo(text, size, room) {
  let cut = text;
  while (cut && textWidth(cut === text ? cut : `${cut}…`, size) > room) cut = cut.slice(0, -1);
  return cut === text ? cut : `${cut}…`;
}
