/** Scores of Sphinx's search, which are its own but that a page about a word comes before names of the reference. */
// "offload" is three names of the API and a how-to: the how-to tells what they are for.
// A var: searchtools.js declares it too, where there is none.
var Scorer = {
  // A Python name scores 16 and a word in a page's title 15.
  score: ([page, , , , score, , kind]) =>
    kind === "object" && page.startsWith("reference/tinyckpt.") ? score - 2 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
