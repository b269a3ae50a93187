// The lists below the graph: every region, what has failed first, and the history of decisions.

import { attemptText, foldedLink, state } from "./details.js";
import { el, table } from "./dom.js";
import { ATTENTION, bytes, count, moment, plural } from "./words.js";

const MAX_HISTORY = 100;
const REGIONS = [{ label: "Region" }, { label: "State" }, { label: "Attempt" }, { label: "Rows", number: true }, { label: "Size", number: true }, { label: "Why" }];
const DECISIONS = [{ label: "When" }, { label: "What" }, { label: "Region" }, { label: "Why" }];

export function regionsTable(run, asked, onRegion, onSubtasks) {
  const isAsked = (name, vertices) => !asked || [name, ...vertices].some((text) => text.toLowerCase().includes(asked));
  const regions = run.regions
    .filter(({ story }) => isAsked(story.name, story.vertices))
    .sort((a, b) => rank(a) - rank(b)); // stable: else in the order of the job
  const rows = regions.map(({ status, story }) => {
    const known = story.results.map((result) => result.rows).filter((rows) => rows !== null);
    return [
      el("button", { type: "button", class: "link", onclick: () => onRegion(story.name) }, story.name),
      state(status),
      attemptText(story),
      known.length ? count(known.reduce((a, b) => a + b, 0)) : "",
      story.results.length ? bytes(story.results.reduce((sum, result) => sum + result.bytes, 0)) : "",
      story.why,
    ];
  });
  const subtasks = run.subtasks.filter((folded) => isAsked(folded.of, folded.vertices)).sort((a, b) => rank(a) - rank(b));
  const foldedRows = subtasks.map((folded) => [
    foldedLink(folded, onSubtasks), state(folded.status), attemptText(folded), count(folded.rows), folded.results ? bytes(folded.bytes) : "", folded.why,
  ]);
  const all = plural(regionsOf(run), "region");
  const shown = regions.length + subtasks.reduce((sum, folded) => sum + folded.regions, 0);
  return table(asked || run.left ? `${count(shown)} of ${all}` : all, REGIONS, [...rows, ...foldedRows]);
}

export function regionsOf({ statuses }) {
  return Object.values(statuses).reduce((sum, n) => sum + n, 0);
}

// What has failed stands before a thousand that have not.
function rank({ status }) {
  const at = ATTENTION.indexOf(status);
  return at < 0 ? ATTENTION.length : at;
}

export function history({ decisions, holes }) {
  const shown = decisions.slice(0, MAX_HISTORY);
  const rows = shown.map((event) => [moment(event.at), event.kind, event.region ?? "", decision(event)]);
  return [
    ...holes.map((hole) => el("p", { class: "warning" }, `The history has a hole; recovery is not affected. ${hole}`)),
    table(`History: the newest ${shown.length} of ${plural(decisions.length, "decision")}`, DECISIONS, rows),
  ];
}

function decision({ text, plan }) {
  if (!plan.length) return text;
  return el("div", {}, text, el("details", {}, el("summary", {}, "its plan"), el("ul", {}, ...plan.map(([region, why]) => el("li", {}, `${region}: ${why}`)))));
}
