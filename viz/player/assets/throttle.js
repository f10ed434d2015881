/** Throttling: a function is called at most every so often, and at last once more. */

const SHORTEST = 100; // milliseconds between two calls: nobody reads faster
const LONGEST = 1000; // milliseconds, at most, however long a call takes
const SHARE = 10; // times what a call takes, at least: on a slow machine frames come first

export class Throttle {
  /** @param {() => void} call */
  constructor(call) {
    this.call = call;
    this.last = 0; // when it was called last
    this.pause = SHORTEST;
    this.timer = null;
  }

  /** Call as soon as it is due; at once if nothing is in motion. @param {boolean} isMoving */
  ask(isMoving) {
    const wait = isMoving ? this.last + this.pause - performance.now() : 0;
    if (wait <= 0) this.now();
    else this.timer ??= setTimeout(() => this.now(), wait);
  }

  now() {
    this.cancel();
    const begin = performance.now();
    this.call();
    this.last = performance.now();
    this.pause = Math.min(LONGEST, Math.max(SHORTEST, SHARE * (this.last - begin)));
  }

  cancel() {
    clearTimeout(this.timer);
    this.timer = null;
  }
}
