/* Filters the table of rules by text, family, level, fix and default. Without JavaScript the whole table is shown. */
"use strict";

(() => {
  const holder = document.getElementById("rule-table");
  const table = holder && holder.querySelector("table");
  if (!table) return;

  const columns = new Map([...table.tHead.rows[0].cells].map((cell) => [cell.textContent.trim(), cell.cellIndex]));
  const cell = (row, column) => row.cells[columns.get(column)].textContent.trim();
  const rows = [...table.tBodies[0].rows];
  const values = (column) => [...new Set(rows.map((row) => cell(row, column)))];

  const form = document.createElement("form");
  form.className = "rule-filter";
  form.setAttribute("role", "search");
  form.setAttribute("aria-label", "Filter the rules");

  const labelled = (text, control) => {
    const label = document.createElement("label");
    label.append(text, control);
    form.append(label);
    return control;
  };

  const search = document.createElement("input");
  search.type = "search";
  search.name = "text";
  search.autocomplete = "off";
  search.placeholder = "code, name or words";
  labelled("Text", search);

  const choice = (label, column, options) => {
    const select = document.createElement("select");
    select.name = column;
    select.append(new Option("any", ""), ...options.map((option) => new Option(option.text, option.value)));
    return { column, select: labelled(label, select) };
  };
  const plain = (column) => values(column).map((value) => ({ text: value, value }));
  const choices = [
    choice("Family", "family", plain("family")),
    choice("Level", "level", plain("level")),
    choice("Fix", "fix", [{ text: "fixable", value: "safe unsafe" }, ...plain("fix")]),
    choice("Default", "default", plain("default")),
  ];

  const reset = document.createElement("button");
  reset.type = "reset";
  reset.textContent = "Show all";
  const count = document.createElement("p");
  count.setAttribute("role", "status");
  form.append(reset, count);

  const update = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const matches =
        words.every((word) => text.includes(word)) &&
        choices.every(({ column, select }) => !select.value || select.value.split(" ").includes(cell(row, column)));
      row.hidden = !matches;
      shown += matches;
    }
    count.textContent = shown ? `${shown} of ${rows.length} rules` : "No rule matches: choose less, or show all";
  };

  form.addEventListener("input", update);
  // Tools that fill in forms tell of a choice by this event alone.
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  // A reset event comes before the values change.
  form.addEventListener("reset", () => setTimeout(update));
  // A browser restores what was typed before a reload or a step back.
  window.addEventListener("pageshow", update);
  holder.prepend(form);
  update();
})();
