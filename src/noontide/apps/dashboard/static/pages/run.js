// Run: its whole story as a timeline, why it was late, what it was given and brought back, and what can be done about it.
import { html, useEffect, useState } from "/assets/view.js";
import { call, parse, post, runPath } from "/assets/api.js";
import { Phases } from "/assets/charts.js";
import { useNow, useWatch } from "/assets/live.js";
import { Ask, Code, Failure, Instant, Section, State, Waiting, jobLink, mayChange, runLink, say } from "/assets/parts.js";
import { STATES, meaning, phases, whyLate } from "/assets/words.js";
import { clock, duration, inZone, ms, viewerZone } from "/assets/times.js";

const LIVE = new Set(["pending", "queued", "running", "retry_wait"]);
const WORKING_ON = { pending: "waits in its lane", queued: "offered to workers" };

// The reason of an end, without the error of the last attempt, which is said there.
function newOf(run) {
  const error = run.attempts?.[run.attempts.length - 1]?.error;
  return error && run.reason?.endsWith(`: ${error}`) ? run.reason.slice(0, -error.length - 2) : run.reason || "";
}

// The story: [{at, what, more, kind}] in the order of time.
function storyOf(run, now) {
  const found = [];
  const add = (at, what, kind, more) => at && found.push({ at: ms(at), what, kind, more });
  add(run.due, "due", "planned");
  if (run.start_after && run.start_after !== run.due) add(run.start_after, "may start", "planned", "the job's own spread");
  // A run by hand is due when the broker has its request, and claimed by the scheduler's clock: some ms may lie between them.
  add(run.claimed_at && ms(run.claimed_at) < ms(run.due) ? run.due : run.claimed_at, "claimed by a scheduler", "waiting");
  const queued = (at, attempt) => add(at || null, "queued", "waiting", [attempt > 1 && `attempt ${attempt}`, run.lane && `lane ${run.lane}`].filter(Boolean).join(", "));
  for (const each of run.attempts || []) {
    queued(each.queued, each.attempt);
    add(each.granted, `attempt ${each.attempt} leased`, "running", each.worker ? `to ${each.worker}` : "");
    add(each.ended, `attempt ${each.attempt} failed`, "failed", [each.reason === "failed" ? null : each.reason, each.error].filter(Boolean).join(": "));
  }
  const told = new Set((run.attempts || []).map((each) => each.attempt));
  const started = run.started_at || run.granted_at;
  const latest = run.state === "queued" ? (run.attempt || 0) + 1 : run.attempt;
  if (!told.has(latest)) queued(run.queued_at, latest);
  if (started && !told.has(run.attempt)) add(started, `attempt ${run.attempt} leased`, "running", run.worker ? `to ${run.worker}` : "");
  if (WORKING_ON[run.state]) add(now, WORKING_ON[run.state], "waiting", run.reason || (run.lane ? `lane ${run.lane}` : ""));
  if (run.lease) {
    add(now - run.lease.heard_ago_ms, "last heartbeat", "running", `it has ${duration(run.lease.left_ms)} more before it counts as lost`);
  }
  if (run.not_before && run.state === "retry_wait") add(run.not_before, "next attempt", "planned", "after its backoff");
  if (run.ended_at) add(run.ended_at, run.state, run.state, newOf(run));
  return found.toSorted((one, other) => one.at - other.at);
}

function Story({ run }) {
  const now = useNow();
  const story = storyOf(run, now);
  const from = story[0]?.at ?? 0;
  const day = (at) => inZone(at).slice(0, 10);
  return html`<ol class="story">${story.map((each, place) => html`<li class=${`step step-${each.kind}`}>
    <time datetime=${new Date(each.at).toISOString()} title=${inZone(each.at, viewerZone, { seconds: true })}>${place && day(story[place - 1].at) !== day(each.at) ? `${day(each.at).slice(5)} ` : ""}${clock(each.at)}</time>
    <span class="quiet offset">${each.at > now + 500 ? "to come" : place ? `+${duration(each.at - from)}` : ""}</span>
    <span><strong>${each.what}</strong>${each.more ? html` <span class="detail">${each.more}</span>` : null}</span></li>`)}
  </ol>`;
}

export function Run({ id, who }) {
  const { data: run, error, again } = useWatch(runPath(id));
  const [ask, setAsk] = useState(null);
  const now = useNow();
  if (!run) return html`<p class="crumbs"><a href="#/runs">Runs</a></p><h1>${id}</h1><${Waiting} error=${error} />`;
  const live = LIVE.has(run.state);
  const late = whyLate(run, now);
  const all = phases(run, now);
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
    <p class="lead">${STATES[run.state] || ""} ${meaning(run.reason) || ""}${run.reason ? html` <code class="clamp">${run.reason}</code>` : null}</p>
    ${late ? html`<p class=${`note late ${late.late > 60_000 ? "bad-note" : ""}`}><strong>${live && run.state !== "running" ? "Waiting for" : "Late by"} ${duration(late.late)}</strong>${late.text ? `: ${late.text}` : ""}.</p>` : null}
    <${Section} title="Where the time went">
      ${all.length ? html`<${Phases} phases=${all} />
      <ul class="legend">${all.map((each) => html`<li><span class=${`dot bar-${each.kind}`} aria-hidden="true"></span><strong>${duration(each.to - each.from)}</strong> ${each.what}</li>`)}</ul>` : html`<p class="quiet">It is still to come.</p>`}
    <//>
    <${Section} title="Story" aside=${html`<span class="quiet">${viewerZone}, since due ${inZone(run.due, viewerZone, { seconds: true })}</span>`}><${Story} run=${run} /><//>
    <${Content} run=${run} live=${live} />
    <dl class="facts card">
      <div><dt>Due</dt><dd><${Instant} at=${run.due} zone=${viewerZone} seconds=${true} both=${true} /></dd></div>
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

// Asked for once per state: the result is looked up on a topic, which takes the API a moment.
function useContent(run) {
  const [found, setFound] = useState({ content: null, error: null });
  useEffect(() => {
    const abort = new AbortController();
    call("GET", `${runPath(run.run_id)}/content`, { signal: abort.signal, text: true }).then(
      (text) => setFound({ content: parse(text), error: null }),
      (error) => abort.signal.aborted || setFound((known) => ({ ...known, error })),
    );
    return () => abort.abort();
  }, [run.run_id, run.state, run.ended_at]);
  return found;
}

function Content({ run, live }) {
  const { content, error } = useContent(run);
  const hidden = content?.hidden?.length || 0;
  const aside = hidden ? html`<span class="quiet" title=${content.hidden.join("\n")}>${hidden} ${hidden === 1 ? "value is" : "values are"} hidden, by name</span>` : null;
  return html`<${Section} title="Payload and response" aside=${aside}>
    ${content ? html`<div class="content">
      <div><h3>Given</h3>${content.payload_of === null ? html`<p class="quiet">The job is gone, and its payload with it.</p>` : "payload" in content ? html`<${Code} value=${content.payload} />` : html`<p class="quiet">No payload.</p>`}
        ${content.payload_of === "job" ? html`<p class="quiet">Of the job as it is now; what this run was given is not kept.</p>` : null}</div>
      <div><h3>Brought back</h3>${"result" in content ? html`<${Code} value=${content.result} />` : html`<p class="quiet">${content.error ? "" : live ? "It has not ended." : !content.looked_up ? "It cannot be looked up just now." : run.started_at || run.granted_at ? "Nothing is kept." : "It went to a topic, or never began: there is no response."}</p>`}
        ${content.error ? html`<p class="failure">${content.error}</p>` : null}${content.truncated ? html`<p class="quiet">It was too large to be kept whole.</p>` : null}</div>
    </div>` : html`<${Waiting} error=${error} />`}
  <//>`;
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
