/** Whether an element is in sight: not beyond the window's edge, nor under the controls at its foot. */

const foot = () => document.querySelector("footer");

/** @param {Element} element */
export function isInSight(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight - foot().offsetHeight;
}

/** Call when an element comes into sight, or leaves it. @param {Element} element @param {(isSeen: boolean) => void} told */
export function watchSight(element, told) {
  let observer = /** @type {IntersectionObserver} */ (null);
  new ResizeObserver(() => {
    observer?.disconnect();
    const rootMargin = `0px 0px ${-foot().offsetHeight}px`;
    observer = new IntersectionObserver((entries) => told(entries.at(-1).isIntersecting), { rootMargin });
    observer.observe(element);
  }).observe(foot());
}
