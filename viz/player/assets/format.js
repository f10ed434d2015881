/** Formatting of amounts and counts; the same texts as in Python. */

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const THIN_SPACE = "\u2009";
export const DASH = "\u2013";

/** @param {number} nbytes @returns {string} */
export function sizeText(nbytes) {
  let unit = 0;
  while (nbytes >= 1024 && unit < UNITS.length - 1) {
    nbytes /= 1024;
    unit++;
  }
  if (unit === 0) return `${nbytes} B`;
  const tenths = nbytes * 10;
  // Halves go to the even neighbour, as in Python.
  const rounded = tenths % 1 === 0.5 ? 2 * Math.round(tenths / 2) : Math.round(tenths);
  return `${Math.floor(rounded / 10)}.${rounded % 10} ${UNITS[unit]}`;
}

/** @param {number} count @returns {string} */
export function countText(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, THIN_SPACE);
}

/** @param {number} amount @param {boolean} inNodes @returns {string} */
export function liveText(amount, inNodes) {
  return inNodes ? countText(amount) : sizeText(amount);
}

/** @param {number} count @param {string} what @returns {string} */
export function counted(count, what) {
  return `${countText(count)} ${what}${count === 1 ? "" : "s"}`;
}

/** @param {string[]} names @param {number} most @returns {string} */
export function listed(names, most) {
  const rest = names.length - most;
  return names.slice(0, most).join(", ") + (rest > 0 ? `, and ${countText(rest)} more` : "");
}

/** A kind of operator in words; a source has none. @param {string | undefined} kind */
export function kindWords(kind) {
  return kind?.endsWith("_vjp") ? `gradient of ${kind.slice(0, -4)}` : kind;
}

/** Bytes with three significant digits. @param {number} nbytes @returns {string} */
export function shortSize(nbytes) {
  let unit = 0;
  // Rounded to three digits, 1000 KiB would have four.
  while (nbytes >= (unit ? 999.5 : 1024) && unit < UNITS.length - 1) {
    nbytes /= 1024;
    unit++;
  }
  return `${unit && nbytes < 999.5 ? nbytes.toPrecision(3) : Math.round(nbytes)} ${UNITS[unit]}`;
}

/** @param {number} amount @param {boolean} inNodes @returns {string} */
export function shortLive(amount, inNodes) {
  return inNodes ? countText(amount) : shortSize(amount);
}

/** Memory with its unit, short. @param {number} amount @param {boolean} inNodes @returns {string} */
export function amountText(amount, inNodes) {
  return inNodes ? counted(amount, "value") : shortSize(amount);
}

/** A difference with its sign. @param {number} change @param {boolean} inNodes */
export function changeText(change, inNodes) {
  if (!change) return "\u00b10";
  return `${change > 0 ? "+" : "\u2212"}${shortLive(Math.abs(change), inNodes)}`;
}

/** Give an element a text: the one that it has would be laid out again. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
