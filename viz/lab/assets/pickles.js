/**
 * Safe pickle reader: a stack machine for plain data, which executes no code; with the opcodes, bounds
 * and errors of ``tinyckpt.documents.safe_unpickler``, which checks them before Python's own Unpickler
 * runs. Dicts are objects without a prototype, so that a key is nothing but a key.
 */

import { FormatError, typeName } from "./reader.js";

const MOST_MADE = 30_000_000; // that one file makes and keeps
const HIGHEST_STACK = 100_000;
const MOST_OPEN = 1_000; // marks at once; short tuples nest without one, and nothing recurses into them
const OF_MEMO = 2; // values, for whose memory an entry of the memo stands
const LONGEST_NUMBER = 8; // bytes of an integer
const STOP = 0x2e;
const CODE = {
  0x63: "GLOBAL",
  0x93: "STACK_GLOBAL",
  0x52: "REDUCE",
  0x62: "BUILD",
  0x69: "INST",
  0x6f: "OBJ",
  0x81: "NEWOBJ",
  0x92: "NEWOBJ_EX",
  0x50: "PERSID",
  0x51: "BINPERSID",
  0x82: "EXT1",
  0x83: "EXT2",
  0x84: "EXT4",
};

/** The data of a pickle. @param {Uint8Array} content @param {string} path what errors call it */
export function readPickle(content, path) {
  return new PickleMachine(content, path).run();
}

class PickleMachine {
  constructor(content, path) {
    this.content = content;
    this.view = new DataView(content.buffer, content.byteOffset, content.byteLength);
    this.path = path;
    this.at = 0;
    this.made = 0;
    this.stack = [];
    this.open = []; // how high the stack was at each mark
    this.memo = [];
    this.decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  }

  run() {
    const { content, stack } = this;
    while (this.at < content.length) {
      const code = content[this.at];
      if (code === STOP) {
        if (stack.length !== 1 || this.open.length) this.fail(`it ends with ${stack.length} values instead of one`);
        return stack[0];
      }
      const action = PICKLE_ACTIONS[code];
      if (!action) this.refuse(code);
      this.at++;
      action(this);
    }
    throw new FormatError(`${this.path}: the pickle has no end; was the file cut short?`);
  }

  /** @returns {never} */
  fail(problem) {
    throw new FormatError(`${this.path}: byte ${this.at}: ${problem}`);
  }

  refuse(code) {
    if (CODE[code]) {
      this.fail(
        `${CODE[code]} would load or call code; legal is plain data alone, and nothing of the file was executed`,
      );
    }
    this.fail(`0x${code.toString(16).padStart(2, "0")} is no instruction of plain data in a pickle of protocol 2 to 5`);
  }

  /** Pass over the next bytes. @returns {number} where they begin */
  take(count) {
    const begin = this.at;
    if (begin + count > this.content.length) this.fail("more bytes were to come; was the file cut short?");
    this.at = begin + count;
    return begin;
  }

  /** The next bytes as an integer without a sign, the lowest first. */
  number(count) {
    const begin = this.take(count);
    let found = 0;
    for (let i = count - 1; i >= 0; i--) found = found * 256 + this.content[begin + i];
    return found;
  }

  /** Count what takes memory. @param {number} values */
  count(values) {
    this.made += values;
    if (this.made > MOST_MADE)
      this.fail(`more than ${MOST_MADE} values are made and kept; record fewer events (max_entries=100000)`);
  }

  push(value) {
    this.count(1);
    if (this.stack.length >= HIGHEST_STACK) this.fail(`more than ${HIGHEST_STACK} values that belong to nothing`);
    this.stack.push(value);
  }

  get floor() {
    return this.open.length ? this.open[this.open.length - 1] : 0;
  }

  pop() {
    if (this.stack.length <= this.floor) this.fail("it takes a value that is not there");
    return this.stack.pop();
  }

  popAll() {
    if (!this.open.length) this.fail("it ends what it never began");
    return this.stack.splice(this.open.pop());
  }

  /** The topmost value, which must be a list or a dict. */
  top(kind) {
    if (this.stack.length <= this.floor) this.fail("it fills what is not there");
    const value = this.stack[this.stack.length - 1];
    if (typeName(value) !== kind) this.fail(`it fills a ${kind}, and there is none`);
    return value;
  }

  mark() {
    if (this.open.length >= MOST_OPEN) this.fail(`more than ${MOST_OPEN} values begun inside each other`);
    this.open.push(this.stack.length);
  }

  append(values) {
    const list = this.top("list");
    for (const value of values) list.push(value);
  }

  fill(flat) {
    const entries = this.top("dict");
    if (flat.length % 2) this.fail("a key without a value");
    for (let i = 0; i < flat.length; i += 2) {
      const key = flat[i];
      if (typeof key !== "string" && typeName(key) !== "int") this.fail("a key that is neither a text nor an integer");
      entries[key] = flat[i + 1];
    }
  }

  setItem() {
    const value = this.pop();
    this.fill([this.pop(), value]);
  }

  /** A tuple, which nothing fills. */
  tuple(values) {
    this.push(Object.defineProperty(values, "isTuple", { value: true }));
  }

  shortTuple(count) {
    this.tuple(Array.from({ length: count }, () => this.pop()).reverse());
  }

  long() {
    const count = this.number(1);
    if (count > LONGEST_NUMBER) this.fail(`an integer of ${count} bytes; legal are at most ${LONGEST_NUMBER}`);
    const negative = count > 0 && this.content[this.at + count - 1] >= 128;
    this.push(this.number(count) - (negative ? 2 ** (8 * count) : 0));
  }

  text(width) {
    const size = this.number(width);
    const begin = this.take(size);
    try {
      this.push(this.decoder.decode(this.content.subarray(begin, begin + size)));
    } catch {
      this.fail("a text that is not UTF-8");
    }
  }

  protocol() {
    const version = this.number(1);
    if (version < 2 || version > 5) this.fail(`protocol ${version}; legal are 2 to 5`);
  }

  remember(place) {
    if (this.stack.length <= this.floor) this.fail("it keeps a value that is not there");
    if (place > this.memo.length) this.fail(`it keeps value ${place} before value ${this.memo.length}`);
    this.count(OF_MEMO);
    this.memo[place] = this.stack[this.stack.length - 1];
  }

  recall(width) {
    const place = this.number(width);
    if (place >= this.memo.length) this.fail(`value ${place} was never kept`);
    this.push(this.memo[place]);
  }
}

/** @type {Record<number, (machine: PickleMachine) => unknown>} */
const PICKLE_ACTIONS = {
  0x80: (m) => m.protocol(),
  0x95: (m) => m.take(8),
  0x28: (m) => m.mark(),
  0x30: (m) => m.pop(),
  0x31: (m) => m.popAll(),
  0x7d: (m) => m.push(Object.create(null)),
  0x5d: (m) => m.push([]),
  0x29: (m) => m.tuple([]),
  0x61: (m) => m.append([m.pop()]),
  0x65: (m) => m.append(m.popAll()),
  0x73: (m) => m.setItem(),
  0x75: (m) => m.fill(m.popAll()),
  0x74: (m) => m.tuple(m.popAll()),
  0x85: (m) => m.shortTuple(1),
  0x86: (m) => m.shortTuple(2),
  0x87: (m) => m.shortTuple(3),
  0x4e: (m) => m.push(null),
  0x88: (m) => m.push(true),
  0x89: (m) => m.push(false),
  0x4a: (m) => m.push(m.view.getInt32(m.take(4), true)),
  0x4b: (m) => m.push(m.number(1)),
  0x4d: (m) => m.push(m.number(2)),
  0x8a: (m) => m.long(),
  0x47: (m) => m.push(m.view.getFloat64(m.take(8))),
  0x8c: (m) => m.text(1),
  0x58: (m) => m.text(4),
  0x8d: (m) => m.text(8),
  0x94: (m) => m.remember(m.memo.length),
  0x71: (m) => m.remember(m.number(1)),
  0x72: (m) => m.remember(m.number(4)),
  0x68: (m) => m.recall(1),
  0x6a: (m) => m.recall(4),
};
