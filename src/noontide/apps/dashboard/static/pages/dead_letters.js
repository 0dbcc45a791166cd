// Dead letters: grouped by what killed them, so that one press starts all of a kind again.
import { html, useState } from "/assets/view.js";
import { pages, post } from "/assets/api.js";
import { useAsked } from "/assets/live.js";
import { Ask, Empty, Failure, Instant, Table, Waiting, jobLink, mayChange, runLink, say } from "/assets/parts.js";
import { count } from "/assets/times.js";

const MOST = 5000;
const SHOWN = 10;
const AT_ONCE = 1000;

// The last error of a run, with what is only its own (numbers, ids) taken out of it for the group's name.
export function cause(run) {
  const last = run.attempts?.[run.attempts.length - 1];
  return last?.error || run.reason || last?.reason || "no reason was given";
}

const kindOf = (text) => text.slice(0, 200).replace(/\b[0-9a-f]{8,}(-[0-9a-f]+)*\b/gi, "…").replace(/\b\d{4,}\b/g, "…").replace(/…(\W{1,2}…)+/g, "…");

function groupsOf(runs) {
  const groups = new Map();
  for (const run of runs) {
    const name = kindOf(cause(run));
    const group = groups.get(name) || { name, runs: [], jobs: new Set() };
    group.runs.push(run);
    group.jobs.add(run.job_id);
    groups.set(name, group);
  }
  return [...groups.values()].toSorted((one, other) => other.runs.length - one.runs.length);
}

export function DeadLetters({ who, query }) {
  const [filter, setFilter] = useState({ job: query.get("job") || "", tenant: "", reason: "" });
  const { data, error, again } = useAsked((signal) => pages("/v1/dead-letters", { job: filter.job, tenant: filter.tenant }, MOST, signal), 5000, [filter.job, filter.tenant]);
  const [chosen, setChosen] = useState(null);
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value.trim() });
  const sought = filter.reason.toLowerCase();
  const found = (data?.items || []).filter((run) => !sought || cause(run).toLowerCase().includes(sought));
  const groups = groupsOf(found);
  const filtered = Object.values(filter).some(Boolean);
  return html`<div class="head"><h1>Dead letters</h1>${data ? html`<span class="quiet">${count(found.length)}${data.more ? "+" : ""} ${found.length === 1 ? "run" : "runs"}</span>` : null}
      ${mayChange(who) && groups.length > 1 ? html`<div class="buttons"><button type="button" onClick=${() => setChosen({ name: filtered ? "all that are like that" : "all of them", runs: found })}>Start all ${count(found.length)} again</button></div>` : null}</div>
    <form class="filters few" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Job<input value=${filter.job} onChange=${set("job")} placeholder="its whole id" maxlength="200" /></label>
      <label>Reason<input value=${filter.reason} onInput=${set("reason")} placeholder="a part of it" maxlength="200" /></label>
      <label>Tenant<input value=${filter.tenant} onChange=${set("tenant")} placeholder="any" maxlength="100" /></label>
    </form>
    <${Failure} error=${error} />
    ${data || error ? null : html`<${Waiting} />`}
    ${data?.more ? html`<p class="quiet">Of more than ${count(MOST)} the first by id are shown; start these again, then the next are.</p>` : null}
    ${data && !groups.length ? html`<${Empty}>${filtered ? "No dead run is like that." : "Nothing is dead."}<//>` : null}
    ${groups.map((group) => html`<section class="group" key=${group.name} aria-label=${group.name}>
      <header><h2>${group.name}</h2><span class="quiet">${count(group.runs.length)} ${group.runs.length === 1 ? "run" : "runs"} of ${count(group.jobs.size)} ${group.jobs.size === 1 ? "job" : "jobs"}</span>
        ${mayChange(who) ? html`<button type="button" class="primary" onClick=${() => setChosen(group)}>Start again</button>` : null}</header>
      <${Table} caption=${`Runs: ${group.name}`} items=${group.runs.slice(0, SHOWN)} keyOf=${(run) => run.run_id} columns=${[
        { name: "Run", klass: "name", cell: (run) => html`<a href=${runLink(run.run_id)}>${run.run_id}</a>` },
        { name: "Job", cell: (run) => html`<a href=${jobLink(run.job_id)}>${run.job_id}</a>` },
        { name: "Due", cell: (run) => html`<${Instant} at=${run.due} seconds=${true} />` },
        { name: "Attempts", klass: "number", cell: (run) => run.attempt },
      ]} />
      ${group.runs.length > SHOWN ? html`<p class="quiet">and ${count(group.runs.length - SHOWN)} more</p>` : null}
    </section>`)}
    ${chosen ? html`<${Redrive} group=${chosen} close=${() => setChosen(null)} again=${again} />` : null}`;
}

function Redrive({ group, close, again }) {
  async function act() {
    const ids = group.runs.map((run) => run.run_id);
    const refused = [];
    let started = 0;
    for (let from = 0; from < ids.length; from += AT_ONCE) {
      const found = await post("/v1/dead-letters/redrive", { run_ids: ids.slice(from, from + AT_ONCE) });
      started += found.started.length;
      refused.push(...found.refused);
    }
    again();
    if (refused.length) throw new Error(`${started} started, ${refused.length} refused; the first: ${refused[0].run_id}: ${refused[0].problem}`);
    say(`${started} started again`);
  }
  const many = group.runs.length;
  return html`<${Ask} title=${many === 1 ? "Start this run again?" : `Start ${count(many)} runs again?`} action="Start again" act=${act} close=${close}>
    <p><code>${group.name}</code></p><p>Each runs under its own id, with the definition it had.</p><//>`;
}
