/**
 * What of each cell's memory is held, as values come and go.
 *
 * The bytes of a value that owns its memory are held while it or any view of it is resident. All
 * counts are by cell of a view: values, those of them that were recomputed, and bytes.
 */
class Memory {
  /** @param {any} graph @param {any} view */
  constructor(graph, view) {
    this.nbytes = graph.data.nbytes;
    this.owners = graph.data.owners;
    this.home = homes(graph.data.names.length, view.data);
    const cells = view.labels.length;
    this.resident = new Uint8Array(this.home.length); // 2 for values that were recomputed
    this.holders = new Int32Array(this.home.length); // resident values in the memory of an owner
    this.values = new Int32Array(cells);
    this.recomputed = new Int32Array(cells);
    this.bytes = new Float64Array(cells);
    this.allValues = new Int32Array(cells);
    this.allBytes = new Float64Array(cells);
    this.home.forEach((cell, data) => {
      if (cell < 0) return;
      this.allValues[cell]++;
      this.allBytes[cell] += this.nbytes[data];
    });
  }

  /** A value is resident now. @param {Set<number>} touched gets the cells that this may change */
  hold(data, recomputed, touched) {
    this.become(data, recomputed ? 2 : 1, touched);
  }

  /** A value is resident no more. @param {Set<number>} touched */
  release(data, touched) {
    this.become(data, 0, touched);
  }

  become(data, now, touched) {
    const before = this.resident[data];
    const owner = this.owners[data];
    this.resident[data] = now;
    if (!before !== !now) this.countBytes(owner, now ? 1 : -1);
    const cell = this.home[data];
    if (cell >= 0) {
      this.values[cell] += Number(now > 0) - Number(before > 0);
      this.recomputed[cell] += Number(now === 2) - Number(before === 2);
    }
    touched.add(cell).add(this.home[owner]);
  }

  /** The first value in an owner's memory takes it, the last gives it back. */
  countBytes(owner, more) {
    const before = this.holders[owner];
    this.holders[owner] += more;
    const cell = this.home[owner];
    const held = Number(this.holders[owner] > 0) - Number(before > 0);
    if (cell >= 0) this.bytes[cell] += held * this.nbytes[owner];
  }

  /** Which part of a cell's bytes is held; of its values, where all of them are views. */
  share(cell) {
    const total = this.allBytes[cell];
    return total ? this.bytes[cell] / total : this.values[cell] / Math.max(this.allValues[cell], 1);
  }

  /** How many of LEVELS parts are held: 0 only if nothing is, LEVELS only if everything is. */
  level(cell) {
    if (!this.values[cell] && !this.bytes[cell]) return 0;
    const share = this.share(cell);
    if (share === 1) return LEVELS;
    return Math.max(1, Math.min(LEVELS - 1, roundToEven(LEVELS * share)));
  }
}

/** The nearest integer; halves to the even one, as Python rounds. */
function roundToEven(x) {
  const nearest = Math.round(x);
  return nearest - x === 0.5 && nearest % 2 ? nearest - 1 : nearest;
}
