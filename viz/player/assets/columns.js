/**
 * Decompression of the page's data: delta-coded columns in one deflated stream, in base64.
 *
 * @typedef {{type: "int32" | "float64" | "texts", at: number, size: number}} Packed
 * @typedef {{first: Int32Array, items: Int32Array}} Lists  list i is items[first[i]..first[i+1]]
 */

/** @param {string} text of base64 @returns {Promise<ArrayBuffer>} */
async function inflated(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** @param {Packed} packed @param {ArrayBuffer} bytes @returns {Int32Array | Float64Array | string[]} */
function unpacked({ type, at, size }, bytes) {
  if (type === "texts") return JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, at, size)));
  const buffer = bytes.slice(at, at + size);
  const column = type === "int32" ? new Int32Array(buffer) : new Float64Array(buffer);
  for (let i = 1; i < column.length; i++) column[i] += column[i - 1];
  return column;
}

/** Return the same data with every packed column in it unpacked. @param {any} node @param {ArrayBuffer} bytes */
function unpackedDeep(node, bytes) {
  if (node === null || typeof node !== "object") return node;
  if (typeof node.at === "number" && typeof node.type === "string") return unpacked(node, bytes);
  if (Array.isArray(node)) return node.map((item) => unpackedDeep(item, bytes));
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, unpackedDeep(value, bytes)]));
}

/** The data of a page. @param {string} text JSON */
export async function dataOf(text) {
  const { content, columns } = JSON.parse(text);
  return unpackedDeep(content, await inflated(columns));
}

/** @param {Lists} lists @param {number} i @returns {Int32Array} */
export function listAt(lists, i) {
  return lists.items.subarray(lists.first[i], lists.first[i + 1]);
}

/** A typed array that grows. */
export class Column {
  /** @param {any} [Type] of typed array */
  constructor(Type = Int32Array) {
    this.items = new Type(1024);
    this.length = 0;
  }

  push(item) {
    if (this.length === this.items.length) {
      const grown = new this.items.constructor(2 * this.length);
      grown.set(this.items);
      this.items = grown;
    }
    this.items[this.length] = item;
    return this.length++;
  }

  done() {
    return this.items.slice(0, this.length);
  }
}
