/** Entry point: builds the interactive questions in their placeholders. */
addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll("[data-predict]")) {
    const { predict, of } = place.dataset;
    Predict.kinds[predict](place, of ? PREDICT[predict][of] : PREDICT[predict]);
  }
});
