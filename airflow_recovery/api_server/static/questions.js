// The questions that this Airflow answers, their buttons, and how an answer is drawn that has no drawing of its own.

import { get } from "./api.js";
import { madeOf } from "./details.js";
import { el, table } from "./dom.js";
import { count, plural } from "./words.js";

const MAX_ROWS = 200;
const DRAWINGS = { why: madeOf };

// about: "run" or "dag".
export async function questionsAbout(dagId, about) {
  const { questions } = (await get(["dags", dagId, "questions"])).body;
  return questions.filter((question) => question.about === about);
}

// given: the arguments that the page has. A question that requires others has no button there.
export function questionButtons(questions, given, onAsk) {
  const askable = questions.filter(({ requires }) => `${requires}` === `${Object.keys(given)}`);
  return askable.map((question) => el("button", { type: "button", title: question.help, onclick: () => onAsk(question, given) }, question.label));
}

export async function ask(question, parts, query) {
  const answer = (await get([...parts, question.path], query)).body;
  return (DRAWINGS[question.name] ?? drawn)(answer, question);
}

// A table for each list of objects, and a line for each other value.
function drawn(answer, { label }) {
  const elements = Object.entries(answer).flatMap(([name, value]) => {
    if (!Array.isArray(value) || typeof value[0] !== "object") return [el("p", {}, `${words(name)}: `, cell(value) || "none")];
    const names = Object.keys(value[0]);
    const columns = names.map((each) => ({ label: words(each), number: typeof value[0][each] === "number" }));
    const rows = value.slice(0, MAX_ROWS).map((row) => names.map((each) => cell(row[each])));
    const left = value.length - rows.length;
    return [table(words(name), columns, rows), left > 0 ? el("p", { class: "quiet" }, `And ${plural(left, "row")} more.`) : null];
  });
  return [el("h2", {}, label), ...elements.filter(Boolean)];
}

function words(name) {
  return name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
}

function cell(value) {
  if (Array.isArray(value)) return value.map(cell).join(", ");
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" ? count(value) : `${value ?? ""}`;
}
