// The Recovery tab of a run.

import { Problem, get, parameters, pause, post } from "./api.js";
import { PAGE, familyDetails, regionDetails, regionPage } from "./details.js";
import { byId, el, shown } from "./dom.js";
import { LEVELS, MANY, boxesOf, level } from "./graph_model.js";
import { GraphView } from "./graph_view.js";
import { ledger } from "./ledger.js";
import { history, regionsOf, regionsTable } from "./lists.js";
import { ask, questionButtons, questionsAbout } from "./questions.js";
import { followTheme } from "./theme.js";
import { STATES, bytes, count, plural, seconds, stateText } from "./words.js";

const POLL_MS = { active: 3000, idle: 15000 };
const WATCH_MS = 60000; // after something was done: Airflow takes a moment to begin

const { dag_id: dagId, run_id: runId, group: firstGroup } = parameters();
const RUN = ["dags", dagId, "runs", runId];

const page = { group: firstGroup ?? null, etag: null, run: null, canAct: false, graph: null, selected: null, region: null, fetched: null, plan: null, level: null, busy: false, hasChannels: false, questions: null, watchUntil: 0, failures: 0 };
let view = null;

function query() {
  return { group: page.group };
}

// What is there now, and again after a while: at once where something was done.
async function refresh() {
  clearTimeout(refresh.timer);
  const number = (refresh.number = (refresh.number ?? 0) + 1);
  try {
    const { body, etag } = await get(RUN, query(), page.etag);
    if (number !== refresh.number) return;
    tell(null);
    if (body) {
      [page.etag, page.run, page.canAct] = [etag, body.run, body.can_act];
      page.graph = boxesOf(page.run);
      await renewFetched();
      if (!page.questions) await showQuestions();
      show();
    }
    // Most runs have no channel: these are asked for it with what is new only.
    if (body || page.hasChannels) await showLedger(number);
    page.failures = 0;
  } catch (error) {
    page.failures += 1;
    if (number === refresh.number) tell(error);
  }
  const wait = page.run?.is_active || Date.now() < page.watchUntil ? POLL_MS.active : POLL_MS.idle;
  refresh.timer = setTimeout(() => (document.hidden ? undefined : refresh()), pause(wait, page.failures));
}

// A region that a large run is not told with, and that is looked at.
async function renewFetched() {
  if (page.fetched?.story.name !== page.region) page.fetched = null;
  if (!page.fetched) return;
  const { regions } = (await get([...RUN, "regions"], { ...query(), search: page.region, limit: PAGE })).body;
  page.fetched = regions.find((region) => region.story.name === page.region) ?? null;
}

async function showQuestions() {
  page.questions = await questionsAbout(dagId, "run");
  byId("questions").replaceChildren(...questionButtons(page.questions, {}, askQuestion));
}

async function showLedger(number) {
  const { channels } = (await get([...RUN, "channels"], query())).body;
  if (number !== refresh.number) return;
  page.hasChannels = channels.length > 0;
  byId("ledger").hidden = !page.hasChannels;
  if (page.hasChannels) byId("ledger").replaceChildren(...ledger(channels));
}

function tell(error) {
  const place = byId("problem");
  place.hidden = !error;
  place.replaceChildren();
  if (!error) return;
  const text = error instanceof Problem ? error.message : `The page has failed: ${error.message}`;
  place.replaceChildren(el("strong", {}, text));
  if (error.changed?.length) place.append(el("ul", {}, ...error.changed.map((line) => el("li", {}, line))));
}

function show() {
  const { run, graph } = page;
  byId("tools").hidden = document.querySelector("main").hidden = false; // before, there is nothing to look at
  page.level ??= graph.boxes.length > MANY ? "overview" : "all";
  byId("level").value = page.level;
  byId("title").textContent = shown(`Recovery of ${run.dag_id}, ${run.run_id}`);
  const { seconds_saved: saved, spared } = run.saved;
  const savedText = saved > 0 ? ` ${seconds(saved)} of Spark saved against clearing everything: ${plural(spared.length, "region")} did not run again.` : "";
  byId("summary").textContent = shown(`${run.job}: ${plural(regionsOf(run), "region")}, run ${run.run_state ?? "unknown"}.${savedText}`);
  const legend = Object.keys(STATES).filter((status) => run.statuses[status]);
  byId("legend").replaceChildren(
    ...legend.map((status) => el("li", { class: `state-${status}`, title: STATES[status].says }, `${stateText(status)}: ${run.statuses[status]}`)),
  );
  const groups = [run.group_id, ...run.others].sort();
  byId("group-label").hidden = groups.length < 2;
  byId("group").replaceChildren(...groups.map((groupId) => el("option", { value: groupId, selected: groupId === run.group_id }, groupId)));
  byId("recompute").disabled = byId("rebuild").disabled = page.busy;
  draw();
  showRegions();
  byId("history").replaceChildren(...history(run));
  if (!page.plan && !page.released) showDetails();
}

function draw() {
  view ??= new GraphView(byId("graph"), select);
  const planned = page.plan ? new Map(page.plan.plan.regions.map((region) => [region.name, region.action])) : null;
  view.show(level(page.graph, page.level, page.selected), planned, page.selected);
}

function showRegions() {
  const asked = byId("search").value.trim().toLowerCase();
  keepingFocus(byId("regions"), () => byId("regions").replaceChildren(regionsTable(page.run, asked, selectRegion, listSubtasks), ...searchAll(asked)));
}

// Of a large run, the page has some regions only: the server searches and lists the others.
function searchAll(asked) {
  const all = plural(regionsOf(page.run), "region");
  const button = (label, title, query) => [el("button", { type: "button", onclick: () => listRegions(title, query) }, label)];
  if (asked && (page.run.subtasks.length || page.run.left)) return button(`Search all ${all}`, `Regions with "${asked}" in their names`, { search: asked });
  return page.run.left ? button(`List all ${all}`, "All regions", {}) : [];
}

// Who works with the keyboard stays where he is when the page is renewed under him.
function keepingFocus(place, renew) {
  const held = place.contains(document.activeElement) ? document.activeElement.textContent : null;
  renew();
  if (held) [...place.querySelectorAll("button")].find((candidate) => candidate.textContent === held)?.focus({ preventScroll: true });
}

function select(id) {
  const box = level(page.graph, page.level, page.selected).boxes.find((candidate) => candidate.id === id);
  if (!box) return;
  page.selected = box.isLayer ? null : id;
  page.layer = box.isLayer ? id : null;
  page.region = !box.isFamily && !box.isLayer ? box.regions[0].story.name : null;
  forgetPlan();
  draw();
  showDetails({ take: true });
}

function selectRegion(name) {
  page.region = name;
  page.selected = page.graph.boxOf.get(name) ?? page.graph.boxOf.get(page.fetched?.story.subtask?.[0]);
  page.layer = null;
  if (page.level === "overview") setLevel("around");
  forgetPlan();
  draw();
  showDetails({ take: true });
}

function listSubtasks(folded) {
  return listRegions(`${folded.of}: ${plural(folded.regions, "subtask")}`, { of: folded.of, status: folded.status });
}

function listRegions(title, asked, offset = 0) {
  return doing(async () => {
    const listing = (await get([...RUN, "regions"], { ...query(), ...asked, offset, limit: PAGE })).body;
    page.plan = page.region = null;
    page.released = true; // keeps it readable, as in finish
    draw();
    open(true, ...regionPage(title, listing, offset, selectFetched, (to) => listRegions(title, asked, to)));
  });
}

function selectFetched(region) {
  page.fetched = region;
  selectRegion(region.story.name);
}

function forgetPlan() {
  page.plan = page.released = null;
}

function setLevel(name) {
  page.level = byId("level").value = name;
}

function open(take, ...children) {
  const place = byId("details");
  place.hidden = false;
  document.querySelector("main").classList.add("with-details");
  const close = el("button", { type: "button", onclick: closeDetails }, "Close");
  keepingFocus(place, () => place.replaceChildren(close, ...children.filter(Boolean)));
  if (take) place.focus({ preventScroll: true });
}

function closeDetails() {
  byId("details").hidden = true;
  document.querySelector("main").classList.remove("with-details");
  const back = page.selected;
  page.selected = page.region = page.layer = null;
  forgetPlan();
  draw();
  if (back) view.focus(back);
}

function showDetails({ take = false } = {}) {
  const region = [...page.run.regions, page.fetched].find((candidate) => candidate && candidate.story.name === page.region);
  if (region) {
    open(take, ...regionDetails(region, page.canAct, { plan: askPlan, release: askRelease, pin, withdraw: askWithdraw }, questionsOf));
    return;
  }
  const boxes = page.layer ? level(page.graph, "overview").boxes : page.graph.boxes;
  const box = boxes.find((candidate) => candidate.id === (page.layer ?? page.selected));
  if (box) open(take, ...familyDetails(box, selectRegion, listSubtasks));
}

async function doing(work) {
  if (page.busy) return;
  page.busy = true;
  byId("recompute").disabled = byId("rebuild").disabled = true;
  try {
    await work();
    tell(null);
  } catch (error) {
    tell(error);
    byId("problem").scrollIntoView({ block: "nearest" });
  } finally {
    page.busy = false;
    byId("recompute").disabled = byId("rebuild").disabled = false;
  }
}

function askPlan(question) {
  return doing(async () => {
    page.plan = await post([...RUN, "plan"], question, query());
    page.released = null;
    draw();
    showPlan();
  });
}

function showPlan() {
  const plan = page.plan;
  const go = el("button", { type: "button", class: "go", id: "run-plan", disabled: !page.canAct, onclick: () => runPlan(plan, go) }, "Run this plan");
  const nothing = plan.can_run && !Object.keys(plan.tries).length;
  open(
    true,
    el("h2", {}, `Plan: ${plan.asked}`),
    el("p", {}, plan.summary),
    ...plan.warnings.map((warning) => el("p", { class: "warning" }, warning)),
    plan.can_run ? null : el("p", { class: "quiet" }, "This is only supposed: it can be looked at, not done."),
    nothing ? el("p", { class: "quiet" }, "Nothing has to run.") : null,
    plan.can_run && !nothing ? el("div", { class: "actions" }, go) : null,
    page.canAct || !plan.can_run ? null : el("p", { class: "quiet" }, "You may not run it: that takes the right to edit this DAG's task instances."),
    el("pre", { tabindex: 0, "aria-label": "The plan as text" }, plan.text),
  );
}

function runPlan(plan, button) {
  button.disabled = true; // a double click is one click
  return doing(async () => {
    try {
      const { plan_id, plan: body, tries } = plan;
      const done = await post([...RUN, "plan", "run"], { plan_id, plan: body, tries }, query());
      const reset = done.resets.length ? `Reset: ${done.resets.join(", ")}. ` : "";
      finish(`${reset}Cleared: ${done.cleared.join(", ") || "nothing"}. Airflow runs them now.`);
    } catch (error) {
      if (error.code !== "outdated") throw error;
      await outdated(error);
    }
  });
}

// The page was too old: it shows what is there now, and a new plan is one press away.
async function outdated(error) {
  forgetPlan();
  page.etag = null;
  await refresh();
  page.released = true; // keeps it readable, as in finish
  open(true, el("h2", {}, "The run has moved on"), el("p", { role: "alert" }, error.message), el("ul", {}, ...error.changed.map((line) => el("li", {}, line))));
}

function finish(text) {
  forgetPlan();
  page.watchUntil = Date.now() + WATCH_MS;
  page.released = true; // keeps what was done readable until something else is opened
  draw();
  open(true, el("h2", {}, "Done"), el("p", { role: "status" }, text));
  page.etag = null;
  refresh();
}

function askRelease(region) {
  return doing(async () => {
    const release = await post([...RUN, "release", "plan"], { region }, query());
    page.released = release;
    const much = `${bytes(release.bytes)} in ${count(release.files)} files`;
    const go = el("button", { type: "button", class: "go", disabled: !page.canAct, onclick: () => runRelease(release, go) }, release.still_needed ? `Release ${much} all the same` : `Release ${much}`);
    open(
      true,
      el("h2", {}, `Release ${release.region}@${release.attempt}`),
      el("p", { class: "warning" }, `It can't be undone. Where it is wanted again, these run again: ${release.again.join(", ")}.`),
      release.still_needed ? el("p", { class: "warning" }, `It is still needed: ${release.still_needed}.`) : null,
      ...release.warnings.map((warning) => el("p", { class: "warning" }, warning)),
      el("div", { class: "actions" }, go),
    );
  });
}

function runRelease({ region, attempt, still_needed: needed }, button) {
  button.disabled = true;
  return doing(async () => {
    // Force is for what was shown, not for what may have come to need it since.
    const done = await post([...RUN, "release"], { region, attempt, force: Boolean(needed) }, query());
    const released = `Released ${bytes(done.bytes)} in ${count(done.files)} files. ${done.kept_after_deletion}`;
    finish(done.pinned_by ? `${done.pinned_by} began to read it: its data goes later.` : released);
  });
}

function pin(region, attempt, pinned) {
  return doing(async () => {
    const done = await post([...RUN, "pin"], { region, attempt, pinned }, query());
    finish(done.pinned ? `Pinned: ${region}@${attempt}, by ${done.who} (${done.why}).` : `Unpinned: ${region}@${attempt}. The release policy counts again.`);
  });
}

function questionsOf(region) {
  return questionButtons(page.questions, { region }, askQuestion);
}

function askQuestion(question, given) {
  return doing(async () => open(true, ...(await ask(question, RUN, { ...query(), ...given }))));
}

function askWithdraw(region, attempt, withdrawn) {
  const reason = el("input", { type: "text", name: "reason", maxlength: "1000", "aria-label": "Reason" });
  const go = el("button", { type: "button", class: "go", disabled: !page.canAct, onclick: () => runWithdraw(region, withdrawn, reason, go) }, withdrawn ? "Withdraw" : "Give back");
  const effect = withdrawn
    ? "Other DAGs are not given it, nor what rests on it, until a publish names a newer attempt. This run's own tasks are not concerned."
    : "Other DAGs are given it again.";
  open(true, el("h2", {}, `${withdrawn ? "Withdraw" : "Give back"} ${region}@${attempt}`), el("p", {}, effect), el("label", {}, "Reason, which readers are shown: ", reason), el("div", { class: "actions" }, go));
}

function runWithdraw(region, withdrawn, { value: reason }, button) {
  button.disabled = true;
  return doing(async () => {
    const done = await post([...RUN, "withdraw"], { region, withdrawn, reason }, query());
    finish(done.attempts.map((turn) => (turn.withdrawn ? `Withdrawn: ${turn.region}@${turn.attempt}, by ${turn.who}: ${turn.reason}.` : `Other DAGs are given ${turn.region}@${turn.attempt}.`)).join(" "));
  });
}

function search() {
  showRegions();
  const asked = byId("search").value.trim().toLowerCase();
  const hit = asked && page.graph.boxes.find((box) => [box.label, ...box.regions.map(({ story }) => story.name)].some((name) => name.toLowerCase().includes(asked)));
  if (!hit) return;
  page.selected = hit.id;
  if (page.graph.boxes.length > MANY) setLevel("around");
  draw();
}

function begin() {
  followTheme();
  if (!dagId || !runId) {
    tell(new Problem(0, "invalid", "This page is the Recovery tab of a DAG run: open it there.", []));
    return;
  }
  byId("level").replaceChildren(...Object.entries(LEVELS).map(([value, label]) => el("option", { value }, label)));
  byId("level").addEventListener("change", (event) => {
    page.level = event.target.value;
    draw();
  });
  byId("group").addEventListener("change", (event) => {
    Object.assign(page, { group: event.target.value, etag: null, level: null });
    closeDetails();
    refresh();
  });
  byId("search").addEventListener("input", search);
  byId("zoom-in").addEventListener("click", () => view?.zoom(1.25));
  byId("zoom-out").addEventListener("click", () => view?.zoom(0.8));
  byId("zoom-fit").addEventListener("click", () => view?.fit());
  byId("rebuild").addEventListener("click", () => askPlan({}));
  byId("recompute").addEventListener("click", () => askPlan({ recompute: true }));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("details").hidden) closeDetails();
    if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
      event.preventDefault();
      byId("search").focus();
    }
  });
  addEventListener("visibilitychange", () => document.hidden || refresh());
  refresh();
}

begin();
