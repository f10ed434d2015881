/** Collapsed answers: expanded for print, excluded from the site's search. */
(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.answer:not([open])")];
    for (const answer of opened) answer.open = true;
  });
  addEventListener("afterprint", () => {
    for (const answer of opened) answer.open = false;
  });
  // Sphinx's search shows excerpts of a page, which would otherwise include collapsed answers.
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
