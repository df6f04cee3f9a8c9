// Sorts and filters the tables of a page, enlarges parts of its flame graphs, and switches between
// light and dark. Without this script the page has the same drawings and tables.
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

  // Flame graphs: a box that is chosen gets the whole width, with its callers above it. Arrow keys
  // move between boxes, and a text marks the functions that have it in their names.
  const everything = { x: 0, w: 1, d: -1 };
  const tiny = 1e-9;
  for (const figure of document.querySelectorAll("figure.flame")) {
    const boxes = [...figure.querySelectorAll(".box")].map((element) => {
      const { x, w, d, n } = element.dataset;
      return { element, x: Number(x), w: Number(w), d: Number(d), name: n };
    });
    const isIn = (one, other) => one.x >= other.x - tiny && one.x + one.w <= other.x + other.w + tiny;
    const zoom = (to) => {
      for (const box of boxes) {
        const above = box.d < to.d && isIn(to, box);
        const inside = box.d >= to.d && isIn(box, to);
        box.element.style.display = above || inside ? "" : "none";
        box.element.classList.toggle("above", above);
        box.element.setAttribute("x", above ? "0%" : `${(100 * (box.x - to.x)) / to.w}%`);
        box.element.setAttribute("width", above ? "100%" : `${(100 * box.w) / to.w}%`);
      }
    };
    const focus = (box) => {
      for (const one of boxes) one.element.setAttribute("tabindex", one === box ? "0" : "-1");
      box.element.focus();
    };
    const neighbour = (box, key) => {
      const shown = boxes.filter((one) => one.element.style.display !== "none");
      if (key === "ArrowUp") return shown.find((one) => one.d === box.d - 1 && isIn(box, one));
      if (key === "ArrowDown") return shown.find((one) => one.d === box.d + 1 && isIn(one, box));
      const row = shown.filter((one) => one.d === box.d);
      return row[row.indexOf(box) + (key === "ArrowRight" ? 1 : -1)];
    };
    boxes.forEach((box, place) => {
      const { element } = box;
      element.setAttribute("role", "button");
      element.setAttribute("aria-label", element.querySelector("title").textContent);
      element.setAttribute("tabindex", place === 0 ? "0" : "-1");
      element.addEventListener("click", () => zoom(box));
      element.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") zoom(box);
        else if (event.key === "Escape") zoom(everything);
        else if (!event.key.startsWith("Arrow")) return;
        else {
          const next = neighbour(box, event.key);
          if (next) focus(next);
        }
        event.preventDefault();
      });
    });
    const found = made("span", { class: "found", role: "status" });
    const search = filter("Functions with", (text) => {
      let share = 0;
      const counted = [];
      for (const box of boxes) {
        const hit = text !== "" && box.name.toLowerCase().includes(text);
        box.element.classList.toggle("hit", hit);
        if (hit && !counted.some((one) => isIn(box, one))) {
          counted.push(box);
          share += box.w;
        }
      }
      found.textContent = text === "" ? "" : `${(100 * share).toFixed(1)} % of the bytes`;
    });
    const all = made("button", { type: "button" }, "Show all");
    all.addEventListener("click", () => zoom(everything));
    figure
      .querySelector(".boxes")
      .before(made("div", { class: "filters" }, search, all, found));
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
