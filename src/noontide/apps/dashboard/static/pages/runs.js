// Runs: those that live, then those that ended last.
import { html, useState } from "/assets/view.js";
import { address } from "/assets/api.js";
import { useWatch } from "/assets/live.js";
import { Empty, Section, Waiting } from "/assets/parts.js";
import { Pager } from "/assets/pages/jobs.js";
import { RunTable } from "/assets/pages/job.js";

const LIVE = "pending,queued,running,retry_wait";
const ENDED = "succeeded,dead,cancelled";
const CHOICES = [["", "all"], [LIVE, "live"], ["running", "running"], ["retry_wait", "waiting for a retry"], ["dead", "dead"], ["succeeded", "succeeded"], ["cancelled", "cancelled"]];
const PAGE = 25;
const FEW = 10; // live ones above those that ended

export function Runs({ query }) {
  const [state, setState] = useState(query.get("state") || "");
  const [job, setJob] = useState(query.get("job") || "");
  const set = (change) => (event) => change(event.target.value.trim());
  return html`<div class="head"><h1>Runs</h1></div>
    <form class="filters few" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>State<select value=${state} onChange=${set(setState)}>${CHOICES.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select></label>
      <label class="wide">Job<input value=${job} onChange=${set(setJob)} placeholder="its whole id" maxlength="200" /></label>
    </form>
    ${state ? html`<${Listed} key=${`${state} ${job}`} state=${state} job=${job} />` : html`<${Live} job=${job} all=${() => setState(LIVE)} />
      <h2 class="apart">Ended last</h2><${Listed} key=${job} state=${ENDED} job=${job} />`}`;
}

function Live({ job, all }) {
  const { data, error } = useWatch(address("/v1/runs", { state: LIVE, job, limit: FEW }));
  if (!data) return html`<${Waiting} error=${error} />`;
  const more = data.next_cursor ? html`<button type="button" class="small" onClick=${all}>All that live</button>` : null;
  return html`<${Section} title="Live now" aside=${more}>
    ${data.items.length ? html`<${RunTable} items=${data.items} withJob=${true} caption="Live runs" />` : html`<p class="quiet">No run is under way.</p>`}<//>`;
}

function Listed({ state, job }) {
  const [trail, setTrail] = useState([null]);
  const { data, error, fresh } = useWatch(address("/v1/runs", { state, job, limit: PAGE, cursor: trail[trail.length - 1] }));
  return html`${error || !data ? html`<${Waiting} error=${error} />` : null}
    ${data && !data.items.length ? html`<${Empty}>${data.next_cursor ? "None on this page; there is more." : "No run is like that."}<//>` : null}
    ${data?.items.length ? html`<div class=${`list ${fresh ? "" : "stale"}`}><${RunTable} items=${data.items} withJob=${true} /></div>` : null}
    ${data ? html`<${Pager} trail=${trail} setTrail=${setTrail} next=${data.next_cursor} />` : null}`;
}
