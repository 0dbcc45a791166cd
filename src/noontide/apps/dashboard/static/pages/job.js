// Job: where it stands, its next times, what became of the last ones, and what can be done with it.
import { html, useEffect, useState } from "/assets/view.js";
import { address, call, get, jobPath, post } from "/assets/api.js";
import { Instants } from "/assets/charts.js";
import { useNow, useWatch } from "/assets/live.js";
import { Ago, Ask, Code, Empty, Failure, Instant, Section, State, Table, Waiting, mayChange, runLink, say } from "/assets/parts.js";
import { DECISIONS, meaning } from "/assets/words.js";
import { count, duration, inZone, ms, plainLength, viewerZone } from "/assets/times.js";
import { Pager, scheduleText, targetText } from "/assets/pages/jobs.js";

const TIMES = 20;

export function Job({ id, who }) {
  const { data: job, error, again } = useWatch(jobPath(id), { exact: true });
  const [ask, setAsk] = useState(null);
  if (!job) return html`<p class="crumbs"><a href="#/jobs">Jobs</a></p><h1>${id}</h1><${Waiting} error=${error} />`;
  const here = location.hash.split("?")[0];
  return html`<p class="crumbs"><a href="#/jobs">Jobs</a></p>
    <div class="head"><h1>${job.id}</h1> <${State} of=${job.state} />
      ${mayChange(who) ? html`<div class="buttons">
        <button type="button" onClick=${() => setAsk("trigger")}>Run now</button>
        ${job.state === "paused" ? html`<button type="button" class="primary" onClick=${() => setAsk("resume")}>Resume</button>`
          : html`<button type="button" onClick=${() => setAsk("pause")}>Pause</button>`}
        ${job.definition.schedule?.at || !job.definition.schedule ? null : html`<button type="button" onClick=${() => setAsk("backfill")}>Backfill</button>`}
        <a class="button" href=${`${here}/edit`}>Edit</a>
        <button type="button" class="danger" onClick=${() => setAsk("delete")}>Delete</button>
      </div>` : null}
    </div>
    <${Failure} error=${error} />
    ${job.definition.note ? html`<p class="note own-note">${job.definition.note}</p>` : null}
    ${job.reason && job.reason !== job.definition.note ? html`<p class="note"><strong>${job.state}</strong>: ${job.reason}</p>` : null}
    <${Facts} job=${job} />
    <${Next} job=${job} />
    <${Executions} job=${job} here=${here} />
    <${Section} title="Definition"><${Code} value=${job.definition} /><//>
    <${Action} ask=${ask} job=${job} close=${() => setAsk(null)} again=${again} />`;
}

function Facts({ job }) {
  const zone = job.definition.timezone || "UTC";
  const labels = Object.entries(job.definition.labels || {});
  return html`<dl class="facts card">
    <div><dt>Schedule</dt><dd><code>${scheduleText(job.definition)}</code> <span class="quiet">${zone}</span></dd></div>
    <div><dt>Target</dt><dd>${targetText(job.definition.target)}</dd></div>
    <div><dt>Next due</dt><dd><${Instant} at=${job.next_due} zone=${zone} both=${true} ago=${true} /></dd></div>
    <div><dt>Last due</dt><dd><${Instant} at=${job.last_due} zone=${zone} both=${true} /></dd></div>
    <div><dt>Runs by its schedule</dt><dd>${count(job.runs)}</dd></div>
    <div><dt>Tenant</dt><dd>${job.tenant}</dd></div>
    <div><dt>Changed</dt><dd><${Ago} at=${job.updated_at} /></dd></div>
    ${labels.length ? html`<div><dt>Labels</dt><dd>${labels.map(([name, value]) => html`<span class="label">${name}=${value}</span> `)}</dd></div>` : null}
  </dl>`;
}

export const saidOf = (note) => note.replace(/\bPT?\d[\dA-Z.]*/, plainLength);
export const noteKind = (note) => (/spread/.test(note) ? "spread" : /left out/.test(note) ? "calendar" : "clock");

// 2026-03-29T02:30:00+02:00 -> 2026-03-29 02:30 Sun
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
function localText(local) {
  const day = WEEKDAYS[new Date(`${local.slice(0, 10)}T00:00:00Z`).getUTCDay()];
  return `${day} ${local.slice(0, 10)} ${local.slice(11, local.slice(17, 19) === "00" ? 16 : 19)}`;
}

// Notes that every time has (the job's spread) are said once; the others beside their time.
export function Times({ times, zone, named = true }) {
  if (!times.length) return html`<${Empty}>There are no times to come.<//>`;
  const common = times[0].notes.filter((note) => times.every((each) => each.notes.includes(note)));
  const said = common.filter((note) => named || noteKind(note) !== "spread");
  const own = (each) => each.notes.filter((note) => !common.includes(note));
  return html`${said.map((note) => html`<p class=${`mark mark-${noteKind(note)}`}>Each ${saidOf(note)}</p>`)}
  <${Table} caption="Next times" items=${times} keyOf=${(each) => each.due} columns=${[
    { name: `In ${zone}`, klass: "grow", cell: (each) => html`<time datetime=${each.due}>${localText(each.local)}</time> <span class="quiet">${each.local.slice(19).replace(/^\.\d+/, "")}</span>
      ${own(each).length ? html`<ul class="marks">${own(each).map((note) => html`<li class=${`mark mark-${noteKind(note)}`}>${saidOf(note)}</li>`)}</ul>` : null}` },
    ...(viewerZone === zone ? [] : [{ name: `Here (${viewerZone})`, cell: (each) => html`<${Instant} at=${each.due} />` }]),
    { name: "From now", cell: (each) => html`<${Ago} at=${each.due} />` },
  ]} />`;
}

function Next({ job }) {
  const { data, error } = useWatch(address(`${jobPath(job.id)}/next`, { count: TIMES }));
  const title = job.state === "paused" ? `Next ${TIMES} times, if it were not paused` : `Next ${TIMES} times`;
  return html`<${Section} title=${title}>
    ${data ? html`<${Line} found=${data} title=${title} /><div class="scroll" tabindex="0" role="region" aria-label=${title}><${Times} times=${data.times} zone=${data.timezone} /></div>` : html`<${Waiting} error=${error} />`}
  <//>`;
}

const FLAGS = { clock: "daylight saving moves it", calendar: "a calendar leaves something out before it" };

function Line({ found, title }) {
  const now = useNow(60_000);
  if (found.times.length < 2) return null;
  const flag = (each) => each.notes.map(noteKind).find((kind) => kind !== "spread") || "";
  const points = found.times.map((each) => ({ at: ms(each.due), kind: flag(each), label: [each.local.replace("T", " "), ...each.notes.filter((note) => noteKind(note) !== "spread").map(saidOf)].join("; ") }));
  const long = points[points.length - 1].at - now > 2 * 86_400_000;
  const short = points[points.length - 1].at - now < 600_000;
  const label = (at) => { const text = inZone(at, found.timezone, { seconds: true }); return long ? text.slice(0, 10) : short ? text.slice(11) : text.slice(5, 16); };
  const kinds = [...new Set(points.map((each) => each.kind).filter(Boolean))];
  return html`<${Instants} points=${points} from=${Math.min(now, points[0].at)} title=${title} label=${label} />
    ${kinds.length ? html`<p class="quiet legend-line">${kinds.map((kind) => html`<span><span class=${`dot flag-${kind}`} aria-hidden="true"></span>${FLAGS[kind]}</span>`)}</p>` : null}`;
}

function Executions({ job, here }) {
  const [trail, setTrail] = useState([null]);
  const cursor = trail[trail.length - 1];
  const zone = job.definition.timezone || "UTC";
  const live = useWatch(address("/v1/runs", { job: job.id, state: "pending,queued,running,retry_wait", limit: 20 }));
  const { data, error } = useWatch(address(`${jobPath(job.id)}/executions`, { limit: 20, cursor }));
  const now = cursor ? [] : live.data?.items || [];
  const items = [...now, ...(data?.items || [])];
  const why = html`<a href=${`${here}/why`}>Every due time, and why</a>`;
  return html`<${Section} title="Executions" aside=${why}>
    ${data ? null : html`<${Waiting} error=${error} />`}
    ${data && !items.length ? html`<${Empty}>Nothing has run yet.<//>` : null}
    ${items.length ? html`<${RunTable} items=${items} zone=${zone} />` : null}
    ${data?.older === "unreachable" ? html`<p class="quiet" role="status">Older executions cannot be read now: the history does not answer.</p>` : null}
    ${data ? html`<${Pager} trail=${trail} setTrail=${setTrail} next=${data.next_cursor} />` : null}
  <//>`;
}

export const lengthOf = (run) => {
  const began = run.started_at || run.granted_at;
  return began ? ms(run.ended_at || Date.now()) - ms(began) : null;
};

// What never ran has no page of its own.
const nameOf = (run, text) => (DECISIONS.has(run.state) ? text : html`<a href=${runLink(run.run_id)}>${text}</a>`);

export function RunTable({ items, zone, withJob, caption = "Runs" }) {
  useNow(items.some((run) => !run.ended_at) ? 1000 : 60_000);
  return html`<${Table} caption=${caption} items=${items} keyOf=${(run) => `${run.run_id} ${run.due} ${run.state} ${run.ended_at}`} columns=${[
    { name: withJob ? "Run" : "Due", klass: "name", cell: (run) => nameOf(run, withJob ? run.run_id : html`<${Instant} at=${run.due} zone=${zone} seconds=${true} />`) },
    { name: "State", klass: "half", cell: (run) => html`<${State} of=${run.state} />${run.count > 1 ? html` <span class="quiet">× ${run.count}</span>` : null}` },
    { name: "Late", klass: "number", cell: (run) => (run.late_ms === undefined ? html`<span class="quiet">–</span>` : html`<span class=${run.late_ms > 60_000 ? "bad" : ""}>${duration(run.late_ms)}</span>`) },
    { name: "Took", klass: "number", cell: (run) => (lengthOf(run) === null ? html`<span class="quiet">–</span>` : duration(lengthOf(run))) },
    { name: "Attempts", klass: "number", cell: (run) => run.attempt || 0 },
    { name: "What happened", klass: "grow", cell: (run) => (run.reason || lastError(run) ? html`<span class="clamp" title=${[meaning(run.reason), run.reason || lastError(run)].filter(Boolean).join(" ")}>${run.reason || lastError(run)}</span>` : null) },
  ]} />`;
}

const lastError = (run) => (run.state === "succeeded" ? null : run.attempts?.[run.attempts.length - 1]?.error);

function Action({ ask, job, close, again }) {
  const [preview, setPreview] = useState(null);
  useEffect(() => {
    setPreview(null);
    if (ask === "resume") get(`${jobPath(job.id)}/next`, { count: 1 }).then(setPreview, () => null);
  }, [ask]);
  const path = jobPath(job.id);
  if (ask === "trigger") {
    const key = crypto.randomUUID?.() || String(Math.random()).slice(2);
    const act = async (form) => {
      const said = { ...(form.get("reason") ? { reason: form.get("reason") } : {}) };
      const found = await post(`${path}/trigger`, said, { "idempotency-key": key });
      say(`Started: ${found.run_id}`);
      if (found.run_id) location.hash = runLink(found.run_id);
    };
    return html`<${Ask} title=${`Run ${job.id} now?`} action="Run now" act=${act} close=${close}>
      <p>It runs once, besides its schedule.</p><label>Reason (optional)<input name="reason" maxlength="200" /></label><//>`;
  }
  if (ask === "pause" || ask === "resume") {
    const act = async (form) => {
      const note = form.get("note").trim();
      await post(`${path}/${ask}`, note ? { note } : ask === "resume" ? { note: null } : {});
      say(ask === "pause" ? `${job.id} is paused` : `${job.id} goes on`);
      again();
    };
    return html`<${Ask} title=${`${ask === "pause" ? "Pause" : "Resume"} ${job.id}?`} action=${ask === "pause" ? "Pause" : "Resume"} act=${act} close=${close}>
      <p>${ask === "pause" ? "Times that pass meanwhile are not missed: nobody catches them up. What runs now is finished." : preview ? `Its next time is then ${preview.times[0]?.local.replace("T", " ") || "none"}.` : "It goes on at its next time."}</p>
      <label>Note (why)<textarea name="note" rows="3" maxlength="2000" class="prose" defaultValue=${ask === "pause" ? job.definition.note || "" : ""}></textarea></label><//>`;
  }
  if (ask === "backfill") return html`<${Backfill} job=${job} close=${close} again=${again} />`;
  if (ask === "delete") {
    const act = async (form) => {
      if (form.get("name") !== job.id) throw new Error(`write ${job.id} to delete it`);
      await call("DELETE", path, { headers: { "if-match": `"${job.etag}"` } });
      say(`${job.id} is deleted`);
      location.hash = "#/jobs";
    };
    return html`<${Ask} title=${`Delete ${job.id}?`} action="Delete" danger=${true} act=${act} close=${close}>
      <p>No new run is started; what has run stays in the history. This cannot be undone.</p>
      <label>Write its id to confirm<input name="name" required autocomplete="off" spellcheck=${false} /></label><//>`;
  }
  return null;
}

// First what would be made, then the same question in earnest.
function Backfill({ job, close, again }) {
  const [looked, setLooked] = useState(null); // {said, asked} of the dry run
  const instant = (text) => new Date(text).toISOString();
  const act = async (form) => {
    const asked = {
      from: instant(form.get("from")), to: instant(form.get("to")),
      ...(form.get("reprocess") ? { reprocess: true } : {}),
    };
    const same = looked && JSON.stringify(looked.asked) === JSON.stringify(asked);
    const said = await post(`${jobPath(job.id)}/backfill`, { ...asked, dry_run: !same });
    if (!same) {
      setLooked({ said, asked });
      return false;
    }
    say(`${said.runs} ${said.runs === 1 ? "run is" : "runs are"} being made`);
    again();
    return true;
  };
  const forget = () => setLooked(null);
  const count = looked ? `${looked.said.runs} ${looked.said.runs === 1 ? "run" : "runs"}` : "";
  return html`<${Ask} title=${`Backfill ${job.id}`} action=${looked ? `Make ${count}` : "Look first"} act=${act} close=${close}>
    <p>Makes the runs of times that passed without one, in the order of their due times.</p>
    <div class="pair"><label>From<input type="datetime-local" name="from" required onInput=${forget} /></label>
      <label>To, not included<input type="datetime-local" name="to" required onInput=${forget} /></label></div>
    <p class="quiet">In your time, ${viewerZone}.</p>
    <label class="check"><input type="checkbox" name="reprocess" onInput=${forget} /> also what ran or was decided before</label>
    <div aria-live="polite">${looked ? html`<p class="note own-note">${count} would be made${looked.said.skipped ? `; ${looked.said.skipped} skipped, dealt with before` : ""}. Nothing is made yet.</p>` : null}</div><//>`;
}
