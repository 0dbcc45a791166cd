// Jobs: search, filter, order, pages by cursor; where each stands, when it is due next, how it went lately.
import { html, useEffect, useRef, useState } from "/assets/view.js";
import { address, get, jobPath } from "/assets/api.js";
import { Outcomes } from "/assets/charts.js";
import { useWatch } from "/assets/live.js";
import { Empty, Failure, Instant, State, Table, Waiting, jobLink, mayChange } from "/assets/parts.js";
import { count, plainLength } from "/assets/times.js";

const PAGE = 25;
const BEGINS = 5; // jobs shown at once whose id begins with what is sought
const LOOK_AGAIN_MS = 5000;
const QUICK_MS = 400; // a search that took no longer is done again by itself
const STATES = ["active", "paused", "completed", "quarantined", "blocked"];
const FILTERS = ["text", "state", "tenant", "label"];

export function targetText(target) {
  if (typeof target === "string") return target;
  if (target?.handler) return `handler:${target.handler}`;
  if (target?.topic) return `kafka://${target.topic.name ?? target.topic}`;
  return target?.http ? String(target.http.url ?? target.http) : "–";
}

export function scheduleText(definition) {
  const schedule = definition.schedule;
  if (!schedule) return definition.after ? `after ${definition.after.join(", ")}` : "–";
  if (typeof schedule === "string") return schedule;
  if (schedule.cron) return [schedule.cron].flat().join(" · ");
  if (schedule.every) return `every ${plainLength(schedule.every)}`;
  if (schedule.at) return `once, ${schedule.at}`;
  return schedule.after_completion ? `${plainLength(schedule.after_completion)} after its end` : JSON.stringify(schedule);
}

// The last ten outcomes of the jobs of a page, asked for once per page, four at a time.
function useOutcomes(ids) {
  const [found, setFound] = useState({});
  useEffect(() => {
    const left = ids.slice();
    const abort = new AbortController();
    async function ask() {
      for (let id = left.shift(); id !== undefined; id = left.shift()) {
        try {
          const page = await get(`${jobPath(id)}/executions`, { limit: 10 }, abort.signal);
          const states = page.items.map((each) => each.state).reverse();
          setFound((before) => ({ ...before, [id]: states }));
        } catch {
          if (abort.signal.aborted) return;
        }
      }
    }
    for (let line = 0; line < 4; line += 1) ask();
    return () => abort.abort();
  }, [ids.join("\n")]);
  return found;
}

// A search looks at some thousand jobs per question and goes on until a page is full: `scanned` says how far it is.
function useSearch(asked, cursor) {
  const [found, setFound] = useState(null);
  const stop = useRef(null);
  const key = JSON.stringify([asked, cursor]);
  useEffect(() => {
    const abort = new AbortController();
    let again = 0;
    setFound((before) => (before ? { ...before, busy: true, stopped: false, scanned: 0 } : null));
    async function look(first) {
      const began = performance.now();
      const items = [];
      let [at, scanned] = [cursor, 0];
      try {
        do {
          const page = await get("/v1/jobs", { ...asked, limit: PAGE - items.length, cursor: at }, abort.signal);
          items.push(...page.items);
          at = page.next_cursor;
          scanned += page.scanned;
          const busy = Boolean(at) && items.length < PAGE;
          if (first || !busy) setFound({ items: items.slice(), next: at, scanned, busy, key, error: null });
        } while (at && items.length < PAGE);
        if (performance.now() - began < QUICK_MS) again = setTimeout(later, LOOK_AGAIN_MS);
      } catch (error) {
        if (!abort.signal.aborted) setFound((before) => ({ items: [], next: null, scanned, key, ...before, busy: false, error }));
      }
    }
    function later() { // nothing is asked while nobody looks
      if (document.hidden) again = setTimeout(later, LOOK_AGAIN_MS);
      else look(false);
    }
    look(true);
    stop.current = () => { abort.abort(); setFound((before) => before && { ...before, busy: false, stopped: true }); };
    return () => { abort.abort(); clearTimeout(again); };
  }, [key]);
  return { found, stop: () => stop.current?.() };
}

export function Jobs({ query, who }) {
  const [filter, setFilter] = useState(Object.fromEntries([...FILTERS, "sort"].map((name) => [name, query.get(name) || ""])));
  const [asked, setAsked] = useState(filter);
  const [trail, setTrail] = useState([null]); // the cursors that led here
  useEffect(() => {
    if (filter === asked) return undefined;
    const timer = setTimeout(() => { setTrail([null]); setAsked(filter); }, 250);
    return () => clearTimeout(timer);
  }, [filter]);
  useEffect(() => {
    const given = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
    history.replaceState(null, "", given.size ? `#/jobs?${given}` : "#/jobs");
  }, [asked]);
  const cursor = trail[trail.length - 1];
  const filtered = FILTERS.some((name) => asked[name]);
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  const shown = { asked, cursor, trail, setTrail, who };
  return html`<div class="head"><h1>Jobs</h1>${mayChange(who) ? html`<a class="button primary" href="#/new">New job</a>` : null}</div>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="wide">Search<input type="search" value=${filter.text} onInput=${set("text")} placeholder="in id, target, note and labels" maxlength="200" /></label>
      <label>State<select value=${filter.state} onChange=${set("state")}><option value="">any</option>${STATES.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Label<input value=${filter.label} onInput=${set("label")} placeholder="team=finance" maxlength="200" /></label>
      <label>Tenant<input value=${filter.tenant} onInput=${set("tenant")} placeholder="any" maxlength="100" /></label>
      <label>Order<select value=${filter.sort} onChange=${set("sort")}><option value="">by id</option><option value="due">next start first</option></select></label>
    </form>
    ${asked.text && !cursor ? html`<${Begins} text=${asked.text} />` : null}
    ${filtered ? html`<${Searched} ...${shown} />` : html`<${Listed} ...${shown} />`}`;
}

// Ids that begin with what is sought are found at once, however many jobs there are.
function Begins({ text }) {
  const { data, fresh } = useWatch(address("/v1/jobs", { prefix: text, limit: BEGINS }));
  if (!fresh || !data.items.length) return null;
  return html`<p class="begins"><span class="quiet">Begins so:</span> ${data.items.map((job) => html`<a href=${jobLink(job.id)}>${job.id}</a> `)}${data.next_cursor ? html`<span class="quiet">…</span>` : null}</p>`;
}

function Listed({ asked, cursor, trail, setTrail, who }) {
  const { data, error, fresh } = useWatch(address("/v1/jobs", { sort: asked.sort, limit: PAGE, cursor }));
  return html`${error || !data ? html`<${Waiting} error=${error} />` : null}
    ${data ? html`<div class=${`list ${fresh ? "" : "stale"}`}><${Found} items=${data.items} who=${who} /></div>
      <${Pager} trail=${trail} setTrail=${setTrail} next=${data.next_cursor} />` : null}`;
}

function Searched({ asked, cursor, trail, setTrail, who }) {
  const { found, stop } = useSearch(asked, cursor);
  if (!found) return html`<${Waiting} />`;
  const looked = html`looked at ${count(found.scanned)} ${found.scanned === 1 ? "job" : "jobs"}`;
  const stale = found.key !== JSON.stringify([asked, cursor]);
  return html`<${Failure} error=${found.error} />
    <div class=${`list ${stale ? "stale" : ""}`}>${found.items.length ? html`<${Found} items=${found.items} who=${who} />` : found.busy || found.stopped || found.error ? null : html`<${Empty}>No job is like that.<//>`}</div>
    <p class="searching quiet" role="status">${found.busy ? html`Searching: ${looked}. <button type="button" class="small" onClick=${stop}>Stop</button>` : found.stopped ? html`Stopped: ${looked}.` : found.next ? null : html`That is all: ${looked}.`}</p>
    <${Pager} trail=${trail} setTrail=${setTrail} next=${found.busy ? null : found.next} />`;
}

function Found({ items, who }) {
  const outcomes = useOutcomes(items.map((job) => job.id));
  if (!items.length) return html`<${Empty}>${mayChange(who) ? html`There is no job yet. <a href="#/new">Make the first one</a>` : "There is no job yet."}<//>`;
  return html`<${Table} caption="Jobs" items=${items} keyOf=${(job) => job.id} columns=${[
    { name: "Job", klass: "name", cell: (job) => html`<a href=${jobLink(job.id)}>${job.id}</a>${job.tenant === "default" ? null : html` <span class="quiet">${job.tenant}</span>`}` },
    { name: "State", klass: "half", cell: (job) => html`<${State} of=${job.state} />` },
    { name: "Schedule", cell: (job) => html`<code>${scheduleText(job.definition)}</code>` },
    { name: "Next due", cell: (job) => html`<${Instant} at=${job.next_due} zone=${job.definition.timezone || "UTC"} both=${true} ago=${true} />` },
    { name: "Target", klass: "target", cell: (job) => html`<span class="quiet">${targetText(job.definition.target)}</span>` },
    { name: "Lately", klass: "half", cell: (job) => html`<${Outcomes} states=${outcomes[job.id] || []} />` },
  ]} />`;
}

export function Pager({ trail, setTrail, next }) {
  if (trail.length === 1 && !next) return null;
  return html`<nav class="pager" aria-label="More of this list">
    <button type="button" disabled=${trail.length === 1} onClick=${() => setTrail(trail.slice(0, -1))}>← Previous</button>
    <span class="quiet">page ${trail.length}</span>
    <button type="button" disabled=${!next} onClick=${() => setTrail([...trail, next])}>Next →</button>
  </nav>`;
}
