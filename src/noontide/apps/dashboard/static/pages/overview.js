// Overview: what is due, what runs, how it went, who does it, and what somebody should know.
import { html, useState } from "/assets/view.js";
import { address } from "/assets/api.js";
import { Bars, Legend, Lines } from "/assets/charts.js";
import { useNow, useWatch } from "/assets/live.js";
import { Ago, Empty, Failure, Instant, Section, Table, Waiting, isEverywhere, jobLink, runLink } from "/assets/parts.js";
import { RunTable } from "/assets/pages/job.js";
import { clockIn, count, duration, inZone, ms } from "/assets/times.js";

const MINUTE_MS = 60_000;
const DAY_STEP = 5; // minutes of one bar of a day
const SILENT_MS = 5 * MINUTE_MS; // agents that wrote nothing for so long do not run
const RANGES = { hour: { minutes: 60, step: 1 }, day: { minutes: 1440, step: 5 }, week: { minutes: 10_080, step: 60 } };
const ENDS = [
  { kind: "succeeded", name: "succeeded" }, { kind: "decided", name: "decided not to run" },
  { kind: "cancelled", name: "cancelled" }, { kind: "dead", name: "dead" },
];

const sum = (values) => values.reduce((all, each) => all + each, 0);
const timesFrom = (from, step_ms, many) => Array.from({ length: many }, (_, place) => ms(from) + place * step_ms);

// The fullest minutes of what is to come, at most a few, each more than its surroundings by far.
export function peaksOf(runs, most = 3) {
  const mean = sum(runs) / Math.max(1, runs.length);
  const ordered = runs.map((value, place) => [value, place]).toSorted((one, other) => other[0] - one[0]);
  const found = [];
  for (const [value, place] of ordered) {
    if (value < 2 || value < 2 * mean || found.length === most) break;
    if (found.every((each) => Math.abs(each - place) > 10)) found.push(place);
  }
  return found.toSorted((one, other) => one - other);
}

function Hour({ found }) {
  const times = timesFrom(found.from, MINUTE_MS, found.runs.length);
  return html`<${Bars} title="Next hour, by minute" times=${times} parts=${[{ kind: "planned", name: "due", values: found.runs }]} marked=${peaksOf(found.runs)} />`;
}

function Day({ found }) {
  const bars = Math.ceil(found.runs.length / DAY_STEP);
  const values = Array.from({ length: bars }, (_, place) => sum(found.runs.slice(place * DAY_STEP, (place + 1) * DAY_STEP)));
  const peaks = peaksOf(found.runs);
  const at = (place) => inZone(ms(found.from) + place * MINUTE_MS).slice(11);
  return html`<${Bars} title=${`Next day, by ${DAY_STEP} minutes`} times=${timesFrom(found.from, DAY_STEP * MINUTE_MS, bars)} parts=${[{ kind: "planned", name: "due", values }]} marked=${peaks.map((place) => Math.floor(place / DAY_STEP))} />
    <p class="quiet peaks">${peaks.length ? html`Fullest minutes: ${peaks.map((place, index) => html`${index ? ", " : ""}<strong>${at(place)}</strong> ${count(found.runs[place])}`)}` : "No minute is much fuller than the others."}</p>`;
}

const notWhole = (found) => (found && !found.complete ? html`<p class="quiet">${found.missing_partitions.length ? `${found.missing_partitions.length} partitions are not counted yet.` : "There are more jobs than are looked at."}</p>` : null);

function Due({ hour, day }) {
  return html`<${Section} title="Due" aside=${html`<span class="quiet">as jobs stand now</span>`}>
    <div class="charts"><div>${hour.data ? html`<${Hour} found=${hour.data} />${notWhole(hour.data)}` : html`<${Waiting} error=${hour.error} />`}</div>
    <div>${day.data ? html`<${Day} found=${day.data} />${notWhole(day.data)}` : html`<${Waiting} error=${day.error} />`}</div></div><//>`;
}

// 1 ms .. 1 h on a logarithmic scale
const late = (value) => Math.min(1, Math.max(0, Math.log10(Math.max(1, value)) / Math.log10(3_600_000)));
const rate = (found) => found.succeeded.map((good, place) => {
  const ended = good + found.dead[place];
  return ended ? (100 * found.dead[place]) / ended : null;
});
const highestOf = (values) => Math.max(...values.filter((each) => each !== null), 0);
const percent = (share) => `${share >= 10 || share === 0 ? Math.round(share) : share.toFixed(1)} %`;

function Went({ range, setRange, found, error }) {
  const choice = html`<label class="inline">Last <select value=${range} onChange=${(event) => setRange(event.target.value)}>${Object.keys(RANGES).map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`;
  return html`<${Section} title="How it went" aside=${choice}>${found ? html`<${Ended} found=${found} label=${range === "week" ? (at) => inZone(at).slice(5, 16) : clockIn} />` : html`<${Waiting} error=${error} />`}<//>`;
}

function Ended({ found, label }) {
  const times = timesFrom(found.from, found.step_sec * 1000, found.succeeded.length);
  const parts = ENDS.map((each) => ({ ...each, values: found[each.kind] }));
  const rates = rate(found);
  const most = Math.max(5, highestOf(rates));
  const ended = sum(found.succeeded) + sum(found.dead);
  return html`<div class="charts three">
    <div><${Bars} title="Ended" times=${times} parts=${parts} label=${label} /><${Legend} parts=${ENDS} /></div>
    <div><${Lines} title="Late" times=${times} lines=${[{ kind: "soft", name: "99 % within", values: found.late_p99_ms }, { kind: "strong", name: "half within", values: found.late_p50_ms }]} scale=${late} shown=${duration}
      grid=${[10, 1000, 60_000]} top="1 h" low="1 ms" label=${label} note=${highestOf(found.late_p99_ms) ? `99 % within ${duration(highestOf(found.late_p99_ms))} at worst` : "nothing ended"} />
      <${Legend} parts=${[{ kind: "strong", name: "half began within" }, { kind: "soft", name: "99 %" }]} /></div>
    <div><${Lines} title="Failed" times=${times} lines=${[{ kind: "dead", name: "dead", values: rates }]} scale=${(value) => value / most} shown=${percent} top=${percent(most)} low="0 %" label=${label}
      note=${ended ? `${percent((100 * sum(found.dead)) / ended)} of ${count(ended)}` : "nothing ended"} /></div>
  </div>`;
}

function Figure({ name, value, more, href, bad }) {
  return html`<div class="figure"><dt>${name}</dt><dd class=${bad ? "bad" : ""}>${href ? html`<a href=${href}>${value}</a>` : value}</dd>${more ? html`<dd class="quiet">${more}</dd>` : null}</div>`;
}

function Figures({ hour, lately, lanes, workers, dead }) {
  const five = lately?.late_p99_ms.slice(-5) || [];
  const of = (name) => Object.values(lanes?.lanes || {}).reduce((all, lane) => all + lane[name], 0);
  const [good, bad] = lately ? [sum(lately.succeeded), sum(lately.dead)] : [0, 0];
  return html`<dl class="figures">
    ${lanes ? html`<${Figure} name="Running now" value=${count(of("running"))} more=${`${count(of("ready") + of("queued"))} waiting`} href="#/runs?state=running" />` : null}
    ${workers ? html`<${Figure} name="Workers" value=${count(new Set(workers.items.map((each) => each.worker)).size)} more="that hold runs" />` : null}
    ${hour ? html`<${Figure} name="Due in the next hour" value=${count(sum(hour.runs))} more=${`${count(hour.runs[0])} this minute`} href="#/jobs?sort=due" />` : null}
    ${lately ? html`<${Figure} name="Late, last 5 minutes" value=${highestOf(five) ? duration(highestOf(five)) : "–"} more="99 % began within" bad=${highestOf(five) > 60_000} />` : null}
    ${lately ? html`<${Figure} name="Failed, last hour" value=${good + bad ? percent((100 * bad) / (good + bad)) : "–"} more=${`${count(bad)} dead of ${count(good + bad)}`} href="#/dead" bad=${bad > 0 && bad / (good + bad) > 0.05} />` : null}
  </dl>`;
}

export function Overview({ who }) {
  const all = isEverywhere(who);
  const [range, setRange] = useState("hour");
  const hour = useWatch("/v1/forecast/due?minutes=60");
  const day = useWatch("/v1/forecast/due?minutes=1440");
  const lately = useWatch(address("/v1/outcomes", RANGES.hour));
  const other = useWatch(range === "hour" ? null : address("/v1/outcomes", RANGES[range]));
  const lanes = useWatch(all ? "/v1/scaling" : null);
  const workers = useWatch(all ? "/v1/workers" : null);
  const parts = useWatch(all ? "/v1/partitions" : null);
  const dead = useWatch("/v1/runs?state=dead&limit=5");
  const error = lately.error || dead.error || lanes.error || parts.error;
  const went = range === "hour" ? lately : other;
  return html`<div class="head"><h1>Overview</h1></div>
    <${Failure} error=${error} />
    <${Figures} hour=${hour.data} lately=${lately.data} lanes=${lanes.data} workers=${workers.data} />
    <${Alerts} />
    <${Due} hour=${hour} day=${day} />
    <${Went} range=${range} setRange=${setRange} found=${went.fresh || range === "hour" ? went.data : null} error=${went.error} />
    <${Failed} runs=${dead.data} />
    ${lanes.data && workers.data ? html`<${Lanes} lanes=${lanes.data.lanes} workers=${workers.data} />` : null}
    ${parts.data ? html`<${Owners} slots=${parts.data.items} />` : null}
    ${all ? null : html`<p class="quiet">Lanes, workers and partitions are shown to those who see all tenants.</p>`}`;
}

// What the agents say; where they do not run, that nobody watches.
function Alerts() {
  const { data, error } = useWatch("/v1/alerts?limit=5");
  const stats = useWatch("/v1/stats?window=1h");
  const now = useNow(10_000);
  if (error?.status === 404) return null;
  const silent = stats.data && (!stats.data.as_of || now - ms(stats.data.as_of) > SILENT_MS);
  const off = silent ? html`<p class="quiet">No agents are running (<code>noontide agents</code>), so nobody is told of overdue and failing jobs${stats.data.as_of ? html`; they last spoke <${Ago} at=${stats.data.as_of} />` : ""}.</p>` : null;
  if (!data?.items.length) return off || (data ? html`<p class="quiet">No alerts.</p>` : null);
  return html`<${Section} title="Alerts">
    ${off}
    <${Table} caption="Alerts" items=${data.items} keyOf=${(each) => each.alert_id} columns=${[
      { name: "When", cell: (each) => html`<${Ago} at=${each.at} />` },
      { name: "What", cell: (each) => html`<span class="state state-${each.kind}">${each.kind.replaceAll("_", " ")}</span>` },
      { name: "Job", klass: "name", cell: (each) => html`<a href=${jobLink(each.job_id)}>${each.job_id}</a>` },
      { name: "Why", klass: "grow", cell: (each) => reasonOf(each) },
      { name: "Told", cell: told },
    ]} /><//>`;
}

function reasonOf(alert) {
  const text = [alert.late_ms ? `late by ${duration(alert.late_ms)}` : null, alert.reason].filter(Boolean).join("; ");
  return alert.run_id ? html`<a class="clamp" title=${text} href=${runLink(alert.run_id)}>${text || "its run"}</a>` : html`<span class="clamp" title=${text}>${text}</span>`;
}

function told(alert) {
  const channels = Object.entries(alert.told || {});
  if (!channels.length) return html`<span class="quiet">${alert.to?.length ? "not yet" : "nobody"}</span>`;
  return channels.map(([name, problem]) => html`<span class=${problem ? "bad" : ""} title=${problem || ""}>${name}${problem ? " (refused)" : ""}</span> `);
}

function Failed({ runs }) {
  if (!runs) return null;
  return html`<${Section} title="Failed last" aside=${html`<a href="#/dead">Dead letters</a>`}>
    ${runs.items.length ? html`<${RunTable} items=${runs.items} withJob=${true} />` : html`<${Empty}>Nothing has died in the last days.<//>`}<//>`;
}

function Lanes({ lanes, workers }) {
  const rows = Object.entries(lanes).map(([name, lane]) => ({ name, ...lane, retry: workers.lanes[name]?.retry_wait || 0, has: workers.items.filter((each) => each.lane === name).length }));
  const depth = Math.max(1, ...rows.map((row) => row.ready + row.queued));
  return html`<${Section} title="Lanes and workers">
    <${Table} caption="Lanes" items=${rows} keyOf=${(each) => each.name} columns=${[
      { name: "Lane", klass: "name", cell: (each) => each.name },
      { name: "Waiting", klass: "number", cell: (each) => html`${count(each.ready + each.queued)} <span class="depth" aria-hidden="true"><svg viewBox="0 0 100 8" preserveAspectRatio="none"><rect class="bar bar-waiting" width=${(100 * (each.ready + each.queued)) / depth} height="8" /></svg></span>` },
      { name: "Running", klass: "number", cell: (each) => count(each.running) },
      { name: "Retry wait", klass: "number", cell: (each) => count(each.retry) },
      { name: "Due in 5 min", klass: "number", cell: (each) => count(each.coming) },
      { name: "A run takes", klass: "number", cell: (each) => (each.mean_ms === null ? html`<span class="quiet">–</span>` : duration(each.mean_ms)) },
      { name: "Workers with runs", klass: "number", cell: (each) => html`${count(each.has)}${each.ready + each.queued > 0 && !each.has ? html` <span class="bad">none</span>` : null}` },
    ]} />
    ${workers.items.length ? html`<details><summary>${count(workers.items.length)} ${workers.items.length === 1 ? "worker holds" : "workers hold"} runs</summary><${Table} caption="Workers" items=${workers.items.slice(0, 50)} keyOf=${(each) => `${each.worker} ${each.lane}`} columns=${[
      { name: "Worker", klass: "name", cell: (each) => each.worker },
      { name: "Lane", cell: (each) => each.lane },
      { name: "Runs", klass: "number", cell: (each) => count(each.runs) },
      { name: "Oldest since", cell: (each) => html`<${Ago} at=${each.oldest_since} />` },
    ]} /></details>` : html`<p class="quiet">No worker holds a run just now.</p>`}
  <//>`;
}

function Owners({ slots }) {
  const now = useNow(5000);
  const away = (slot) => !slot.owner || now - ms(slot.said_at) > 20_000;
  return html`<${Section} title="Partitions and owners" aside=${slots.some(away) ? html`<span class="bad">${slots.filter(away).length} without an owner that speaks</span>` : html`<span class="quiet">all owned</span>`}><${Table} caption="Slots" items=${slots} keyOf=${(each) => each.slot} columns=${[
    { name: "Partitions", klass: "number", cell: (each) => each.partitions.join(" – ") },
    { name: "Owner", klass: "name", cell: (each) => each.owner || html`<span class="bad">nobody</span>` },
    { name: "Phase", cell: (each) => each.phase || "–" },
    { name: "Requests waiting", klass: "number", cell: (each) => (each.lag === undefined ? "–" : count(each.lag)) },
    { name: "Behind", klass: "number", cell: (each) => (each.late_ms === undefined ? "–" : html`<span class=${each.late_ms > 5000 ? "bad" : ""}>${duration(each.late_ms)}</span>`) },
    { name: "Since", cell: (each) => html`<${Instant} at=${each.since} />` },
    { name: "Said", cell: (each) => html`<${Ago} at=${each.said_at} />` },
  ]} /><//>`;
}
