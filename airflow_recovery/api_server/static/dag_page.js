// The Recovery tab of a DAG: its last runs.

import { Problem, get, parameters, pause } from "./api.js";
import { byId, el, table } from "./dom.js";
import { followTheme } from "./theme.js";
import { STATES, moment, plural, seconds, stateText } from "./words.js";

const POLL_MS = 15000;
const { dag_id: dagId } = parameters();
let failures = 0;

async function refresh() {
  try {
    const { body } = await get(["dags", dagId, "runs"]);
    byId("problem").hidden = true;
    byId("problem").textContent = "";
    show(body);
    failures = 0;
  } catch (error) {
    failures += 1;
    byId("problem").hidden = false;
    byId("problem").textContent = error instanceof Problem ? error.message : `The page has failed: ${error.message}`;
  }
  setTimeout(() => (document.hidden ? undefined : refresh()), pause(POLL_MS, failures));
}

function show({ dag_id: dag, runs }) {
  byId("title").textContent = `Recovery of ${dag}`;
  const saved = runs.flatMap((each) => each.groups).reduce((sum, each) => sum + each.seconds_saved, 0);
  byId("summary").textContent = `The last ${plural(runs.length, "run")}${saved > 0 ? `; ${seconds(saved)} of Spark saved in them` : ""}.`;
  const rows = runs.flatMap((run) => (run.groups.length ? run.groups.map((group) => row(run, group)) : [[link(run, null), run.state ?? "", "", "nothing is recorded", "", moment(run.run_after)]]));
  const columns = [{ label: "Run" }, { label: "Airflow" }, { label: "Group" }, { label: "Regions" }, { label: "Saved", number: true }, { label: "After" }];
  byId("runs").replaceChildren(table("Last runs", columns, rows));
}

function row(run, group) {
  const states = Object.keys(STATES).filter((each) => group.statuses[each]);
  const told = group.problem ?? el("span", {}, ...states.flatMap((each) => [el("span", { class: `state state-${each}` }, `${stateText(each)}: ${group.statuses[each]}`), " "]));
  return [link(run, group.group_id), run.state ?? "", group.group_id, told, group.seconds_saved ? seconds(group.seconds_saved) : "", moment(run.run_after)];
}

function link(run, group) {
  const asked = { dag_id: dagId, run_id: run.run_id, ...(group === null ? {} : { group }) };
  const search = Object.entries(asked).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  return el("a", { href: `run.html?${search}` }, run.run_id);
}

followTheme();
addEventListener("visibilitychange", () => document.hidden || refresh());
refresh();
