// Runs: those that live and those that ended last.
import { html, useState } from "/assets/view.js";
import { address } from "/assets/api.js";
import { useWatch } from "/assets/live.js";
import { Empty, Waiting } from "/assets/parts.js";
import { Pager } from "/assets/pages/jobs.js";
import { RunTable } from "/assets/pages/job.js";

const CHOICES = [["", "all"], ["pending,queued,running,retry_wait", "live"], ["running", "running"], ["retry_wait", "waiting for a retry"], ["dead", "dead"], ["succeeded", "succeeded"], ["cancelled", "cancelled"]];

export function Runs({ query }) {
  const [state, setState] = useState(query.get("state") || "");
  const [job, setJob] = useState(query.get("job") || "");
  const [trail, setTrail] = useState([null]);
  const cursor = trail[trail.length - 1];
  const { data, error, fresh } = useWatch(address("/v1/runs", { state, job: job.trim(), limit: 25, cursor }));
  const change = (set) => (event) => { set(event.target.value); setTrail([null]); };
  return html`<div class="head"><h1>Runs</h1></div>
    <form class="filters few" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>State<select value=${state} onChange=${change(setState)}>${CHOICES.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select></label>
      <label class="wide">Job<input value=${job} onChange=${change(setJob)} placeholder="its whole id" maxlength="200" /></label>
    </form>
    ${error || !data ? html`<${Waiting} error=${error} />` : null}
    ${data && !data.items.length ? html`<${Empty}>${data.next_cursor ? "None on this page; there is more." : state || job ? "No run is like that." : "Nothing has run yet."}<//>` : null}
    ${data?.items.length ? html`<div class=${`list ${fresh ? "" : "stale"}`}><${RunTable} items=${data.items} withJob=${true} /></div>` : null}
    ${data ? html`<${Pager} trail=${trail} setTrail=${setTrail} next=${data.next_cursor} />` : null}`;
}
