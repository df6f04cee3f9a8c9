// Sorts and filters the tables of a page, and switches between light and dark. Without this script
// the page has the same drawings and tables.
"use strict";
(() => {
  const made = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // The theme: as the reader's system has it, light, or dark. The choice is remembered if the
  // browser permits it for files.
  const remembered = (theme) => {
    try {
      if (theme !== undefined) localStorage.setItem("cairn-theme", theme);
      return localStorage.getItem("cairn-theme");
    } catch {
      return null;
    }
  };
  const themes = ["automatic", "light", "dark"];
  const select = made("select", { id: "theme" }, ...themes.map((name) => new Option(name, name)));
  const use = (theme) => {
    if (theme === "automatic") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const before = remembered();
  if (themes.includes(before)) {
    select.value = before;
    use(before);
  }
  select.addEventListener("change", () => {
    use(select.value);
    remembered(select.value);
  });
  document.getElementById("controls").append(made("label", { for: "theme" }, "Theme "), select);

  // Sorting: a click on a head sorts by its column, upwards at first and then downwards.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
  };
  const compared = (one, other) => {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return one.localeCompare(other, "en", { numeric: true });
  };
  const sort = (table, column) => {
    const heads = [...table.tHead.rows[0].cells];
    const down = heads[column].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
    const isNumber = heads[column].classList.contains("number");
    const known = [];
    const unknown = [];
    for (const row of table.tBodies[0].rows) {
      const key = keyOf(row, column);
      (isNumber && typeof key !== "number" ? unknown : known).push([key, row]);
    }
    known.sort(([one], [other]) => (down ? -1 : 1) * compared(one, other));
    table.tBodies[0].append(...[...known, ...unknown].map(([, row]) => row));
  };

  // Filters: rows by the text of their first cell, and in wide tables columns by their head.
  const filter = (name, apply) => {
    const input = made("input", { type: "search", size: "14" });
    input.addEventListener("input", () => apply(input.value.trim().toLowerCase()));
    return made("label", {}, name, input);
  };
  const holds = (cell, text) => cell.textContent.toLowerCase().includes(text);
  const rowFilter = (table) =>
    filter("Rows with", (text) => {
      for (const row of table.tBodies[0].rows) row.hidden = text !== "" && !holds(row.cells[0], text);
    });
  const columnFilter = (table) =>
    filter("Columns with", (text) => {
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        const hides = column > 0 && text !== "" && !holds(head, text);
        for (const row of table.rows) row.cells[column].hidden = hides;
      });
    });

  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.tHead.rows[0].cells];
    const rows = table.tBodies[0].rows.length;
    if (rows > 1 && !("texts" in table.dataset)) {
      heads.forEach((head, column) => {
        const button = made("button", { type: "button" }, ...head.childNodes);
        button.addEventListener("click", () => sort(table, column));
        head.append(button);
      });
    }
    const filters = made("div", { class: "filters" });
    if (rows >= 8 && !("texts" in table.dataset)) filters.append(rowFilter(table));
    if (heads.length >= 6 && table.classList.contains("tight")) filters.append(columnFilter(table));
    if (filters.childNodes.length) table.closest(".scroll").before(filters);
  }

  // Everything that is folded away is printed, too.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
  });
})();
