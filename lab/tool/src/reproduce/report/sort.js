"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("th")];
  const body = table.tBodies[0];
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent;
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      const [m, n] = [Number(x), Number(y)];
      return Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
    };
    const rows = [...body.rows].sort(compare);
    body.append(...(down ? rows.reverse() : rows));
  }));
}
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("section > details")) details.open = true;
});
