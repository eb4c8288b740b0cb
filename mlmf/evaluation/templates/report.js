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
      const body = table.tBodies[0];
      // the first click shows what people look for: the largest number, or the first word of the alphabet
      const first = head.classList.contains("text") ? "ascending" : "descending";
      const second = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? second : first;
      const down = order === "descending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const rows = [...body.rows].sort((one, two) => compare(cellValue(one, column), cellValue(two, column)));
      body.append(...(down ? rows.reverse() : rows));
    });
  });
}

// ---- questions -------------------------------------------------------------------------------
const data = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("filters");
const list = document.getElementById("list");
const OF_QUESTION = ["task", "key", "period", "category"];
const OF_ANSWER = ["system", "seed"];
const PAGE = 40;
let matching = [];
let shown = 0;

function fill(name, records, preset) {
  const values = [...new Set(records.map((record) => record[name]))].filter((value) => value !== null);
  values.sort((a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true })));
  const select = form.elements[name];
  select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
  if (values.length < 2) select.parentElement.style.display = "none";
  else if (preset) select.value = preset(values);
}

function verdict(answer) {
  if (answer.error !== null) return "failed";
  return answer.right ? "right" : "wrong";
}

function hasWords(texts) {
  const words = form.elements.words.value.trim().toLowerCase();
  return words === "" || texts.some((text) => text !== null && text.toLowerCase().includes(words));
}

// The answers of a question that its card shows; none where the question itself is not wanted.
function wanted(question) {
  for (const name of OF_QUESTION) {
    const value = form.elements[name].value;
    // a question without one, of a task that has none, is not about the difference
    if (value !== "" && question[name] !== null && String(question[name]) !== value) return [];
  }
  const answers = question.answers.filter((answer) =>
    OF_ANSWER.every((name) => ["", String(answer[name])].includes(form.elements[name].value)));
  const state = form.elements.verdict.value;
  const evidence = form.elements.evidence.value;
  const verdicts = new Set(answers.map(verdict));
  if (state === "differ" && !(verdicts.has("right") && verdicts.has("wrong"))) return [];
  if (evidence !== "" && question.evidence.length === 0) return [];
  const isMeant = (answer) =>
    (["", "differ"].includes(state) || (state === "abstained" ? answer.abstained : verdict(answer) === state)) &&
    (evidence === "" || (evidence === "hit") === answer.found > 0);
  if (!answers.some(isMeant) || !hasWords([question.question, question.gold, ...answers.map((one) => one.text)])) return [];
  return answers;
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

function answerRow(question, answer) {
  const row = element("details", undefined, `answer ${verdict(answer) === "right" ? "right" : "wrong"}`);
  const summary = element("summary");
  const system = form.elements.seed.options.length > 2 ? `${answer.system}, seed ${answer.seed}` : answer.system;
  const main = answer.scores[0];
  summary.append(
    element("span", answer.abstained ? `${verdict(answer)}, abstained` : verdict(answer), "verdict"),
    element("span", system, "system"),
    element("span", answer.error !== null ? `(failed: ${answer.error})` : answer.text || "(empty)", "text"),
    element("span", question.evidence.length ? `${answer.found} of ${question.evidence.length} evidence` : "", "quiet"),
    element("span", main === null || main === undefined ? "" : `${data.metrics[question.task][0]} ${main.toFixed(3)}`, "quiet"));
  row.append(summary);
  // most are never opened, and a page of cards is made at every key that is pressed
  row.addEventListener("toggle", () => row.childElementCount === 1 && row.append(...answerDetails(question, answer)));
  return row;
}

function answerDetails(question, answer) {
  const scores = answer.scores
    .map((value, position) => (value === null ? "" : `${data.metrics[question.task][position]} ${value.toFixed(3)}`))
    .filter((text) => text !== "");
  if (answer.consistent !== null) scores.push(answer.consistent ? "consistent" : "not consistent");
  if (answer.judged !== null) scores.push(answer.judged ? "judged correct (J)" : "judged wrong (J)");
  const items = element("ul");
  for (const [number, hit] of answer.lines) items.append(element("li", data.lines[number], hit ? "hit" : ""));
  const first = answer.lines.length < answer.recalled ? `the first ${answer.lines.length} of ` : "";
  const recalled = answer.recalled ? `recalled turns, ${first}${answer.recalled}:` : "no turns recalled";
  return [element("p", scores.join(" · "), "meta"), element("p", recalled, "meta"), items];
}

function card([question, answers]) {
  const article = element("article");
  const place = [question.task, question.id];
  if (question.category !== null) place.push(String(question.category));
  if (question.period !== null) place.push(`asked after period ${question.period}`);
  if (question.key !== "raw") place.push(`${question.key} key`);
  article.append(element("h3", question.question), element("p", place.join(" · "), "meta"));
  const fields = element("dl");
  field(fields, "gold", question.trap ? "(a trap: not in the conversation)" : question.gold ?? "");
  if (question.trap && question.lure) field(fields, "lure", question.lure);
  if (question.evidence.length) field(fields, "evidence", question.evidence.join(", "));
  article.append(fields, ...answers.map((answer) => answerRow(question, answer)));
  return article;
}

function showMore() {
  list.append(...matching.slice(shown, shown + PAGE).map(card));
  shown = Math.min(shown + PAGE, matching.length);
  document.getElementById("more").hidden = shown === matching.length;
  const counted = (number) => number.toLocaleString("en");
  document.getElementById("count").textContent =
    `${counted(matching.length)} of ${counted(data.questions.length)} questions, ${counted(shown)} shown`;
}

function refresh() {
  matching = data.questions.map((question) => [question, wanted(question)]).filter(([, answers]) => answers.length);
  shown = 0;
  list.replaceChildren();
  showMore();
}

for (const name of OF_QUESTION) {
  // one key, and the answers after the last period: else every question would stand there several times
  fill(name, data.questions, { key: () => data.questions[0].key, period: (values) => values.at(-1) }[name]);
}
for (const name of OF_ANSWER) fill(name, data.questions.flatMap((question) => question.answers));
form.addEventListener("input", refresh);
form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("more").addEventListener("click", showMore);
refresh();
