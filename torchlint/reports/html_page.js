"use strict";
const form = document.querySelector("form");
const articles = [...document.querySelectorAll("article")].map((element) => ({
  element,
  data: element.dataset,
  text: element.textContent.toLowerCase() + "\n" + element.dataset.path.toLowerCase(),
}));
const files = [...document.querySelectorAll(".file")];

function isInFolder(folder, wanted) {
  return wanted === "" || folder === wanted || wanted === "." || folder.startsWith(wanted + "/");
}

function applyFilters() {
  const { rule, level, folder, text, fixable } = form.elements;
  const words = text.value.toLowerCase().trim();
  let shown = 0;
  for (const article of articles) {
    const fits =
      (rule.value === "" || article.data.rule === rule.value) &&
      (level.value === "" || article.data.level === level.value) &&
      isInFolder(article.data.folder, folder.value) &&
      (!fixable.checked || article.data.fix !== "") &&
      article.text.includes(words);
    article.element.hidden = !fits;
    shown += fits ? 1 : 0;
  }
  for (const file of files) {
    file.hidden = file.querySelector("article:not([hidden])") === null;
  }
  document.getElementById("shown").textContent = `${shown} of ${articles.length} shown`;
}

function choose(event) {
  const button = event.target.closest("button[data-filter]");
  if (button !== null) {
    form.elements[button.dataset.filter].value = button.dataset.value;
    applyFilters();
    form.scrollIntoView({ block: "start" });
  }
}

function openAll() {
  for (const details of document.querySelectorAll("article details")) {
    details.open = true;
  }
}

form.hidden = false;
form.addEventListener("input", applyFilters);
form.addEventListener("change", applyFilters);
form.addEventListener("reset", () => setTimeout(applyFilters));
form.addEventListener("submit", (event) => event.preventDefault());
document.querySelector(".tables").addEventListener("click", choose);
window.addEventListener("beforeprint", openAll);
applyFilters();
