"use strict";

// ---- tables that sort ------------------------------------------------------------------------
function cellValue(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replace(/[,<\s]/g, ""));
  return Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  const numbers = (typeof a === "number") + (typeof b === "number");
  if (numbers === 2) return a - b;
  // a dash means that there is no number: such rows come last when numbers are sorted upwards
  if (numbers === 1) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b);
}

for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => {
    head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((one, two) => compare(cellValue(one, column), cellValue(two, column)));
      body.append(...(down ? rows.reverse() : rows));
    });
  });
}

// ---- questions -------------------------------------------------------------------------------
const data = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("filters");
const list = document.getElementById("list");
const PAGE = 40;
let matching = [];
let shown = 0;

function fill(name) {
  const values = [...new Set(data.rows.map((row) => row[name]))].filter((value) => value !== null);
  values.sort((a, b) => compare(a, b));
  const select = form.elements[name];
  select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
  select.parentElement.hidden = values.length < 2;
  if (values.length < 2) select.parentElement.style.display = "none";
}

function verdict(row) {
  if (row.error !== null) return "failed";
  return row.right ? "right" : "wrong";
}

function accepts(row) {
  for (const name of ["task", "system", "key", "seed", "period", "category"]) {
    const wanted = form.elements[name].value;
    if (wanted !== "" && String(row[name]) !== wanted) return false;
  }
  const state = form.elements.verdict.value;
  if (state !== "" && (state === "abstained" ? !row.abstained : verdict(row) !== state)) return false;
  const evidence = form.elements.evidence.value;
  if (evidence !== "" && (row.evidence.length === 0 || (evidence === "hit") !== row.found > 0)) return false;
  const words = form.elements.words.value.trim().toLowerCase();
  return words === "" || `${row.question} ${row.gold ?? ""} ${row.answer ?? ""}`.toLowerCase().includes(words);
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function field(parent, name, text) {
  parent.append(element("dt", name), element("dd", text));
}

function card(row) {
  const article = element("article", undefined, row.right ? "right" : "wrong");
  article.append(element("h3", row.question));
  const fields = element("dl");
  field(fields, "gold", row.trap ? "(not in the conversation)" : row.gold ?? "");
  field(fields, "answer", row.error !== null ? `(failed: ${row.error})` : row.answer || "(empty)");
  if (row.evidence.length) {
    field(fields, "evidence", `${row.found} of ${row.evidence.length} found (${row.evidence.join(", ")})`);
  }
  article.append(fields);
  if (row.lines.length) {
    const details = element("details");
    details.append(element("summary", `recalled turns (first ${row.lines.length})`));
    const items = element("ul");
    for (const [number, hit] of row.lines) items.append(element("li", data.lines[number], hit ? "hit" : ""));
    details.append(items);
    article.append(details);
  }
  const scores = Object.entries(row.metrics).map(([name, value]) => `${name} ${value.toFixed(3)}`);
  if (row.consistent !== null) scores.push(row.consistent ? "consistent" : "not consistent");
  if (row.judged !== null) scores.push(row.judged ? "judged correct (J)" : "judged wrong (J)");
  if (row.abstained) scores.push("abstained");
  const place = [row.task, row.system, row.id, `seed ${row.seed}`];
  if (row.category !== null) place.push(`category ${row.category}`);
  if (row.period !== null) place.push(`after period ${row.period}`);
  article.append(element("p", place.join(" · "), "meta"), element("p", scores.join(" · "), "meta"));
  return article;
}

function showMore() {
  list.append(...matching.slice(shown, shown + PAGE).map(card));
  shown = Math.min(shown + PAGE, matching.length);
  document.getElementById("more").hidden = shown === matching.length;
  document.getElementById("count").textContent =
    `${matching.length.toLocaleString("en")} of ${data.rows.length.toLocaleString("en")} answers, ${shown} shown`;
}

function refresh() {
  matching = data.rows.filter(accepts);
  shown = 0;
  list.replaceChildren();
  showMore();
}

for (const name of ["task", "system", "key", "seed", "period", "category"]) fill(name);
form.addEventListener("input", refresh);
form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("more").addEventListener("click", showMore);
refresh();
