// Run: its whole story as a timeline, why it was late, and what can be done about it.
import { html, useState } from "/assets/view.js";
import { get, post, runPath } from "/assets/api.js";
import { Phases } from "/assets/charts.js";
import { useLive } from "/assets/live.js";
import { Ask, Code, Failure, Section, State, Waiting, jobLink, mayChange, runLink, say } from "/assets/parts.js";
import { STATES, meaning, phases, whyLate } from "/assets/words.js";
import { clock, duration, inZone, ms, viewerZone } from "/assets/times.js";

const LIVE = new Set(["pending", "queued", "running", "retry_wait"]);

// The story: [{at, what, more, kind}] in the order of time.
function storyOf(run) {
  const found = [];
  const add = (at, what, kind, more) => at && found.push({ at: ms(at), what, kind, more });
  add(run.due, "due", "planned");
  if (run.start_after && run.start_after !== run.due) add(run.start_after, "may start", "planned", "the job's own spread");
  add(run.claimed_at, "claimed by a scheduler", "waiting");
  for (const each of run.attempts || []) {
    add(each.granted, `attempt ${each.attempt} began`, "running", each.worker ? `on ${each.worker}` : "");
    add(each.ended, `attempt ${each.attempt} failed`, "failed", [each.reason === "failed" ? null : each.reason, each.error].filter(Boolean).join(": "));
  }
  const told = new Set((run.attempts || []).map((each) => each.attempt));
  const started = run.started_at || run.granted_at;
  if (started && !told.has(run.attempt)) add(started, `attempt ${run.attempt} began`, "running", run.worker ? `on ${run.worker}` : "");
  if (run.not_before && run.state === "retry_wait") add(run.not_before, "next attempt", "planned", "after its backoff");
  if (run.ended_at) add(run.ended_at, run.state, run.state, run.reason || "");
  return found.toSorted((one, other) => one.at - other.at);
}

function Story({ run }) {
  const story = storyOf(run);
  const from = story[0]?.at ?? 0;
  return html`<ol class="story">${story.map((each) => html`<li class=${`step step-${each.kind}`}>
    <time datetime=${new Date(each.at).toISOString()} title=${inZone(each.at, viewerZone, { seconds: true })}>${clock(each.at)}</time>
    <span class="quiet offset">${each.at > Date.now() + 500 ? "to come" : `+${duration(each.at - from)}`}</span>
    <span><strong>${each.what}</strong>${each.more ? html` <span class="detail">${each.more}</span>` : null}</span></li>`)}
  </ol>`;
}

export function Run({ id, who }) {
  const { data: run, error, again } = useLive((signal) => get(runPath(id), {}, signal), 1000, [id]);
  const [ask, setAsk] = useState(null);
  if (!run) return html`<h1>${id}</h1><${Waiting} error=${error} />`;
  const live = LIVE.has(run.state);
  const late = whyLate(run);
  const all = phases(run);
  const earlier = (run.ends || []).slice(live ? 0 : 1);
  return html`<p class="crumbs"><a href="#/runs">Runs</a> · <a href=${jobLink(run.job_id)}>${run.job_id}</a></p>
    <div class="head"><h1>${run.run_id}</h1> <${State} of=${run.state} />
      ${mayChange(who) ? html`<div class="buttons">
        ${live ? html`<button type="button" class="danger" disabled=${Boolean(run.cancel_requested)} onClick=${() => setAsk("cancel")}>${run.cancel_requested ? "Being cancelled" : "Cancel"}</button>` : null}
        ${run.state === "dead" || run.state === "retry_wait" ? html`<button type="button" class="primary" onClick=${() => setAsk("retry")}>${run.state === "dead" ? "Start again" : "Try now"}</button>` : null}
        ${!live && run.state !== "dead" ? html`<button type="button" onClick=${() => setAsk("rerun")}>Run the job again</button>` : null}
      </div>` : null}
    </div>
    <${Failure} error=${error} />
    <p class="lead">${STATES[run.state] || ""} ${meaning(run.reason) || ""}${run.reason ? html` <code>${run.reason}</code>` : null}</p>
    ${late ? html`<p class=${`note late ${late.late > 60_000 ? "bad-note" : ""}`}><strong>${live && run.state !== "running" ? "Waiting for" : "Late by"} ${duration(late.late)}</strong>${late.text ? `: ${late.text}` : ""}.</p>` : null}
    <${Section} title="Where the time went">
      ${all.length ? html`<${Phases} phases=${all} lengthOf=${duration} />
      <ul class="legend">${all.map((each) => html`<li><span class=${`dot bar-${each.kind}`} aria-hidden="true"></span>${duration(each.to - each.from)} ${each.what}</li>`)}</ul>` : html`<p class="quiet">It is still to come.</p>`}
    <//>
    <${Section} title="Story" aside=${html`<span class="quiet">${viewerZone}, since due ${inZone(run.due, viewerZone, { seconds: true })}</span>`}><${Story} run=${run} /><//>
    <dl class="facts">
      <div><dt>Target</dt><dd>${run.target || "–"}</dd></div>
      ${run.lane ? html`<div><dt>Lane</dt><dd>${run.lane}</dd></div>` : null}
      <div><dt>Worker</dt><dd>${run.worker || "–"}</dd></div>
      <div><dt>Attempt</dt><dd>${run.attempt || 0}</dd></div>
      <div><dt>Fencing token</dt><dd>${run.token || "–"}</dd></div>
      <div><dt>Tenant</dt><dd>${run.tenant}</dd></div>
      ${run.waits_for ? html`<div><dt>Waits for</dt><dd><a href=${runLink(run.waits_for)}>${run.waits_for}</a></dd></div>` : null}
    </dl>
    ${earlier.length ? html`<${Section} title="Earlier ends">${earlier.map((end) => html`<details><summary><${State} of=${end.state} /> ${inZone(end.ended_at, viewerZone, { seconds: true })} ${end.reason || ""}</summary><${Story} run=${end} /></details>`)}<//>` : null}
    <details><summary>As the API gives it</summary><${Code} value=${run} /></details>
    <${Action} ask=${ask} run=${run} close=${() => setAsk(null)} again=${again} />`;
}

function Action({ ask, run, close, again }) {
  const path = runPath(run.run_id);
  if (ask === "cancel") {
    const act = async (form) => {
      await post(`${path}/cancel`, form.get("reason") ? { reason: form.get("reason") } : {});
      say("Asked to stop");
      again();
    };
    return html`<${Ask} title="Cancel this run?" action="Cancel the run" danger=${true} act=${act} close=${close}>
      <p>A worker that has it is asked to stop, and loses it after a grace.</p><label>Reason (optional)<input name="reason" maxlength="200" /></label><//>`;
  }
  if (ask === "retry") {
    const act = async () => {
      await post(`${path}/retry`);
      say("Started again");
      again();
    };
    return html`<${Ask} title="Start this run again?" action="Start again" act=${act} close=${close}>
      <p>${run.state === "dead" ? "Under its own id, with the definition it had." : "It waits no longer for its backoff."}</p><//>`;
  }
  if (ask === "rerun") {
    const act = async () => {
      const found = await post(`/v1/jobs/${encodeURIComponent(run.job_id)}/trigger`, { reason: `again, after ${run.run_id}`.slice(0, 200) });
      say(`Started: ${found.run_id}`);
      location.hash = runLink(found.run_id);
    };
    return html`<${Ask} title=${`Run ${run.job_id} again?`} action="Run now" act=${act} close=${close}><p>It runs once, now, with the job as it is today.</p><//>`;
  }
  return null;
}
