/** Filters of the leaderboard's table: a select for each property that its rows name as data. */
(() => {
  const box = document.querySelector(".cells");
  const rows = [...box.querySelectorAll("tbody tr")];
  const form = Object.assign(document.createElement("form"), { className: "filters" });
  const shown = document.createElement("output");
  form.setAttribute("aria-label", "Filters of the table");
  const selects = Object.keys(rows[0].dataset).map((name) => {
    const values = new Set(rows.map((row) => row.dataset[name]));
    const select = Object.assign(document.createElement("select"), { name });
    select.append(new Option("all", ""), ...[...values].map((value) => new Option(value, value)));
    const label = document.createElement("label");
    label.append(name, select);
    form.append(label);
    return select;
  });
  const filter = () => {
    for (const row of rows) row.hidden = selects.some(({ name, value }) => value && row.dataset[name] !== value);
    shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} cells`;
    box.scrollTop = 0;
  };
  const reset = Object.assign(document.createElement("button"), { type: "reset", textContent: "show all" });
  form.append(reset, shown);
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter)); // once the selects are reset
  form.addEventListener("submit", (event) => event.preventDefault());
  box.before(form);
  filter();
})();
