/** Truncation of row labels to the available width, such that labels stay distinct. */

import { cutTo, textWidth } from "./ruler.js";

export const NAME_SIZE = 12.5; // pixels of a row's letters; the same in the style sheet
const LONGEST_TRIED = 60; // letters of a name that anything is tried with: no row has room for more
const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉";

/** The names of rows, each in its room; cut ones that would be alike differ by their numbers.
 * @param {string[]} names @param {(row: number) => number} roomOf in pixels @returns {string[]}
 */
export function namesApart(names, roomOf) {
  const said = names.map((name, row) => shortened(name, roomOf(row)));
  renameAlike(names, said, (row) => cutTo(names[row], NAME_SIZE, roomOf(row)));
  renameAlike(names, said, (row) => shortened(initials(names[row]), roomOf(row)));
  let number = 1;
  renameAlike(names, said, (row) => {
    const tail = Array.from(String(++number), (digit) => SUBSCRIPTS[Number(digit)]).join("");
    return shortened(names[row], roomOf(row) - textWidth(tail, NAME_SIZE)) + tail;
  });
  return said;
}

/** Give rows that were cut, and say the same as another, another text. */
function renameAlike(names, said, textOf) {
  const times = new Map();
  for (const text of said) times.set(text, (times.get(text) ?? 0) + 1);
  const alike = said.map((text, row) => times.get(text) > 1 && text !== names[row]);
  alike.forEach((isAlike, row) => {
    if (isAlike) said[row] = textOf(row);
  });
}

/** A name in less room: of the scopes, then of the rest, initials and numbers; then without its middle. */
function shortened(text, room) {
  const fits = (some) => textWidth(some, NAME_SIZE) <= room;
  if (text.length < 6 || (text.length <= LONGEST_TRIED && fits(text))) return text;
  const parts = text.split("/");
  for (let i = 0; i < parts.length; i++) {
    if (i + 1 < parts.length || parts.length > 1) parts[i] = initials(parts[i]);
    if (fits(parts.join("/"))) return parts.join("/");
  }
  const name = parts.length > 1 ? parts.join("/") : text;
  for (let keep = Math.min(name.length - 1, LONGEST_TRIED); keep > 4; keep--) {
    const cut = `${name.slice(0, Math.floor(keep / 3))}…${name.slice(-Math.ceil((2 * keep) / 3))}`;
    if (fits(cut)) return cut;
  }
  return `${name.slice(0, 1)}…${name.slice(-3)}`;
}

/** The first letter of a name's words, and the number behind it: s4 of stage4, mh2 of mlp_hidden_2. */
function initials(name) {
  const words = name.match(/[\p{L}]+|\d+/gu) ?? [name];
  return words.map((word) => (/^\d/.test(word) ? word : Array.from(word)[0])).join("");
}
