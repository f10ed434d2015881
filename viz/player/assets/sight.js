/** Whether an element is in sight: not beyond the window's edge, nor under the controls at its foot. */

/** Call when an element comes into sight, or leaves it.
 * @param {Element} element @param {(isSeen: boolean) => void} onChange
 */
export function watchSight(element, onChange) {
  const foot = document.querySelector("footer");
  let observer = /** @type {IntersectionObserver} */ (null);
  const look = () => {
    observer?.disconnect();
    const told = (entries) => onChange(entries.at(-1).isIntersecting);
    observer = new IntersectionObserver(told, { rootMargin: `0px 0px ${-foot.offsetHeight}px` });
    observer.observe(element);
  };
  new ResizeObserver(look).observe(foot);
  // The observer is told after a frame: whatever a scrolled page shows in it is there already.
  document.addEventListener("scroll", () => {
    onChange(true);
    look();
  });
}
