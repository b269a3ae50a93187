// Asks the REST API beside these pages, with the cookie of whoever is logged in to Airflow.

export class Problem extends Error {
  constructor(status, code, detail, changed) {
    super(detail);
    Object.assign(this, { status, code, changed });
  }
}

const LONGEST_MS = 120000;

// For how long a page waits before it asks again: where nothing answers, to ask often makes it worse.
export function pause(usualMs, failures) {
  return Math.min(usualMs * 2 ** failures, Math.max(usualMs, LONGEST_MS));
}

// "+" in a run id is a plus here, encoded or not.
export function parameters() {
  const values = {};
  for (const pair of location.search.slice(1).split("&")) {
    const [name, ...value] = pair.split("=");
    if (name) values[name] = decodeURIComponent(value.join("="));
  }
  return values;
}

function address(parts, query) {
  const path = parts.map(encodeURIComponent).join("/");
  const asked = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = asked.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  return new URL(`../${path}${search ? `?${search}` : ""}`, location.href);
}

async function send(url, options) {
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    throw new Problem(0, "no_answer", "Airflow's API server does not answer.", []);
  }
  if (response.status === 304) return { response, body: null };
  const body = await response.json().catch(() => null);
  if (!response.ok) {
    const detail = typeof body?.detail === "string" ? body.detail : `Airflow answered ${response.status}.`;
    throw new Problem(response.status, body?.code ?? "no_answer", detail, body?.changed ?? []);
  }
  return { response, body };
}

export async function get(parts, query = {}, etag = null) {
  const { response, body } = await send(address(parts, query), { headers: etag ? { "If-None-Match": etag } : {} });
  return { body, etag: response.headers.get("ETag") };
}

export async function post(parts, body, query = {}) {
  const headers = { "Content-Type": "application/json" };
  return (await send(address(parts, query), { method: "POST", headers, body: JSON.stringify(body) })).body;
}
