/** Builds the questions in their placeholders, which without scripts keep their text. */
addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll("[data-predict]")) {
    const { predict, of } = place.dataset;
    Predict.kinds[predict](place, of ? PREDICT[predict][of] : PREDICT[predict]);
  }
});
