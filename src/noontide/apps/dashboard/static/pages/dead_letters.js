// Dead letters: grouped by what killed them, so that one press starts all of a kind again.
import { html, useState } from "/assets/view.js";
import { pages, post } from "/assets/api.js";
import { useLive } from "/assets/live.js";
import { Ask, Empty, Failure, Instant, Waiting, jobLink, mayChange, runLink, say } from "/assets/parts.js";

const MOST = 5000;
const SHOWN = 20;
const AT_ONCE = 1000;

// The last error of a run, with what is only its own (numbers, ids) taken out of it for the group's name.
export function cause(run) {
  const last = run.attempts?.[run.attempts.length - 1];
  return last?.error || run.reason || last?.reason || "no reason was given";
}

const kindOf = (text) => text.slice(0, 200).replace(/\b[0-9a-f]{8,}(-[0-9a-f]+)*\b/gi, "…").replace(/\b\d{4,}\b/g, "…");

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
  const job = query.get("job") || undefined;
  const { data, error, again } = useLive(() => pages("/v1/dead-letters", { job }, MOST), 5000, [job]);
  const [chosen, setChosen] = useState(null);
  if (!data) return html`<h1>Dead letters</h1><${Waiting} error=${error} />`;
  const groups = groupsOf(data.items);
  return html`<div class="head"><h1>Dead letters</h1><span class="quiet">${data.items.length}${data.more ? "+" : ""} ${data.items.length === 1 ? "run" : "runs"}${job ? ` of ${job}` : ""}</span></div>
    <${Failure} error=${error} />
    ${data.more ? html`<p class="quiet">Of more than ${MOST} the first by id are shown.</p>` : null}
    ${groups.length ? null : html`<${Empty}>Nothing is dead.<//>`}
    ${groups.map((group) => html`<section class="group" key=${group.name} aria-label=${group.name}>
      <header><h2>${group.name}</h2><span class="quiet">${group.runs.length} ${group.runs.length === 1 ? "run" : "runs"} of ${group.jobs.size} ${group.jobs.size === 1 ? "job" : "jobs"}</span>
        ${mayChange(who) ? html`<button type="button" class="primary" onClick=${() => setChosen(group)}>Start again</button>` : null}</header>
      <ul class="plain">${group.runs.slice(0, SHOWN).map((run) => html`<li key=${run.run_id}><a href=${runLink(run.run_id)}>${run.run_id}</a>${" "}
        <span class="quiet">due <${Instant} at=${run.due} seconds=${true} /> · ${run.attempt} ${run.attempt === 1 ? "attempt" : "attempts"} · <a href=${jobLink(run.job_id)}>job</a></span></li>`)}</ul>
      ${group.runs.length > SHOWN ? html`<p class="quiet">and ${group.runs.length - SHOWN} more</p>` : null}
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
  const count = group.runs.length;
  return html`<${Ask} title=${count === 1 ? "Start this run again?" : `Start ${count} runs again?`} action="Start again" act=${act} close=${close}>
    <p><code>${group.name}</code></p><p>Each runs under its own id, with the definition it had.</p><//>`;
}
