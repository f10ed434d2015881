/** Answers that are folded away: print shows them, and the search of this site leaves them out. */
(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.answer:not([open])")];
    for (const answer of opened) answer.open = true;
  });
  addEventListener("afterprint", () => {
    for (const answer of opened) answer.open = false;
  });
  // Sphinx's search shows the text around a word: with what was folded away, if nobody took it out.
  addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return;
    const { htmlToText } = Search;
    Search.htmlToText = (html, anchor) => {
      const page = new DOMParser().parseFromString(html, "text/html");
      for (const answer of page.querySelectorAll("details.answer")) answer.remove();
      return htmlToText(page.documentElement.outerHTML, anchor);
    };
  });
})();
