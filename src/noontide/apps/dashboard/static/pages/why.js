// Why: every due time of a job in a range, what was decided about it, and why.
import { html, useState } from "/assets/view.js";
import { get, jobPath } from "/assets/api.js";
import { useAsked } from "/assets/live.js";
import { Empty, Instant, State, Table, Waiting, jobLink, runLink } from "/assets/parts.js";
import { DECISIONS, STATES, meaning, whyLate } from "/assets/words.js";
import { noteKind, saidOf } from "/assets/pages/job.js";
import { duration } from "/assets/times.js";

const RANGES = { "1": "hour", "24": "day", "168": "week" };
const TO_COME = 3;
const HOUR_MS = 3_600_000;

function explained(item) {
  const said = meaning(item.reason) || STATES[item.state] || "";
  const late = item.run_id && item.state !== "planned" ? whyLate(item) : null;
  const span = item.count > 1 ? ` ${item.count} occurrences, until ${item.until}.` : "";
  return html`${said}${span}${item.reason ? html` <code>${item.reason}</code>` : null}${late?.text ? html` <span class=${late.late > 60_000 ? "bad" : "quiet"}>Late by ${duration(late.late)}: ${late.text}.</span>` : null}
    ${(item.notes || []).map((note) => html`<span class=${`mark mark-${noteKind(note)}`}>${saidOf(note)}</span> `)}`;
}

export function Why({ id }) {
  const [hours, setHours] = useState("24");
  const job = useAsked((signal) => get(jobPath(id), {}, signal), 0, [id]);
  const { data, error } = useAsked((signal) => {
    const now = Date.now();
    const at = (away) => new Date(now + away).toISOString();
    return get(`${jobPath(id)}/occurrences`, { from: at(-Number(hours) * HOUR_MS), to: at(HOUR_MS) }, signal);
  }, 5000, [id, hours]);
  const zone = job.data?.definition.timezone || "UTC";
  const all = data ? data.items.toReversed() : [];
  const to_come = all.filter((item) => item.state === "planned").length;
  const items = all.slice(Math.max(0, to_come - TO_COME)); // the nearest of those to come
  return html`<p class="crumbs"><a href="#/jobs">Jobs</a> · <a href=${jobLink(id)}>${id}</a></p>
    <div class="head"><h1>Why: ${id}</h1>
      <label class="inline">Last <select value=${hours} onChange=${(event) => setHours(event.target.value)}>${Object.entries(RANGES).map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select> and the next hour</label></div>
    ${data ? null : html`<${Waiting} error=${error} />`}
    ${data?.truncated ? html`<p class="quiet">There are more than fit; choose a shorter time.</p>` : null}
    ${data?.older === "unreachable" ? html`<p class="quiet" role="status">The history does not answer now: what is unrecorded may be recorded there.</p>` : null}
    ${data && !items.length ? html`<${Empty}>Nothing was due.<//>` : null}
    ${to_come > TO_COME ? html`<p class="quiet">${to_come} times are to come in the next hour; the nearest ${TO_COME} are shown.</p>` : null}
    ${items.length ? html`<div class="list occurrences"><${Table} caption="Occurrences" items=${items} keyOf=${(item) => `${item.due} ${item.run_id} ${item.state}`} columns=${[
      { name: `Due (${zone})`, klass: "name", cell: (item) => (item.run_id && !DECISIONS.has(item.state) ? html`<a href=${runLink(item.run_id)}><${Instant} at=${item.due} zone=${zone} seconds=${true} /></a>` : html`<${Instant} at=${item.due} zone=${zone} seconds=${true} />`) },
      { name: "Outcome", cell: (item) => html`<${State} of=${item.state} />` },
      { name: "Why", klass: "grow", cell: explained },
    ]} /></div>` : null}`;
}
