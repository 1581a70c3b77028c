"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", falling < 0 ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rank = (a, b) => {
        const x = Number(key(a)), y = Number(key(b));
        const known = [x, y].map((v) => !Number.isNaN(v));
        if (known[0] && known[1]) return falling * (x < y ? -1 : x > y ? 1 : 0);
        if (known[0] !== known[1]) return known[0] ? -1 : 1;
        return falling * key(a).localeCompare(key(b));
      };
      body.append(...[...body.rows].sort(rank));
    });
  });
}
