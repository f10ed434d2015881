/**
 * Packed columns to arrays: base64, then deflate, then differences from entry to entry.
 *
 * @typedef {{type: "int32" | "float64" | "texts", deflated: string}} Packed
 * @typedef {{first: Int32Array, items: Int32Array}} Lists  list i is items[first[i]..first[i+1]]
 */

/** @param {string} text @returns {Uint8Array} */
function bytesOfBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** @param {Packed} packed @returns {Promise<Int32Array | Float64Array | string[]>} */
async function unpacked(packed) {
  const stream = new Blob([bytesOfBase64(packed.deflated)]).stream();
  const inflated = new Response(stream.pipeThrough(new DecompressionStream("deflate")));
  if (packed.type === "texts") return JSON.parse(await inflated.text());
  const buffer = await inflated.arrayBuffer();
  const column = packed.type === "int32" ? new Int32Array(buffer) : new Float64Array(buffer);
  for (let i = 1; i < column.length; i++) column[i] += column[i - 1];
  return column;
}

/**
 * Return the same data with every packed column in it unpacked, all at once.
 *
 * @param {any} node
 * @returns {Promise<any>}
 */
async function unpackedDeep(node) {
  if (node === null || typeof node !== "object") return node;
  if (typeof node.deflated === "string") return unpacked(node);
  if (Array.isArray(node)) return Promise.all(node.map(unpackedDeep));
  const entries = Object.entries(node).map(async ([key, value]) => [key, await unpackedDeep(value)]);
  return Object.fromEntries(await Promise.all(entries));
}

/** @param {Lists} lists @param {number} i @returns {Int32Array} */
function listAt(lists, i) {
  return lists.items.subarray(lists.first[i], lists.first[i + 1]);
}

/** A typed array that grows. */
class Column {
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
