/** Player in an iframe: follows the theme of the site around it. */

/**
 * @import { Playback } from "./playback.js"
 */

const THEMES = ["auto", "light", "dark"];

/** Ask whoever frames this page for the theme, and follow it; a page with its own keeps that.
 * @param {Playback} player
 */
export function followFrame(player) {
  const root = document.documentElement;
  if (parent === window || root.dataset.theme !== "auto") return;
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || !THEMES.includes(data?.theme) || data.theme === root.dataset.theme) return;
    root.dataset.theme = data.theme;
    player.recolour();
  });
  parent.postMessage({ asks: "theme" }, "*"); // it says nothing that anybody may not know
}
