// The Recovery tab of a DAG: its last runs, and what they cost.

import { Problem, get, parameters, pause } from "./api.js";
import { costs } from "./costs.js";
import { byId, el, shown, table } from "./dom.js";
import { ask, questionButtons, questionsAbout } from "./questions.js";
import { followTheme } from "./theme.js";
import { STATES, moment, plural, seconds, stateText } from "./words.js";

const POLL_MS = 15000;
const { dag_id: dagId } = parameters();
let failures = 0;
let costsOf = "";
let hasQuestions = false;

async function refresh() {
  try {
    const { body } = await get(["dags", dagId, "runs"]);
    byId("problem").hidden = true;
    byId("problem").textContent = "";
    show(body);
    if (!hasQuestions) await showQuestions();
    await followCosts(body.runs);
    failures = 0;
  } catch (error) {
    failures += 1;
    byId("problem").hidden = false;
    byId("problem").textContent = shown(error instanceof Problem ? error.message : `The page has failed: ${error.message}`);
  }
  setTimeout(() => (document.hidden ? undefined : refresh()), pause(POLL_MS, failures));
}

async function showQuestions() {
  byId("questions").replaceChildren(...questionButtons(await questionsAbout(dagId, "dag"), {}, showAnswer));
  hasQuestions = true;
}

async function showAnswer(question) {
  const told = await ask(question, ["dags", dagId], {}).catch((error) => [el("p", { class: "warning" }, error.message)]);
  byId("answer").replaceChildren(...told);
}

function show({ dag_id: dag, runs }) {
  byId("title").textContent = shown(`Recovery of ${dag}`);
  const saved = runs.flatMap((run) => run.groups).reduce((sum, group) => sum + group.seconds_saved, 0);
  byId("summary").textContent = `The last ${plural(runs.length, "run")}${saved > 0 ? `; ${seconds(saved)} of Spark saved in them` : ""}.`;
  const rows = runs.flatMap((run) => (run.groups.length ? run.groups.map((group) => row(run, group)) : [[link(run, null), run.state ?? "", "", "nothing is recorded", "", moment(run.run_after)]]));
  const columns = [{ label: "Run" }, { label: "Airflow" }, { label: "Group" }, { label: "Regions" }, { label: "Saved", number: true }, { label: "After" }];
  byId("runs").replaceChildren(table("Last runs", columns, rows));
}

// Reads every journal of these runs, so it is asked anew only where one of them has changed.
async function followCosts(runs) {
  const state = JSON.stringify(runs);
  if (state === costsOf) return;
  costsOf = state;
  const groups = [...new Set(runs.flatMap((run) => run.groups.map((group) => group.group_id)))];
  if (!groups.length) {
    byId("costs").replaceChildren(el("p", {}, "No finished run yet: what runs cost, and what recovery saves, is drawn here once a region has finished."));
    return;
  }
  const sections = [];
  for (const [at, group] of groups.entries()) {
    const heading = groups.length > 1 ? `Cost and savings of ${group}` : "Cost and savings";
    sections.push(el("h2", {}, heading), ...(await costsOfGroup(runs, group, `costs-${at}`)));
  }
  byId("costs").replaceChildren(...sections);
}

async function costsOfGroup(runs, group, id) {
  try {
    const { body } = await get(["dags", dagId, "advice"], { group });
    const byKey = new Map(runs.map((run) => [run.run_key, run]));
    return costs(body, id, (key) => (byKey.has(key) ? link(byKey.get(key), group) : key));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.code === "no_answer") costsOf = "";
    return [el("p", { class: "warning" }, `What the runs cost can't be told: ${error.message}`)];
  }
}

function row(run, group) {
  const states = Object.keys(STATES).filter((status) => group.statuses[status]);
  const statuses = group.problem ?? el("span", {}, ...states.flatMap((status) => [el("span", { class: `state state-${status}` }, `${stateText(status)}: ${group.statuses[status]}`), " "]));
  return [link(run, group.group_id), run.state ?? "", group.group_id, statuses, group.seconds_saved ? seconds(group.seconds_saved) : "", moment(run.run_after)];
}

function link(run, group) {
  const asked = { dag_id: dagId, run_id: run.run_id, ...(group === null ? {} : { group }) };
  const search = Object.entries(asked).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  return el("a", { href: `run.html?${search}` }, run.run_id);
}

followTheme();
addEventListener("visibilitychange", () => document.hidden || refresh());
refresh();
