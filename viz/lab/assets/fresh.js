/** The page as it came, before any of its scripts did anything: with it, it can begin anew. */
const fresh = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
fresh.querySelector("body > script:last-of-type").remove(); // these scripts, which it unpacks anew
