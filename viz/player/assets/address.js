/**
 * URL fragment of the page, except for the step: views, selection, visible range, loop range,
 * search.
 */

import { coarse, setSingle } from "./rows.js";

/**
 * @import { Player } from "./main.js"
 */

const DIGITS = 8; // of a place on the axis

/** The part of an address, each name with its "&". @param {Player} player */
export function placeText(player) {
  const { panels, chosen, scales, navigation, solo, opening } = player;
  const { extent } = scales;
  const said = [];
  const views = (player.difference ? [player.difference] : panels).map((panel) => panel.index);
  if (views.some(Boolean)) said.push(`open=${views.join(",")}`);
  const { selected, value } = chosen;
  if (selected >= 0 || value >= 0)
    said.push(`select=${chosen.model.id ? `${chosen.model.id}.` : ""}${value >= 0 ? `v${value}` : `c${selected}`}`);
  const pair = player.difference?.models.map(({ id }) => id + 1).join("-") ?? "none";
  if (pair !== player.usualPair) said.push(`difference=${pair}`);
  if (solo !== opening) said.push(`alone=${solo + 1}`);
  if (!extent.isWhole)
    said.push(`from=${Number(extent.from.toPrecision(DIGITS))}`, `to=${Number(extent.to.toPrecision(DIGITS))}`);
  if (scales.kind !== player.usualKind) said.push(`y=${scales.kind}`);
  if (scales.single !== coarse.matches) said.push(`rows=${scales.single ? "each" : "all"}`);
  if (navigation.loop) said.push(`loop=${navigation.loop.from}-${navigation.loop.to}`);
  if (navigation.search.active) said.push(`find=${encodeURIComponent(navigation.search.query)}`);
  return said.map((text) => `&${text}`).join("");
}

/** Show what an address names besides moment and selection, and of all that it does not name nothing;
 * what cannot be is left out.
 * @param {Player} player @param {URLSearchParams} parameters
 */
export function goToPlace(player, parameters) {
  const { panels, navigation } = player;
  const alone = wholeIn(parameters.get("alone"), 0, panels.length);
  const solo = alone === null || panels.length < 2 ? player.opening : alone - 1;
  if (solo !== player.solo) player.setSolo(solo);
  const focused = document.activeElement;
  const views = (parameters.get("open") ?? "").split(",");
  (player.difference ? [player.difference] : panels).forEach((panel, i) => {
    const view = wholeIn(views[i], 0, panel.model.graph.views.length - 1) ?? 0;
    if (view !== panel.index) panel.open(view);
  });
  // Whoever opens a link stands nowhere yet.
  if (focused === document.body) /** @type {HTMLElement} */ (focused).blur();
  goToPart(player, parameters);
  const scale = player.kinds.find((kind) => kind === parameters.get("y")) ?? player.usualKind;
  if (scale !== player.scales.kind) player.setScale(scale);
  const single = { each: true, all: false }[parameters.get("rows") ?? ""] ?? coarse.matches;
  if (single !== player.scales.single) setSingle(player, single);
  const [from, to] = (parameters.get("loop") ?? "").split("-").map((text) => wholeIn(text, 0, player.ticks - 1));
  if (from !== null && to !== null && to !== undefined) navigation.setLoop(from, to);
  else if (navigation.loop) navigation.toggleLoop();
  navigation.search.become(parameters.get("find") ?? "");
}

function goToPart({ scales: { extent }, navigation }, parameters) {
  const [begin, end] = ["from", "to"].map((name) => Number.parseFloat(parameters.get(name) ?? ""));
  navigation.wanted = null;
  const known = Number.isFinite(begin) && Number.isFinite(end) && end > begin;
  extent.set(...(known ? [begin, Math.max(end, begin + Math.min(navigation.least, extent.whole))] : [0, extent.whole]));
}

/** Select the node that a URL names, if it exists.
 * @param {Player} player @param {string} text
 */
export function goToSelection(player, text) {
  const [, id = "0", kind, number] = /^(?:(\d+)\.)?([vc])(\d+)$/.exec(text) ?? [];
  const panel = player.difference ?? player.panels[Number(id)];
  const place =
    panel && kind
      ? wholeIn(number, 0, (kind === "v" ? panel.model.graph.data.names : panel.view.labels).length - 1)
      : null;
  if (place === null) player.choose(player.chosen, -1);
  else if (kind === "v") player.choose(panel, -1, place);
  else player.choose(panel, place);
}

/** A whole number within bounds; null for anything else. */
export function wholeIn(text, least, most) {
  if (!/^\d{1,9}$/.test(text ?? "")) return null;
  const number = Number(text);
  return least <= number && number <= most ? number : null;
}
