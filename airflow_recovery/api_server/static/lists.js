// The lists below the graph: every region, what has failed first, and the history of decisions.

import { state } from "./details.js";
import { el, table } from "./dom.js";
import { ATTENTION, bytes, count, moment, plural } from "./words.js";

const MAX_HISTORY = 100;
const REGIONS = [{ label: "Region" }, { label: "State" }, { label: "Attempt" }, { label: "Rows", number: true }, { label: "Size", number: true }, { label: "Why" }];
const DECISIONS = [{ label: "When" }, { label: "What" }, { label: "Region" }, { label: "Why" }];

export function regionsTable(run, asked, onRegion) {
  const found = run.regions
    .filter(({ story }) => !asked || [story.name, ...story.vertices].some((each) => each.toLowerCase().includes(asked)))
    .sort((a, b) => rank(a) - rank(b)); // stable: else in the order of the job
  const rows = found.map(({ status, story }) => {
    const known = story.results.map((each) => each.rows).filter((each) => each !== null);
    return [
      el("button", { type: "button", class: "link", onclick: () => onRegion(story.name) }, story.name),
      state(status),
      story.attempt ? `@${story.attempt}` : "",
      known.length ? count(known.reduce((a, b) => a + b, 0)) : "",
      story.results.length ? bytes(story.results.reduce((sum, each) => sum + each.bytes, 0)) : "",
      story.why,
    ];
  });
  const all = plural(run.regions.length, "region");
  return table(asked ? `${count(found.length)} of ${all}` : all, REGIONS, rows);
}

// What has failed stands before a thousand that have not.
function rank({ status }) {
  const at = ATTENTION.indexOf(status);
  return at < 0 ? ATTENTION.length : at;
}

export function history({ decisions, holes }) {
  const shown = decisions.slice(0, MAX_HISTORY);
  const rows = shown.map((each) => [moment(each.at), each.kind, each.region ?? "", decision(each)]);
  return [
    ...holes.map((each) => el("p", { class: "warning" }, `The history has a hole; recovery is not affected. ${each}`)),
    table(`History: the newest ${shown.length} of ${plural(decisions.length, "decision")}`, DECISIONS, rows),
  ];
}

function decision({ text, plan }) {
  if (!plan.length) return text;
  return el("div", {}, text, el("details", {}, el("summary", {}, "its plan"), el("ul", {}, ...plan.map(([region, why]) => el("li", {}, `${region}: ${why}`)))));
}
