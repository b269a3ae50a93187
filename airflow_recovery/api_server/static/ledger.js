// What the channels of a run have lost. What is not known is said to be not known, and never shown as none.

import { el, table } from "./dom.js";
import { count } from "./words.js";

const COLUMNS = [{ label: "Channel" }, { label: "Committed", number: true }, { label: "Lost", number: true }, { label: "Not known" }, { label: "Not checkpointed", number: true }, { label: "Budget" }];

export function ledger(channels) {
  return [table("Loss ledger: records of each channel", COLUMNS, channels.map(row)), ...channels.flatMap(notes)];
}

function row(channel) {
  const causes = channel.causes.map(([cause, records]) => `${cause} ${count(records)}`).join(", ");
  const least = channel.unknown.length || channel.problem || !channel.is_whole ? "at least " : "";
  return [
    name(channel),
    count(channel.committed),
    `${least}${count(channel.lost)}${causes ? ` (${causes})` : ""}`,
    channel.unknown.length ? `what was not made again for producer attempt ${channel.unknown.join(", ")}` : "",
    count(channel.behind),
    channel.verdict,
  ];
}

function name({ edge, generation, is_newest: isNewest, counts }) {
  if (isNewest) return generation > 1 ? `${edge}, generation ${generation}` : edge;
  return `${edge}, earlier generation ${generation}${counts === false ? ", which does not count" : ""}`;
}

function notes({ edge, problem, is_whole: isWhole }) {
  if (problem) return [el("p", { class: "warning" }, `${edge} can't be read to its end: ${problem}`)];
  return isWhole ? [] : [el("p", { class: "quiet" }, `${edge} has a long log: the numbers are as far as it was read, and the rest follows.`)];
}
