"use strict";
// Clicking on a column head sorts the table by that column; a second click reverses the order.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.firstElementChild.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value;
      const rows = [...table.tBodies[0].rows];
      const numeric = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
      rows.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // empty cells stay at the end
        const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true });
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
