/** Puts the questions where a page has room for them; scripts are off where none appears. */
addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll("[data-predict]")) {
    const { predict, of } = place.dataset;
    Predict.kinds[predict](place, of ? PREDICT[predict][of] : PREDICT[predict]);
  }
});
