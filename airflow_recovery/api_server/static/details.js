// What is told of one region, or of a family of subtasks, and the buttons of each.

import { el, table } from "./dom.js";
import { bytes, count, moment, plural, seconds, stateText } from "./words.js";

const MAX_LISTED = 200;
export const PAGE = 100; // regions

const LISTED = [{ label: "Region" }, { label: "State" }, { label: "Attempt" }, { label: "Why" }];

export function familyDetails(box, onRegion, onSubtasks) {
  const foldedRows = box.folded.map((folded) => [foldedLink(folded, onSubtasks), state(folded.status), attemptText(folded), folded.why]);
  const rows = box.regions.slice(0, MAX_LISTED).map((region) => listedRow(region, () => onRegion(region.story.name)));
  const left = box.regions.length - rows.length;
  return [
    el("h2", {}, `${box.label}: ${box.size} ${box.isLayer ? "regions" : "subtasks"}`),
    table("Regions", LISTED, [...rows, ...foldedRows]),
    left > 0 ? el("p", { class: "quiet" }, `And ${left} more: search for them.`) : null,
  ];
}

// One page of the regions that were asked for. onPage: asks for the page that begins at an offset.
export function regionPage(title, { total, regions }, offset, onRegion, onPage) {
  const last = offset + regions.length;
  const step = (label, to, isThere) => el("button", { type: "button", disabled: !isThere, onclick: () => onPage(to) }, label);
  return [
    el("h2", {}, title),
    table(total ? `${count(offset + 1)} to ${count(last)} of ${count(total)}` : "none", LISTED, regions.map((region) => listedRow(region, () => onRegion(region)))),
    el("div", { class: "actions" }, step("Before", Math.max(0, offset - PAGE), offset > 0), step("After", offset + PAGE, last < total)),
  ];
}

export function foldedLink(folded, onSubtasks) {
  return el("button", { type: "button", class: "link", onclick: () => onSubtasks(folded) }, `${folded.of}: ${plural(folded.regions, "subtask")}`);
}

function listedRow({ status, story }, onPress) {
  return [el("button", { type: "button", class: "link", onclick: onPress }, story.name), state(status), attemptText(story), story.why];
}

export function attemptText({ attempt }) {
  return attempt ? `@${attempt}` : "";
}

export function regionDetails(region, canAct, ask, questions) {
  const { story } = region;
  return [
    el("h2", {}, story.name),
    el("p", {}, state(region.status), ` ${story.why}`),
    region.withdrawn ? el("p", { class: "warning" }, `Withdrawn from other DAGs by ${region.withdrawn}`) : null,
    region.unseen_code.length ? el("p", { class: "warning" }, `Can't be seen, so new code under the same name goes unnoticed: ${region.unseen_code.join(", ")}`) : null,
    region.is_pinned ? el("p", {}, "📌 Pinned: no policy deletes its data.") : null,
    el("p", { class: "quiet" }, taskText(region.task)),
    el("div", { class: "actions" }, ...actions(region, canAct, ask, questions)),
    results(story),
    attempts(story),
    el("h3", {}, "Vertices"),
    el("ul", {}, ...story.vertices.map((vertex) => el("li", {}, vertex))),
  ];
}

const MADE_OF = [{ label: "Component" }, { label: "Before" }, { label: "Now" }, { label: "" }];

// What the newest attempt of a region was made of, beside the attempt before it.
export function madeOf({ region, attempt, before, components, note, force }) {
  const marks = ({ changed, decides, seen }) => [changed ? (decides ? "changed, decided" : "changed, does not decide") : "", seen ? "" : "can't be seen"];
  const rows = components.map((each) => [each.name, each.before ?? "", each.now ?? "", marks(each).filter(Boolean).join("; ")]);
  return [
    el("h2", {}, `${region}@${attempt}: what it is made of`),
    el("p", { class: "quiet" }, note || (before ? `Compared with attempt ${before}.` : "The first attempt.")),
    table("Components", MADE_OF, rows),
    el("p", {}, "To run it again whatever this says: ", el("code", {}, force)),
  ];
}

export function state(status) {
  return el("span", { class: `state state-${status}` }, stateText(status));
}

function taskText(task) {
  if (!task) return "Airflow has no task of this region in this run.";
  return `Airflow task ${task.task_id}${task.map_index >= 0 ? ` [${task.map_index}]` : ""}, try ${task.try_number}: ${task.state ?? "not begun"}.`;
}

function actions({ story, status, is_pinned: isPinned, is_published: isPublished, withdrawn }, canAct, ask, questions) {
  const button = (label, pressed) => el("button", { type: "button", onclick: pressed }, label);
  const elements = [
    button("Restart this region…", () => ask.plan({ restart: [story.name] })),
    button("Restart from here on…", () => ask.plan({ from: [story.vertices[0]] })),
    button("If its data were lost…", () => ask.plan({ lost: [story.name] })),
  ];
  if (story.attempt) elements.push(...questions(story.name));
  if (story.attempt && status !== "released") {
    const pin = button(isPinned ? "Let its data go again" : "Pin its data", () => ask.pin(story.name, story.attempt, !isPinned));
    pin.disabled = !canAct;
    elements.push(button("Release its data…", () => ask.release(story.name)), pin);
  }
  if (isPublished) {
    const label = withdrawn ? "Give it back to other DAGs…" : "Withdraw it from other DAGs…";
    elements.push(button(label, () => ask.withdraw(story.name, story.attempt, !withdrawn)));
  }
  if (!canAct) elements.push(el("p", { class: "quiet" }, "You may look at plans. Running one takes the right to edit this DAG's task instances."));
  return elements;
}

function results(story) {
  if (!story.results.length) return el("p", { class: "quiet" }, "No result counts.");
  const columns = [{ label: "Result" }, { label: "Rows", number: true }, { label: "Files", number: true }, { label: "Size", number: true }];
  return table(
    `Results of attempt ${story.attempt}`,
    columns,
    story.results.map((result) => [result.name, count(result.rows), count(result.files), bytes(result.bytes)]),
  );
}

function attempts(story) {
  if (!story.attempts.length) return el("p", { class: "quiet" }, "It has not begun.");
  const rows = [...story.attempts].reverse().map((attempt) => [`@${attempt.number} ${attempt.state}`, attemptSummary(attempt)]);
  return table("Attempts", [{ label: "Attempt", short: true }, { label: "What became of it" }], rows);
}

function attemptSummary(attempt) {
  const lines = [];
  if (attempt.claimed_at) lines.push(`from ${moment(attempt.claimed_at)}${attempt.try_number ? `, try ${attempt.try_number}` : ""}`);
  if (attempt.ended_at) lines.push(`to ${moment(attempt.ended_at)}`);
  const written = [attempt.rows === null ? "" : `${count(attempt.rows)} rows`, bytes(attempt.bytes), attempt.spark_seconds === null ? "" : `${seconds(attempt.spark_seconds)} of Spark`];
  if (written.some(Boolean)) lines.push(written.filter(Boolean).join(", "));
  if (attempt.reads.length) lines.push(`reads ${attempt.reads.join(", ")}`);
  if (attempt.why) lines.push(attempt.why);
  if (attempt.failure) {
    const { type, message, condition, vertex, labels } = attempt.failure;
    lines.push(`${type}${condition ? ` (${condition})` : ""}${vertex ? ` in ${vertex}` : ""}: ${message}`);
    if (labels.length) lines.push(labels.map(([key, value]) => `${key}: ${value}`).join(", "));
  }
  if (attempt.application_id) lines.push(`Spark application ${attempt.application_id}${attempt.worker ? ` on ${attempt.worker}` : ""}`);
  return el("div", {}, ...lines.map((line) => el("div", {}, line)));
}
