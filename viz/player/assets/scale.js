/** Vertical axis of memory: linear, logarithmic, or broken where one spike dwarfs the rest; or addresses. */

/**
 * @import { Model } from "./data.js"
 */

export const ADDRESSES = "address"; // a linear axis, of a place in one buffer instead of a sum
export const SCALES = ["linear", "log", "broken", ADDRESSES];
const OCTAVES = 10; // that a logarithmic axis shows below the highest, at most
export const BREAK = 0.8; // of the height, below which a broken axis is linear
const USUAL = 0.97; // of all steps, which are below the break
const SPIKE = 2.5; // times what is usual, from which a peak hides the rest
const SAMPLES = 4096;

/** Where an axis would be broken, or 0 where no spike hides anything. @param {Model[]} models */
export function breakOf(models, highest) {
  const sample = [];
  for (const { live, count } of models) {
    for (let i = 0, n = Math.min(count, SAMPLES); i < n; i++) sample.push(live[Math.floor((i * count) / n)]);
  }
  sample.sort((a, b) => a - b);
  const usual = sample[Math.floor(USUAL * (sample.length - 1))];
  return usual > 0 && highest > SPIKE * usual ? 1.1 * usual : 0;
}

export class Scale {
  /** @param {string} kind @param {number} highest @param {number} broken where, for a broken one
   * @param {number} least the smallest of the amounts that are stacked
   */
  constructor(kind, highest, broken, least = 0) {
    this.kind = kind;
    this.highest = Math.max(highest, 1);
    this.broken = broken;
    this.floor = Math.min(Math.max(this.highest / 2 ** OCTAVES, least), this.highest);
  }

  /** How high an amount is, as a share. @param {number} amount */
  at(amount) {
    if (this.kind === "log") return Math.log2(1 + amount / this.floor) / Math.log2(1 + this.highest / this.floor);
    if (this.kind !== "broken") return amount / this.highest;
    if (amount <= this.broken) return (BREAK * amount) / this.broken;
    return BREAK + ((1 - BREAK) * (amount - this.broken)) / (this.highest - this.broken);
  }

  /** The amount at a height. @param {number} share */
  amountAt(share) {
    if (this.kind === "log") return this.floor * ((1 + this.highest / this.floor) ** share - 1);
    if (this.kind !== "broken") return share * this.highest;
    if (share <= BREAK) return (share / BREAK) * this.broken;
    return this.broken + ((share - BREAK) / (1 - BREAK)) * (this.highest - this.broken);
  }

  /** Round amounts for the axis, ascending. @param {boolean} inNodes @param {number} most how many */
  ticks(inNodes, most) {
    const found = [0];
    if (this.kind === "log") {
      for (let amount = roundBelow(this.highest, inNodes); amount >= this.floor && amount >= 1; amount /= 4) {
        found.push(Math.max(1, Math.floor(amount)));
      }
      const distance = Math.ceil(found.length / most);
      return found.filter((_, i) => i % distance === 0).sort((a, b) => a - b);
    }
    const top = this.kind === "broken" ? this.broken : this.highest;
    const step = stepFor(top / Math.max(most, 1), inNodes);
    for (let amount = step; amount <= top * 1.001; amount += step) found.push(amount);
    return found;
  }
}

/** The least round amount that is not below one: in nodes 1, 2, 5, 10; in bytes powers of 2. */
function stepFor(amount, inNodes) {
  if (!inNodes) return 2 ** Math.max(0, Math.ceil(Math.log2(amount)));
  const ten = 10 ** Math.max(0, Math.floor(Math.log10(amount)));
  return ten * ([1, 2, 5, 10].find((factor) => factor * ten >= amount) ?? 10);
}

function roundBelow(amount, inNodes) {
  return inNodes ? Math.floor(amount) : 2 ** Math.floor(Math.log2(amount));
}
