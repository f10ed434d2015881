/**
 * Measured memory, from PyTorch's snapshots and from lists of seconds and bytes: parsed as
 * ``tinyckpt.documents.torch_snapshots`` and ``tinyckpt.documents.measured_memory`` do, with the same errors.
 */

import { readPickle } from "./pickles.js";
import { BEYOND, DocumentReader, FormatError, quoted, shortened80, typeName } from "./reader.js";

/**
 * @import { Measured } from "../../player/assets/measured.js"
 */

const RECORD = "call torch.cuda.memory._record_memory_history() before what is to be measured";
export const LARGEST_FILE = 2 ** 30; // bytes of a file that is read
const MOST_SAMPLES = 1_000_000; // of a list
const MOST_MOMENTS = 100_000; // of one measurement that are kept, to be drawn
const MOST_EVENTS = 10_000_000; // of one device
const MOST_BLOCKS = 1_000_000; // of one device, over all of its segments
export const PICKLE = 0x80; // with which every pickle since protocol 2 begins

/** What each device of a snapshot held, or the one thing that a list is about; what is measured first.
 * @param {Uint8Array} content @param {string} path
 * @returns {{names: string[], of: (index: number) => Measured}}
 */
export function readMeasured(content, path) {
  const reader = new DocumentReader(path);
  if (content[0] !== PICKLE) {
    const [times, held] = readSamples(reader, content);
    const found = measuredOf(path, "a list of seconds and bytes", "seconds", times, held);
    return { names: [], of: () => found };
  }
  const snapshot = readPickle(content, path);
  const devices = busyDevices(reader, snapshot);
  const found = [];
  const read = (device) => {
    const events = snapshot.device_traces[device];
    if (events.length > MOST_EVENTS)
      reader.fail(`device_traces[${device}]`, `more than ${MOST_EVENTS} events; record fewer`);
    const ends = inUse(reader, Object.hasOwn(snapshot, "segments") ? snapshot.segments : [], device);
    const { timed, times, held } = heldOver(reader, events, ends, device);
    return measuredOf(path, `device ${device} of a PyTorch snapshot`, timed ? "seconds" : "events", times, held);
  };
  return { names: devices.map((device) => `device ${device}`), of: (index) => (found[index] ??= read(devices[index])) };
}

/** @returns {Measured} with what is held at its start as its base */
function measuredOf(source, what, unit, times, held) {
  const places = thinned(held);
  const [moments, shown] = [times, held].map((all) => Float64Array.from(places, (i) => all[i]));
  return { source, what, unit, span: times[times.length - 1], base: held[0], moments, held: shown };
}

/** Downsampled moments: of each run the first, the highest and the last, as in Python.
 * @param {Float64Array} held @returns {number[]}
 */
function thinned(held) {
  const count = held.length;
  const row = count <= MOST_MOMENTS ? 1 : Math.ceil((3 * count) / MOST_MOMENTS);
  const places = [];
  for (let begin = 0; begin < count; begin += row) {
    const last = Math.min(begin + row, count) - 1;
    let highest = begin;
    for (let i = begin; i <= last; i++) if (held[i] > held[highest]) highest = i;
    places.push(...new Set([begin, highest, last]));
  }
  return places;
}

/** The devices that have events. @returns {number[]} */
function busyDevices(reader, content) {
  const { path } = reader;
  if (typeName(content) === "list") throw new FormatError(`${path}: it has segments and no events: ${RECORD}`);
  if (typeName(content) !== "dict")
    throw new FormatError(
      `${path}: it holds ${content?.isTuple ? "tuple" : typeName(content)}, which is no memory snapshot`,
    );
  if (!Object.hasOwn(content, "device_traces"))
    throw new FormatError(`${path}: it has no device_traces, so it is no memory snapshot`);
  const traces = reader.check(content.device_traces, ["list"], "device_traces");
  traces.forEach((trace, i) => reader.check(trace, ["list"], `device_traces[${i}]`));
  const busy = Array.from(traces.keys()).filter((i) => traces[i].length);
  if (!busy.length) throw new FormatError(`${path}: it has no events: ${RECORD}`);
  return busy;
}

/** The bytes at each address that are in use at the end. Blocks are counted before they are looked
 * at: a short file may give one long list of them to many segments.
 */
function inUse(reader, segments, device) {
  const found = new Map();
  let count = 0;
  reader.check(segments, ["list"], "segments").forEach((segment, i) => {
    const at = `segments[${i}]`;
    if (reader.count(reader.given(segment, "device", ["int"], 0, at), `${at}.device`) !== device) return;
    let address = reader.count(reader.given(segment, "address", ["int"], 0, at), `${at}.address`);
    const blocks = reader.get(segment, "blocks", ["list"], at);
    count += blocks.length;
    if (count > MOST_BLOCKS) reader.fail(`${at}.blocks`, `more than ${MOST_BLOCKS} blocks of device ${device}`);
    blocks.forEach((block, k) => {
      const place = `${at}.blocks[${k}]`;
      const size = reader.count(reader.get(block, "size", ["int"], place), `${place}.size`, BEYOND);
      const own = reader.count(reader.given(block, "address", ["int"], address, place), place);
      if (reader.get(block, "state", ["str"], place) === "active_allocated") {
        const wanted = reader.given(block, "requested_size", ["int"], size, place);
        found.set(own, reader.count(wanted, `${place}.requested_size`, BEYOND));
      }
      address = own + size;
    });
  });
  return found;
}

/** Live memory after each event. */
function heldOver(reader, events, ends, device) {
  const [alive, touched] = [new Map(), new Set()];
  const [changes, moments] = [[], []];
  let before = 0;
  events.forEach((event, i) => {
    const at = `device_traces[${device}][${i}]`;
    const action = reader.get(reader.check(event, ["dict"], at), "action", ["str"], at);
    if (action !== "alloc" && action !== "free_requested") return;
    const address = reader.count(reader.get(event, "addr", ["int"], at), `${at}.addr`, BEYOND);
    const size = reader.count(reader.get(event, "size", ["int"], at), `${at}.size`, BEYOND);
    const moment = reader.given(event, "time_us", ["int"], -1, at);
    if (moment !== -1) reader.count(moment, `${at}.time_us`, BEYOND);
    const known = alive.get(address);
    alive.delete(address);
    if (action === "alloc") {
      alive.set(address, size);
      changes.push(size - (known ?? 0));
    } else if (known !== undefined) changes.push(-known);
    else if (touched.has(address)) changes.push(0);
    else {
      changes.push(-size);
      before += size;
    }
    touched.add(address);
    moments.push(moment);
  });
  if (!changes.length) throw new FormatError(`${reader.path}: device ${device} allocates nothing: ${RECORD}`);
  for (const [address, size] of ends) if (!touched.has(address)) before += size;
  return staircase(reader, device, before, changes, moments);
}

/** Levels from changes, over seconds where events have times that differ. */
function staircase(reader, device, before, changes, moments) {
  const timed = moments.every((moment) => moment >= 0) && moments.some((moment) => moment > moments[0]);
  const [times, held] = [new Float64Array(changes.length + 1), new Float64Array(changes.length + 1)];
  held[0] = before;
  let latest = moments[0];
  changes.forEach((change, i) => {
    latest = Math.max(latest, moments[i]);
    times[i + 1] = timed ? (latest - moments[0]) * 1e-6 : i + 1;
    held[i + 1] = held[i] + change;
  });
  if (held.some((amount) => amount >= BEYOND))
    reader.fail(`device_traces[${device}]`, "more bytes are held than any machine has");
  return { timed, times, held };
}

/** The times, from 0 on, and the bytes of a list of pairs. @param {DocumentReader} reader @param {Uint8Array} content */
function readSamples(reader, content) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    throw new FormatError(`${reader.path} is neither a pickle of a PyTorch snapshot nor a list as text`);
  }
  const rows = /^\s*[[{]/.test(text) ? jsonRows(reader, text) : csvRows(reader, text);
  if (!rows.length) throw new FormatError(`${reader.path}: it has no moments; expected pairs of seconds and bytes`);
  if (rows.length > MOST_SAMPLES) {
    throw new FormatError(
      `${reader.path}: ${rows.length.toLocaleString("en-US")} moments; at most 10,000,000 are read`,
    );
  }
  const [times, held] = [new Float64Array(rows.length), new Float64Array(rows.length)];
  rows.forEach(([where, row], i) => {
    const [time, amount] = reader.row(row, 2, where);
    times[i] = reader.number(time, `${where}[0]`);
    held[i] = Math.trunc(reader.number(amount, `${where}[1]`));
    if (i && times[i] < times[i - 1]) reader.fail(`${where}[0]`, `${times[i]} is before ${times[i - 1]}: time goes on`);
  });
  return [times.map((time) => time - times[0]), held];
}

function jsonRows(reader, text) {
  return reader.check(reader.parse(text), ["list"], "measured").map((row, i) => [`measured[${i}]`, row]);
}

function csvRows(reader, text) {
  const rows = [];
  text.split(/\r\n|\r|\n/).forEach((line, i) => {
    if (!line.trim()) return;
    const cells = line.split(",").map((cell) => cell.trim().replace(/^"+|"+$/g, ""));
    const numbers = cells.map(csvNumber);
    if (!numbers.includes(null)) rows.push([`line ${i + 1}`, numbers]);
    else if (i || rows.length || cells.length !== 2) {
      reader.fail(`line ${i + 1}`, `${quoted(shortened80(line))}: expected seconds,bytes, such as 0.5,4096`);
    }
  });
  return rows;
}

/** A number as Python reads it; null for what is none. @param {string} cell */
function csvNumber(cell) {
  const named = /^([+-]?)(inf|infinity|nan)$/i.exec(cell);
  if (named) return named[2][0].toLowerCase() === "n" ? Number.NaN : named[1] === "-" ? -Infinity : Infinity;
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(cell) ? Number(cell) : null;
}
