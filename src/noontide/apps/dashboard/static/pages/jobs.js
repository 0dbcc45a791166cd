// Jobs: search, filter, pages by cursor; where each stands, when it is due next, how it went lately.
import { html, useEffect, useState } from "/assets/view.js";
import { get, jobPath } from "/assets/api.js";
import { Outcomes } from "/assets/charts.js";
import { useLive } from "/assets/live.js";
import { Empty, Instant, State, Table, Waiting, jobLink, mayChange } from "/assets/parts.js";

const EVERY_MS = 5000;
const PAGE = 25;
const STATES = ["active", "paused", "completed", "quarantined", "blocked"];

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
  if (schedule.every) return `every ${schedule.every}`;
  if (schedule.at) return `once, ${schedule.at}`;
  return schedule.after_completion ? `${schedule.after_completion} after its end` : JSON.stringify(schedule);
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

export function Jobs({ query, who }) {
  const [filter, setFilter] = useState({ text: query.get("text") || "", state: query.get("state") || "", tenant: query.get("tenant") || "", label: query.get("label") || "" });
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
  const { data, error } = useLive((signal) => get("/v1/jobs", { ...asked, limit: PAGE, cursor }, signal), EVERY_MS, [JSON.stringify(asked), cursor]);
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  return html`<div class="head"><h1>Jobs</h1>${mayChange(who) ? html`<a class="button primary" href="#/new">New job</a>` : null}</div>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="wide">Search<input type="search" value=${filter.text} onInput=${set("text")} placeholder="in id, target, note and labels" maxlength="200" /></label>
      <label>State<select value=${filter.state} onChange=${set("state")}><option value="">any</option>${STATES.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Label<input value=${filter.label} onInput=${set("label")} placeholder="team=finance" maxlength="200" /></label>
      <label>Tenant<input value=${filter.tenant} onInput=${set("tenant")} placeholder="any" maxlength="100" /></label>
    </form>
    ${error || !data ? html`<${Waiting} error=${error} />` : null}
    ${data ? html`<${Found} data=${data} filtered=${Object.values(asked).some(Boolean)} who=${who} />
      <${Pager} trail=${trail} setTrail=${setTrail} next=${data.next_cursor} />` : null}`;
}

function Found({ data, filtered, who }) {
  const outcomes = useOutcomes(data.items.map((job) => job.id));
  if (!data.items.length && data.next_cursor) return html`<${Empty}>None on this page; there is more to look through.<//>`;
  if (!data.items.length) {
    return filtered ? html`<${Empty}>No job is like that.<//>`
      : html`<${Empty}>There is no job yet. ${mayChange(who) ? html`<a href="#/new">Make the first one</a>` : null}<//>`;
  }
  return html`<${Table} caption="Jobs" items=${data.items} keyOf=${(job) => job.id} columns=${[
    { name: "Job", klass: "name", cell: (job) => html`<a href=${jobLink(job.id)}>${job.id}</a>${job.tenant === "default" ? null : html` <span class="quiet">${job.tenant}</span>`}` },
    { name: "State", cell: (job) => html`<${State} of=${job.state} />` },
    { name: "Schedule", cell: (job) => html`<code>${scheduleText(job.definition)}</code>` },
    { name: "Next due", cell: (job) => html`<${Instant} at=${job.next_due} zone=${job.definition.timezone || "UTC"} both=${true} ago=${true} />` },
    { name: "Target", cell: (job) => html`<span class="quiet">${targetText(job.definition.target)}</span>` },
    { name: "Lately", cell: (job) => html`<${Outcomes} states=${outcomes[job.id] || []} />` },
  ]} />`;
}

export function Pager({ trail, setTrail, next }) {
  if (trail.length === 1 && !next) return null;
  return html`<nav class="pager" aria-label="More of this list">
    <button type="button" disabled=${trail.length === 1} onClick=${() => setTrail(trail.slice(0, -1))}>← Before</button>
    <span class="quiet">page ${trail.length}</span>
    <button type="button" disabled=${!next} onClick=${() => setTrail([...trail, next])}>After →</button>
  </nav>`;
}
