// Overview: what is due, what runs, how it went lately, who does it.
import { html } from "/assets/view.js";
import { get, pages } from "/assets/api.js";
import { Bars } from "/assets/charts.js";
import { useLive } from "/assets/live.js";
import { Ago, Empty, Failure, Section, Table, Waiting, isEverywhere } from "/assets/parts.js";
import { RunTable } from "/assets/pages/job.js";
import { duration, inZone, ms } from "/assets/times.js";

const MINUTE_MS = 60_000;
const LOOKED_AT = 1000;
const MINUTES = 60;

function minutes(from, count) {
  return Array.from({ length: count }, (_, index) => from + index * MINUTE_MS);
}

const label = (at) => inZone(at).slice(11, 16);
const ticksOf = (all) => Object.fromEntries(all.filter((_, index) => index % 15 === 0 || index === all.length - 1).map((at) => [at, label(at)]));

function Due({ jobs }) {
  const from = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const all = minutes(from, MINUTES);
  const counts = new Map(all.map((at) => [at, 0]));
  for (const job of jobs.items) {
    const at = job.state === "active" && job.next_due ? Math.floor(ms(job.start_after || job.next_due) / MINUTE_MS) * MINUTE_MS : 0;
    if (counts.has(at)) counts.set(at, counts.get(at) + 1);
  }
  const bars = all.map((at) => ({ label: label(at), parts: [{ kind: "planned", value: counts.get(at) }] }));
  return html`<${Bars} title="Jobs by the minute of their next start, next hour" bars=${bars} ticks=${ticksOf(all)} />
    <p class="quiet">Each job counts once, at its next time.${jobs.more ? ` Of more than ${LOOKED_AT} jobs, the first ${jobs.items.length} by id.` : ""}</p>`;
}

function Ended({ runs }) {
  const to = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  const all = minutes(to - (MINUTES - 1) * MINUTE_MS, MINUTES);
  const bars = all.map((at) => {
    const mine = runs.items.filter((run) => run.ended_at && Math.floor(ms(run.ended_at) / MINUTE_MS) * MINUTE_MS === at);
    const count = (state) => mine.filter((run) => run.state === state).length;
    return { label: label(at), parts: ["succeeded", "cancelled", "dead"].map((kind) => ({ kind, value: count(kind) })) };
  });
  return html`<${Bars} title="Runs that ended, last hour" bars=${bars} ticks=${ticksOf(all)} />
    <p class="quiet legend-line"><span class="dot bar-succeeded"></span> succeeded <span class="dot bar-cancelled"></span> cancelled <span class="dot bar-dead"></span> dead${runs.more ? `, the newest ${runs.items.length} only` : ""}</p>`;
}

function percentile(values, share) {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] : null;
}

function Figures({ jobs, runs, workers }) {
  const late = runs.items.map((run) => run.late_ms).filter((each) => typeof each === "number");
  const dead = runs.items.filter((run) => run.state === "dead").length;
  const counts = Object.values(workers?.lanes || {});
  const sum = (state) => counts.reduce((all, lane) => all + (lane[state] || 0), 0);
  const waiting = sum("pending") + sum("queued") + sum("retry_wait");
  const figure = (name, value, more, href) => html`<div class="figure"><dt>${name}</dt><dd>${href ? html`<a href=${href}>${value}</a>` : value}</dd>${more ? html`<dd class="quiet">${more}</dd>` : null}</div>`;
  const share = runs.items.length ? `${((100 * dead) / runs.items.length).toFixed(1)} %` : "–";
  return html`<dl class="figures">
    ${workers ? figure("Running", sum("running"), `${waiting} waiting`, "#/runs?state=running") : null}
    ${workers ? figure("Workers", new Set(workers.items.map((each) => each.worker)).size, "that hold runs") : null}
    ${figure("Jobs", jobs.more ? `${jobs.items.length}+` : jobs.items.length, `${jobs.items.filter((job) => job.state === "paused").length} paused`, "#/jobs")}
    ${figure("Failed", share, `${dead} dead of the last ${runs.items.length}`, "#/runs?state=dead")}
    ${figure("Late, median", late.length ? duration(percentile(late, 0.5)) : "–", `p99 ${late.length ? duration(percentile(late, 0.99)) : "–"}`)}
  </dl>`;
}

export function Overview({ who }) {
  const all = isEverywhere(who);
  const jobs = useLive(() => pages("/v1/jobs", {}, LOOKED_AT), 15_000, []);
  const runs = useLive(() => pages("/v1/runs", { state: "succeeded,dead,cancelled" }, LOOKED_AT), 5000, []);
  const workers = useLive((signal) => (all ? get("/v1/workers", {}, signal) : Promise.resolve(null)), 2000, [all]);
  const parts = useLive((signal) => (all ? get("/v1/partitions", {}, signal) : Promise.resolve(null)), 5000, [all]);
  const error = jobs.error || runs.error || workers.error || parts.error;
  return html`<div class="head"><h1>Overview</h1></div>
    <${Failure} error=${error} />
    ${jobs.data && runs.data ? html`
      <${Figures} jobs=${jobs.data} runs=${runs.data} workers=${workers.data} />
      <div class="charts"><section><h2>Due</h2><${Due} jobs=${jobs.data} /></section><section><h2>Ended</h2><${Ended} runs=${runs.data} /></section></div>
      <${Failed} runs=${runs.data.items} />` : error ? null : html`<${Waiting} />`}
    ${workers.data ? html`<${Lanes} workers=${workers.data} />` : null}
    ${parts.data ? html`<${Owners} slots=${parts.data.items} />` : null}
    ${all ? null : html`<p class="quiet">Workers and partitions are shown to those who see all tenants.</p>`}`;
}

function Failed({ runs }) {
  const dead = runs.filter((run) => run.state === "dead").slice(0, 5);
  return html`<${Section} title="Failed last" aside=${html`<a href="#/dead">Dead letters</a>`}>
    ${dead.length ? html`<${RunTable} items=${dead} withJob=${true} />` : html`<${Empty}>None of the last ${runs.length} runs.<//>`}<//>`;
}

function Lanes({ workers }) {
  const lanes = Object.entries(workers.lanes).toSorted();
  return html`<${Section} title="Lanes and workers">
    ${lanes.length ? html`<${Table} caption="Lanes" items=${lanes} keyOf=${(each) => each[0]} columns=${[
      { name: "Lane", klass: "name", cell: ([name]) => name || "topics" },
      ...["pending", "queued", "running", "retry_wait"].map((state) => ({ name: state.replace("_", " "), cell: ([, states]) => states[state] || 0 })),
    ]} />` : html`<${Empty}>No run is under way.<//>`}
    ${workers.items.length ? html`<${Table} caption="Workers" items=${workers.items} keyOf=${(each) => `${each.worker} ${each.lane}`} columns=${[
      { name: "Worker", klass: "name", cell: (each) => each.worker },
      { name: "Lane", cell: (each) => each.lane },
      { name: "Runs", cell: (each) => each.runs },
      { name: "Oldest", cell: (each) => html`<${Ago} at=${each.oldest_since} />` },
    ]} />` : null}
  <//>`;
}

function Owners({ slots }) {
  return html`<${Section} title="Partitions and owners"><${Table} caption="Slots" items=${slots} keyOf=${(each) => each.slot} columns=${[
    { name: "Partitions", cell: (each) => each.partitions.join(" – ") },
    { name: "Owner", klass: "name", cell: (each) => each.owner || html`<span class="bad">nobody</span>` },
    { name: "Phase", cell: (each) => each.phase || "–" },
    { name: "Requests waiting", cell: (each) => each.lag ?? "–" },
    { name: "Behind", cell: (each) => (each.late_ms === undefined ? "–" : html`<span class=${each.late_ms > 5000 ? "bad" : ""}>${duration(each.late_ms)}</span>`) },
    { name: "Since", cell: (each) => html`<${Ago} at=${each.since} />` },
    { name: "Said", cell: (each) => html`<${Ago} at=${each.said_at} />` },
  ]} /><//>`;
}
