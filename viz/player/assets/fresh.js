/** Copy of the page before any of its scripts ran, from which it can restart, or be saved as it stands. */

export const fresh = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
fresh.querySelector("body > script:last-of-type")?.remove(); // these scripts, which it unpacks anew

/** The page as a document that opens where an address says. @param {string} address */
export function savedPage(address) {
  const page = /** @type {HTMLElement} */ (fresh.cloneNode(true));
  page.dataset.at = address.replace(/^#/, "");
  page.dataset.theme = document.documentElement.dataset.theme;
  return `<!doctype html>\n${page.outerHTML}\n`;
}
