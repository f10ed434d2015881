/**
 * Workspaces that are no polynomials of the sizes: those of kernels that work in blocks, or that need
 * the larger of two amounts. The same as the rules in ``tinyckpt/ops`` (attention, fused_attention,
 * kernels_attention, convolution, sliding_windows, pooling, causal_softmax, nn, indexing). No DOM here.
 *
 * @typedef {{shape: number[], size: number, dtype: string}} Shaped
 * @typedef {{kind: string, facts: number[], inputs: Shaped[], outputs: Shaped[]}} Applied
 */

const BLOCK_ROOM = 8 * 2 ** 20; // bytes of a convolution's or a pooling's block
const WIDE_IMAGE = 128; // pixels from which on sums are computed in place
const [MOST_QUERIES, MOST_KEYS, SCORE_ROOM] = [128, 512, 2 ** 20];
const SUM_BYTES = 4; // of an element in which sums are computed

const product = (extents) => extents.reduce((a, b) => a * b, 1);
const isHalf = ({ dtype }) => dtype === "float16";

/** The bytes of an operator's workspace. @param {Applied} applied @returns {number} */
export function workspaceByRule({ kind, facts, inputs, outputs }) {
  const [first, second] = inputs;
  const [result] = outputs;
  if (kind.startsWith("fused_attention")) return attentionBytes(kind, first, second, facts[0]);
  if (kind === "conv2d") return convolutionBytes(first, second, result, facts);
  if (kind === "conv2d_input_vjp") return inputBytes(result, first, second, facts);
  if (kind === "conv2d_weight_vjp") return weightBytes(result, second, facts);
  if (kind === "max_pool") return 2 * pooledWindows(first, outputs[0]);
  if (kind === "max_pool_vjp") return (1 + second.size / product(second.shape)) * pooledWindows(result, second);
  if (kind === "causal_softmax") {
    const [queries, keys] = first.shape.slice(-2);
    return Math.max(queries * keys + 8 * (queries + keys), (product(first.shape) / keys) * SUM_BYTES);
  }
  if (kind === "cross_entropy_vjp") return Math.max(inputs[2].size, product(result.shape) + 8 * result.shape.at(-1));
  const count = product(second.shape); // of take_vjp
  return first.size + Math.max(first.size + 16 * count, 24 * count);
}

/** The FLOPs of fused attention: of the scores that are computed, block by block. @param {Applied} applied */
export function flopsByRule({ kind, facts, inputs: [query, key] }) {
  const [length, depth] = query.shape.slice(-2);
  const heads = product(query.shape.slice(0, -2));
  const keys = key.shape.at(-2);
  const block = Math.min(MOST_QUERIES, length);
  let scores = length * keys;
  if (facts[0]) {
    scores = 0;
    for (let row = 0; row < length; row += block) {
      const stop = Math.min(row + block, length);
      scores += (stop - row) * (stop + keys - length);
    }
  }
  return heads * scores * (2 * (kind === "fused_attention" ? 2 : 5) * depth + 4);
}

// Attention ---------------------------------------------------------------------------------------

/** @param {string} kind @param {Shaped} query @param {Shaped} key @param {number} causal */
function attentionBytes(kind, query, key, causal) {
  const [length, depth] = query.shape.slice(-2);
  const group = query.shape.at(-3) / key.shape.at(-3);
  const queries = Math.min(MOST_QUERIES, length);
  const keys = Math.min(MOST_KEYS, key.shape.at(-2));
  let capacity = Math.floor(SCORE_ROOM / (group * queries * keys * SUM_BYTES));
  let problems = 1;
  for (const extent of key.shape.slice(0, -2).reverse()) {
    problems *= Math.min(extent, Math.max(capacity, 1));
    capacity = Math.floor(capacity / extent);
  }
  const rows = group * queries;
  const casts = isHalf(query) ? 2 * keys * depth : 0;
  const more = keys < key.shape.at(-2) ? rows * depth : 0;
  const each =
    kind === "fused_attention"
      ? 2 * rows * depth + rows * keys + more + 4 * rows
      : 3 * rows * depth + 2 * rows * keys + Math.max(rows, keys) * depth + 2 * rows;
  return problems * (each + casts) * SUM_BYTES + (causal ? queries * keys + 8 * (queries + keys) : 0);
}

// Convolution and pooling -------------------------------------------------------------------------

/** The first and largest block: its images, its rows, and whether there are more.
 * @returns {{images: number, band: number, several: boolean}}
 */
function firstBlock(images, rows, rowBytes, most, fixed = 0) {
  const fitting = Math.max(1, Math.floor((BLOCK_ROOM - fixed) / rowBytes));
  if (fitting < rows) return { images: 1, band: evenPart(rows, fitting), several: true };
  const count = evenPart(images, Math.min(Math.floor(fitting / rows), most));
  return { images: count, band: rows, several: count < images };
}

function evenPart(extent, most) {
  return Math.ceil(extent / Math.ceil(extent / most));
}

const isDirect = (y) => y.shape[2] * y.shape[3] >= WIDE_IMAGE && !isHalf(y);
const rowProducts = (y, weight, unit) => (unit && isDirect(y) ? weight[2] : 1);
const matrixBytes = (weight, y, copied) => (copied || isHalf(y) ? SUM_BYTES * product(weight) : 0);

/** A block's columns, and sums if they have a buffer. @param {number[]} weight its shape */
function blockOf(y, weight, count) {
  const [filters, depth, height, width] = weight;
  const [images, , rows, columns] = y.shape;
  const lines = depth * Math.floor(height / count) * width;
  const summed = isDirect(y) ? 0 : filters;
  const line = columns * SUM_BYTES;
  const rowBytes = (lines + summed + (count > 1 ? filters : 0)) * line;
  const first = firstBlock(images, rows, rowBytes, isDirect(y) ? 1 : images, lines * (count - 1) * line);
  const bytes = line * first.images * (lines * (first.band + count - 1) + summed * first.band);
  return { ...first, bytes };
}

function sumsBytes(y, weight, unit, copied) {
  const count = rowProducts(y, weight, unit);
  const { bytes, band } = blockOf(y, weight, count);
  const further = count > 1 ? y.shape[1] * band * y.shape[3] : 0;
  return bytes + SUM_BYTES * further + matrixBytes(weight, y, copied || count > 1);
}

const isPointwise = (x, weight, y, [unit, padding]) =>
  product(weight.slice(2)) === 1 && !padding && x.shape[2] === y.shape[2] && unit && !isHalf(y);

function convolutionBytes(x, weight, y, facts) {
  if (isPointwise(x, weight.shape, y, facts)) return 0;
  return sumsBytes(y, weight.shape, facts[0], false);
}

function inputBytes(x, weight, y, facts) {
  if (isPointwise(x, weight.shape, y, facts)) return 0;
  const [filters, depth, ...kernel] = weight.shape;
  const count = y.shape[0] * y.shape[2] * y.shape[3];
  if (facts[0] && filters <= Math.min(2 * depth, Math.floor(count / 2)))
    return sumsBytes(x, [depth, filters, ...kernel], 1, true);
  return blockOf(y, weight.shape, 1).bytes + matrixBytes(weight.shape, y, false);
}

function weightBytes(weight, y, facts) {
  const count = rowProducts(y, weight.shape, facts[0]);
  const { bytes, several } = blockOf(y, weight.shape, count);
  const contribution = several ? Math.floor((SUM_BYTES * product(weight.shape)) / count) : 0;
  return bytes + contribution + matrixBytes(weight.shape, y, count > 1);
}

/** The windows of the largest block of a pooling, over all channels. */
function pooledWindows(x, y) {
  const [images, channels, rows, columns] = y.shape;
  const pixels = Math.ceil(product(x.shape.slice(1)) / rows);
  const rowBytes = (pixels + 2 * channels * columns) * (y.size / product(y.shape));
  const first = firstBlock(images, rows, rowBytes, images);
  return first.images * channels * first.band * columns;
}
