/** What all pages of the site do: players follow the switch of themes, parts have names, search works from a folder. */
(() => {
  // A player follows the system by itself; what the site's own switch says, it has to be told.
  const tell = (frame) => frame.postMessage({ theme: document.body.dataset.theme ?? "auto" }, "*");
  const players = () => [...document.querySelectorAll("iframe.player")].map((player) => player.contentWindow);
  addEventListener("message", ({ source, data }) => {
    if (data?.asks === "theme" && players().includes(source)) tell(source);
  });
  new MutationObserver(() => players().forEach(tell)).observe(document.body, { attributeFilter: ["data-theme"] });

  // Which of the labs is in the frame.
  for (const link of document.querySelectorAll('a[target="lab"]')) {
    link.addEventListener("click", () => {
      for (const other of document.querySelectorAll('a[target="lab"]')) other.removeAttribute("aria-current");
      link.setAttribute("aria-current", "true");
    });
  }

  // What the theme leaves unsaid: the names of its parts, a heading, and that some parts scroll.
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
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", scrollable);
  scrollable();

  // Of a page in a folder, no other page can be read: results without a line from them.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }
})();
