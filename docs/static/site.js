/** Script of all pages of the site: theme of embedded players, landmark names, offline search. */
(() => {
  // A player follows the system's theme by itself; the site's own switch is sent as a message.
  const tell = (frame) => frame.postMessage({ theme: document.body.dataset.theme ?? "auto" }, "*");
  const players = () => [...document.querySelectorAll("iframe.player")].map((player) => player.contentWindow);
  addEventListener("message", ({ source, data }) => {
    if (data?.asks === "theme" && players().includes(source)) tell(source);
  });
  new MutationObserver(() => players().forEach(tell)).observe(document.body, { attributeFilter: ["data-theme"] });

  // Mark the link of the lab in the frame as current.
  for (const link of document.querySelectorAll('a[target="lab"]')) {
    link.addEventListener("click", () => {
      for (const other of document.querySelectorAll('a[target="lab"]')) other.removeAttribute("aria-current");
      link.setAttribute("aria-current", "true");
    });
  }

  // Accessibility that the theme lacks: landmark names, a heading, focusable scroll areas.
  for (const [part, name] of [[".sidebar-drawer", "Site"], [".toc-drawer", "On this page"]]) {
    document.querySelector(part)?.setAttribute("aria-label", name);
  }
  const results = document.getElementById("search-results");
  if (results) {
    const heading = Object.assign(document.createElement("h1"), { className: "visually-hidden", textContent: "Search" });
    results.before(heading);
  }
  const scrollable = () => {
    for (const box of document.querySelectorAll("article pre, article .table-wrapper")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", scrollable);
  scrollable();

  // A page opened from a file cannot fetch others: show search results without excerpts.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }
})();
