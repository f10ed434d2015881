/** What only a trace that moves values to the host's memory and back has to show. */

const STRIPE = 1.2; // pixels that a stripe is thick
const STRIPE_AND_GAP = 3; // pixels from stripe to stripe
const LABELLED = 20; // pixels of height from which an operator's node has room for a label

/** A value is on the host now, or is not any more. @param {Memory} memory */
function countOnHost(memory, data, sign) {
  const cell = memory.home[data];
  if (cell < 0) return;
  memory.waiting[cell] += sign;
  memory.waitingBytes[cell] += sign * memory.data.sizes[data];
}

/** Which part of a cell's bytes is on the host; of its values, where all of them are views.
 * @param {Memory} memory @param {number} cell of which something is there
 */
function hostedShare(memory, cell) {
  const total = memory.allBytes[cell];
  return Math.min(total ? memory.waitingBytes[cell] / total : memory.waiting[cell] / memory.allValues[cell], 1);
}

/** How many of LEVELS parts are on the host, where anything is: LEVELS only if everything is. */
function hostedLevel(share) {
  return share === 1 ? LEVELS : Math.max(1, Math.min(LEVELS - 1, roundToEven(LEVELS * share)));
}

/** Stripes of a node around a point, of what waits on the host: a group's from where what is resident
 * ends, and as far as its bytes are on the host, with one stripe at least. An operator's everywhere,
 * but for where its label stands.
 * @param {[number, number]} size @param {number} corner @param {number} stroke
 * @param {[number, number] | null} range shares of the height, or null for an operator
 */
function stripesPath([width, height], corner, stroke, range) {
  const most = Math.floor((height / 2 - stroke - STRIPE / 2) / STRIPE_AND_GAP);
  const least = range || height >= LABELLED ? (LABEL_BAND / 2) * height : 0;
  let places = [];
  for (let turn = -most; turn <= most; turn++) {
    if (Math.abs(turn * STRIPE_AND_GAP) >= least) places.push(turn * STRIPE_AND_GAP);
  }
  if (!places.length) places = [0];
  if (range) {
    let above = places.filter((y) => 0.5 - y / height >= range[0]);
    if (!above.length) above = places.slice(0, 1);
    places = above.filter((y) => 0.5 - y / height <= range[1]);
    if (!places.length) places = above.slice(-1);
  }
  const inner = corner - stroke;
  const lines = places.map((y) => {
    const beyond = Math.max(Math.abs(y) - (height / 2 - corner), 0);
    const reach = width / 2 - stroke - inner + Math.sqrt(Math.max(inner ** 2 - beyond ** 2, 0));
    return `M${(-reach).toFixed(1)} ${y}H${reach.toFixed(1)}`;
  });
  return lines.join("");
}

/** Give a node its stripes, which the style sheet shows where it is on the host. */
function addStripes(graph, cell, node) {
  const [x, y] = graph.centre(cell);
  const size = graph.size(cell);
  const stroke = size[1] >= 14 ? 1.5 : 1;
  const d = graph.view.groups[cell] ? "" : stripesPath(size, size[1] / 2, stroke, null);
  svgElement("path", { class: "stripes", d, "stroke-width": STRIPE, transform: `translate(${x} ${y})` }, node);
}

/** Stripe a group as far as its memory is on the host, above what is resident. */
function stripeGroup(graph, node, cell, share, hosted) {
  const size = graph.size(cell);
  const low = share > 0 ? Math.max(shownShare(share), LEAST_FILL / size[1]) : 0;
  const range = [low, shownShare(Math.min(share + hosted, 1))];
  const corner = Math.min(CORNER, size[1] / 4);
  const d = hosted > 0 ? stripesPath(size, corner, 1.5, range) : "";
  node.querySelector(".stripes").setAttribute("d", d);
}
