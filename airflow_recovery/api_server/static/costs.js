// What the last runs of a DAG cost, what recovery saved in them, and where: a plot, and the same in words and tables.

import { el, svg, table } from "./dom.js";
import { plural, seconds } from "./words.js";

const WIDTH = 720;
const HEIGHT = 230;
const LEFT = 64;
const TOP = 24;
const BOTTOM = 26;
const RUNS = [{ label: "Run" }, { label: "Spent", number: true }, { label: "of it again", number: true }, { label: "Saved", number: true }, { label: "Attempts beyond the first", number: true }];
const SLOWEST = [{ label: "Region" }, { label: "A finish takes", number: true }];
const REPEATED = [{ label: "Region" }, { label: "Attempts beyond the first", number: true }, { label: "In runs", number: true }, { label: "Took", number: true }];

// ``id``: of the group's section, unlike any other's. ``nameRun``: what a run is called in the table.
export function costs(answer, id, nameRun) {
  const { costs: runs, slowest, repeated } = answer;
  const lists = [];
  if (slowest.length) lists.push(table("Slowest regions", SLOWEST, slowest.map((cost) => [cost.region, seconds(cost.seconds)])));
  lists.push(
    repeated.length
      ? table("Most often repeated regions", REPEATED, repeated.map((cost) => [cost.region, `${cost.again}`, `${cost.runs_again} of ${runs.length}`, cost.seconds_again ? seconds(cost.seconds_again) : "not known"]))
      : el("p", {}, "No region had to run again in these runs."),
  );
  return [
    el("p", { class: "advice" }, el("strong", {}, "Advice: "), answer.first_line),
    ...answer.notes.map((note) => el("p", { class: "warning" }, note)),
    ...shown(runs, id),
    el("details", {}, el("summary", {}, "The plot as a table"), table("Cost of the last runs", RUNS, runs.map((run) => row(run, nameRun)))),
    el("div", { class: "lists" }, ...lists.map((list) => el("div", {}, list))),
  ];
}

function row(run, nameRun) {
  return [nameRun(run.run_key), seconds(run.seconds_spent), run.again ? seconds(run.seconds_again) : "", run.seconds_saved ? seconds(run.seconds_saved) : "", run.again ? `${run.again}` : ""];
}

function shown(runs, id) {
  const total = (name) => runs.reduce((sum, run) => sum + run[name], 0);
  if (total("finished") === 0) return [el("p", {}, "No region has finished in these runs yet: there is no cost to draw.")];
  if (total("seconds_spent") === 0) return [el("p", {}, "No Spark time was measured in these runs: there is no cost to draw.")];
  const summary = `${plural(runs.length, "run")}: ${seconds(total("seconds_spent"))} spent, ${seconds(total("seconds_again"))} of it on attempts beyond the first; recovery saved ${seconds(total("seconds_saved"))}.`;
  const keys = [["spent", "spent, first attempts"], ["again", "spent, attempts beyond the first"], ["saved", "saved: clearing everything would have cost this as well"]];
  const legend = keys.map(([kind, words]) => el("li", {}, svg("svg", { class: "swatch", width: 14, height: 14, "aria-hidden": "true" }, ...block(kind, 1, 1, 12, 12, id)), ` ${words}`));
  return [plot(runs, id, summary), el("ul", { class: "keys" }, ...legend), el("p", { class: "quiet" }, summary)];
}

function plot(runs, id, summary) {
  const height = HEIGHT - TOP - BOTTOM;
  const most = Math.max(...runs.map((run) => run.seconds_spent + run.seconds_saved));
  const step = tick(most);
  const top = step * Math.ceil(most / step);
  const y = (value) => TOP + height * (1 - value / top);
  const slot = (WIDTH - LEFT) / runs.length;
  const wide = Math.min(44, slot * 0.6);
  const lines = [];
  for (let value = 0; value <= top + step / 2; value += step) {
    lines.push(svg("line", { x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value), class: "grid" }));
    lines.push(svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, value ? axis(value, step) : "0"));
  }
  const names = labels(runs);
  const bars = runs.map((run, at) => {
    const x = LEFT + slot * at + (slot - wide) / 2;
    const first = run.seconds_spent - run.seconds_again;
    const stacked = [["spent", 0, first], ["again", first, run.seconds_spent], ["saved", run.seconds_spent, run.seconds_spent + run.seconds_saved]];
    const blocks = stacked.filter(([, from, to]) => to - from > top / 1000).flatMap(([kind, from, to]) => block(kind, x, y(to), wide, y(from) - y(to), id));
    const middle = x + wide / 2;
    const over = run.seconds_saved ? [svg("text", { x: middle, y: y(run.seconds_spent + run.seconds_saved) - 5, "text-anchor": "middle", class: "over" }, seconds(run.seconds_saved))] : [];
    const tip = `${run.run_key}: ${seconds(run.seconds_spent)} spent, ${seconds(run.seconds_saved)} saved, ${plural(run.again, "attempt")} beyond the first`;
    return svg("g", { class: "bar" }, svg("title", {}, tip), ...blocks, ...over, svg("text", { x: middle, y: HEIGHT - 8, "text-anchor": "middle" }, names[at]));
  });
  const hatch = svg("pattern", { id: `${id}-hatch`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { x1: 0, x2: 0, y1: 0, y2: 6, class: "hatch" }));
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-labelledby": `${id}-title ${id}-desc` },
    svg("title", { id: `${id}-title` }, "Seconds that each run spent, and that recovery saved in it"),
    svg("desc", { id: `${id}-desc` }, `${summary} The same is below as a table.`),
    svg("defs", {}, hatch),
    ...lines,
    ...bars,
  );
}

function block(kind, x, y, width, height, id) {
  const place = { x, y, width, height: Math.max(1, height) };
  const drawn = [svg("rect", { ...place, class: `block-${kind}` })];
  if (kind === "again") drawn.push(svg("rect", { ...place, fill: `url(#${id}-hatch)` }));
  return drawn;
}

// Steps of 1, 2 or 5 (times ten, a hundred ...) seconds, minutes or hours: some five of them reach ``most``.
function tick(most) {
  const unit = most < 120 ? 1 : most < 7200 ? 60 : 3600;
  const rough = most / unit / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  return unit * power * [1, 2, 5, 10].find((digit) => digit * power >= rough * 0.999);
}

function axis(value, step) {
  const [unit, word] = step < 60 ? [1, "s"] : step < 3600 ? [60, "min"] : [3600, "h"];
  return `${Number((value / unit).toPrecision(3))} ${word}`;
}

// Month and day of a run's logical date, with the time where a day has several; of a run without one, of its end.
function labels(runs) {
  const parts = runs.map(({ run_key: key, ended_at: ended }) => /^date-\d{4}-(\d\d-\d\d)T(\d\d)(\d\d)/.exec(key) ?? /^\d{4}-(\d\d-\d\d)T(\d\d):(\d\d)/.exec(ended ?? ""));
  const days = parts.map((part) => part?.[1] ?? "");
  const areUnlike = new Set(days).size === days.length;
  return parts.map((part) => (part === null ? "" : areUnlike ? part[1] : `${part[1]} ${part[2]}:${part[3]}`));
}
