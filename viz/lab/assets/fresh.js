/** Copy of the page before any of its scripts ran, from which it can restart. */

export const fresh = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
fresh.querySelector("body > script:last-of-type").remove(); // these scripts, which it unpacks anew
