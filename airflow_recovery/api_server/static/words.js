// How values are told to people. Every state has a sign and a word beside its colour.

export const STATES = {
  failed: { sign: "✕", says: "must run, and nobody tries again by itself" },
  lost: { sign: "?", says: "has finished, and its data is gone or was reported gone" },
  running: { sign: "▶", says: "an attempt is open, or its task looks whether it must run" },
  waiting: { sign: "…", says: "must run, and its turn has not come" },
  run: { sign: "✓", says: "has run, and its result stands" },
  kept: { sign: "=", says: "did not have to run again" },
  released: { sign: "○", says: "stands; its data was let go" },
  skipped: { sign: "–", says: "was skipped by Airflow" },
};

// What somebody who is woken at night looks for, the worst first.
export const ATTENTION = ["failed", "lost", "running"];

export const ACTIONS = {
  run: "will run", wait: "waits for rows", "refused: budget ended": "refused", blocked: "is blocked",
  commit: "will commit", keep: "keep", release: "keep",
};

export function stateText(state) {
  return `${STATES[state]?.sign ?? ""} ${state}`;
}

export function bytes(size) {
  if (size === null || size === undefined) return "";
  let value = size;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB") return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return "";
}

export function count(value) {
  return value === null || value === undefined ? "" : value.toLocaleString("en");
}

export function plural(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 100) return `${value.toFixed(1)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function moment(iso) {
  const parsed = new Date(iso ?? "");
  if (Number.isNaN(parsed.getTime())) return iso ?? "";
  return `${parsed.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
