/** Collapsed answers: excluded from the site's search. */
(() => {
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
