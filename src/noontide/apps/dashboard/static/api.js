// The public API: the token of this tab, problem documents as errors, numbers as they were written.

const TOKEN = "noontide.token";
const REFRESH = "noontide.refresh";
const WAIT_MS = 30_000; // longer than the API itself waits for an owner or a verdict

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => { sessionStorage.removeItem(TOKEN); sessionStorage.removeItem(REFRESH); },
};

export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `HTTP ${status}`);
    this.status = status;
    this.kind = (document.type || "").split(":").pop();
    this.errors = document.errors || [];
  }
}

// 12345678901234567890 and 1.50 stay as they are where the browser can keep them (JSON.rawJSON). What they become is no
// number, so this is for documents that are only shown and given back as JSON.
function exactly(_key, value, context) {
  if (typeof value !== "number" || !JSON.rawJSON || !context?.source) return value;
  return String(value) === context.source ? value : JSON.rawJSON(context.source);
}

export const parse = (text) => JSON.parse(text, exactly);

export function problemOf(status, text) {
  try {
    return new Problem(status, JSON.parse(text) || {});
  } catch {
    return new Problem(status, { detail: text.slice(0, 300) });
  }
}

// A path with what it asks for; nothing for what is empty. query: an object, or pairs.
export function address(path, query) {
  const given = new URLSearchParams();
  for (const [name, value] of Array.isArray(query) ? query : Object.entries(query || {})) {
    if (value !== undefined && value !== null && value !== "") given.append(name, value);
  }
  return given.size ? `${path}?${given}` : path;
}

const who = () => (token.get() ? { authorization: `Bearer ${token.get()}` } : {});

// A stream of events, once it has begun. Throws a Problem that has a status when it is refused.
export async function opened(path, signal) {
  const answer = await fetch(path, { signal, credentials: "omit", cache: "no-store", headers: who() });
  if (answer.status === 401) window.dispatchEvent(new Event("noontide:login"));
  if (!answer.ok) throw problemOf(answer.status, await answer.text());
  return answer;
}

// text: give the text of the answer as it came.
export async function call(method, path, { query, body, headers, signal, exact, text: plain } = {}) {
  let answer;
  try {
    answer = await fetch(address(path, query), {
      method,
      signal: AbortSignal.any([AbortSignal.timeout(WAIT_MS), ...(signal ? [signal] : [])]),
      credentials: "omit",
      cache: "no-store",
      headers: { ...who(), ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the API does not answer" });
  }
  const text = await answer.text();
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/v1/login") window.dispatchEvent(new Event("noontide:login"));
    throw problemOf(answer.status, text);
  }
  if (plain) return text;
  const document = text ? (exact ? parse(text) : JSON.parse(text)) : null;
  if (answer.status === 202 && document?.state === "pending") return decided(answer.headers.get("location"));
  return document;
}

// A write that nobody has decided in time (202): ask for its verdict, for up to half a minute.
async function decided(location) {
  for (let turn = 0; turn < 30; turn += 1) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const found = await call("GET", location);
    if (found.state !== "decided") continue;
    if (found.verdict === "accepted") return found;
    const errors = found.problems || [];
    throw new Problem(422, { detail: errors.map((each) => `${each.pointer} ${each.message}`).join("; "), errors });
  }
  throw new Problem(503, { detail: "the request is stored, but nobody has decided it yet" });
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const getJob = (id, signal) => call("GET", jobPath(id), { signal, exact: true });
export const post = (path, body = {}, headers = {}) => call("POST", path, { body, headers });
export const jobPath = (id) => `/v1/jobs/${encodeURIComponent(id)}`;
export const runPath = (id) => `/v1/runs/${encodeURIComponent(id)}`;

// All pages of a list up to a bound; `more` says that it was reached.
export async function pages(path, query, most, signal) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(path, { ...query, limit: Math.min(1000, most - items.length), cursor }, signal);
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && items.length < most);
  return { items, more: cursor !== null };
}
