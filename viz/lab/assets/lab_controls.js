/** Event handlers of the interactive planning page (lab): buttons, fields and keys. */

import { byId } from "../../player/assets/controls.js";
import { commandText, pythonText } from "./texts.js";

/**
 * @import { Lab } from "./lab.js"
 */

/** @param {Lab} lab */
export function connectControls(lab) {
  const parts = byId("lab-controls").content;
  const [about, undo, redo, far, flip, inside] = Array.from(parts.children);
  document.querySelector(".top").append(about);
  byId("next-stop").after(undo, redo);
  document.querySelector("footer").append(far);
  byId("node").append(flip, inside);
  byId("lab-link").after(byId("save-page"));
  const policy = byId("lab-policy");
  policy.append(...lab.offers.named.map(({ title, name }) => new Option(title, name)));
  policy.addEventListener("change", () => {
    const named = lab.offers.named.find(({ name }) => name === policy.value);
    if (named) lab.take(named);
  });
  const actions = {
    "lab-undo": () => lab.undo(lab.past, lab.coming),
    "lab-redo": () => lab.undo(lab.coming, lab.past),
    "lab-reset": () => lab.take(lab.start),
    "lab-mode": () => lab.setKeeps(!lab.keeps),
    "lab-flip": () => lab.flipAimed(),
    "lab-link": () => lab.copy(lab.link()),
    "lab-command": () => lab.copy(commandText(lab.offers, lab.choice)),
    "lab-python": () => lab.copy(pythonText(lab.offers, lab.choice)),
    "lab-challenge": () => lab.nextChallenge(),
    "lab-sharing": () => lab.setSharing(!document.documentElement.classList.contains("sharing")),
    "lab-more": () => lab.setMore(!lab.more),
    "lab-inside": () => lab.openAimed(),
  };
  for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
  explainKeys();
  const form = byId("lab-form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    lab.ask(byId("lab-budget").value);
  });
  // What is typed is no key of the player's.
  form.addEventListener("keydown", (event) => event.stopPropagation());
  document.addEventListener("keydown", (event) => lab.key(event));
  byId("panels").addEventListener("pointermove", (event) => lab.hoverRow(event));
  const pressed = (event) => {
    lab.pointed = event;
    if (!event.target.closest?.("#lab-share, #lab-sharing")) lab.setSharing(false);
  };
  document.addEventListener("pointerdown", pressed, { capture: true });
}

/** Add the lab's keys to those that the page explains. */
function explainKeys() {
  const keys = [
    ["K", "a click on a layer keeps or drops it, or selects it"],
    ["Shift K", "keep or drop what is selected"],
    ["Ctrl Z", "the choice before; with Y, the one after"],
  ];
  for (const [key, words] of keys) {
    const [dt, kbd, dd] = ["dt", "kbd", "dd"].map((tag) => document.createElement(tag));
    [kbd.textContent, dd.textContent] = [key, words];
    dt.append(kbd);
    document.querySelector("#keys dl").append(dt, dd);
  }
}
