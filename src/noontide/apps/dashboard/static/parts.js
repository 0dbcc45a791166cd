// Small parts that the pages share.
import { html, useEffect, useRef, useState } from "/assets/view.js";
import { STATES } from "/assets/words.js";
import { useNow } from "/assets/live.js";
import { inZone, knowsZone, relative, viewerZone } from "/assets/times.js";

export const jobLink = (id) => `#/jobs/${encodeURIComponent(id)}`;
export const runLink = (id) => `#/runs/${encodeURIComponent(id)}`;
// `who.role` and `who.tenants` come from /v1/me; the API decides, the page only does not offer what it would refuse.
export const mayChange = (who) => who.role !== "viewer";
export const isEverywhere = (who) => who.tenants.includes("*");

export const State = ({ of }) => html`<span class="state state-${String(of)}" title=${STATES[of] || ""}>${String(of).replace("_", " ")}</span>`;

// An instant in a zone, and in the viewer's own when that is another.
export function Instant({ at, zone, seconds, both, ago }) {
  const now = useNow(ago ? 1000 : 60_000);
  if (!at) return html`<span class="quiet">–</span>`;
  const shown = zone && knowsZone(zone) ? zone : zone ? "UTC" : viewerZone;
  const own = both && shown !== viewerZone ? inZone(at, viewerZone, { seconds }) : null;
  const under = [own && own !== inZone(at, shown, { seconds }) ? `${own} here` : null, ago ? relative(at, now) : null].filter(Boolean);
  return html`<span class="instant">
    <time datetime=${at} title=${`${at} · ${shown}`}>${inZone(at, shown, { seconds })}</time>
    ${zone && both ? html` <span class="quiet zone">${shown}</span>` : null}
    ${under.length ? html`<span class="own quiet">${under.join(" · ")}</span>` : null}
  </span>`;
}

export function Ago({ at }) {
  const now = useNow();
  return at ? html`<time datetime=${at} title=${`${inZone(at)} ${viewerZone}`}>${relative(at, now)}</time>` : html`<span class="quiet">–</span>`;
}

export function Failure({ error }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <strong>${error.status === 403 ? "Not for you" : error.status === 404 ? "Not there" : "That did not work"}</strong>
    <span>${error.message}</span>
    ${error.errors?.length > 1 ? html`<ul>${error.errors.map((each) => html`<li><code>${each.pointer}</code> ${each.message}</li>`)}</ul>` : null}
  </div>`;
}

// What a page shows while it has nothing to show yet.
export const Waiting = ({ error }) => (error ? html`<${Failure} error=${error} />` : html`<p class="quiet" aria-busy="true">Loading…</p>`);
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

// columns: [{name, cell(item), klass}]. On narrow screens each row is a card, whose cells say their column.
export function Table({ caption, columns, items, keyOf }) {
  return html`<table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map((each) => html`<th scope="col" class=${each.klass || ""}>${each.name}</th>`)}</tr></thead>
    <tbody>${items.map((item) => html`<tr key=${keyOf(item)}>
      ${columns.map((each) => html`<td class=${each.klass || ""} data-label=${each.name}><div class="cell">${each.cell(item)}</div></td>`)}
    </tr>`)}</tbody>
  </table>`;
}

export function Section({ title, children, aside }) {
  return html`<section><header><h2>${title}</h2>${aside || null}</header>${children}</section>`;
}

// A question before something is done; the children are more of its form. act(data) may throw a Problem, which is shown, or
// answer false: then there is more to ask.
export function Ask({ title, action, danger, act, close, children }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const shown = dialog.current;
    shown.showModal();
    return () => shown.close(); // the focus goes back to where it was
  }, []);
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const done = await act(new FormData(event.target));
      setBusy(false);
      if (done !== false) close();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  }
  return html`<dialog ref=${dialog} aria-labelledby="ask-title" onClose=${close}>
    <form onSubmit=${submit}>
      <h2 id="ask-title">${title}</h2>
      ${children}
      <${Failure} error=${error} />
      <div class="buttons">
        <button type="button" onClick=${close}>Not now</button>
        <button class=${danger ? "danger" : "primary"} disabled=${busy}>${action}</button>
      </div>
    </form>
  </dialog>`;
}

export const say = (text) => window.dispatchEvent(new CustomEvent("noontide:said", { detail: text }));

export const Code = ({ value }) => html`<pre tabindex="0" role="region" aria-label="JSON"><code>${JSON.stringify(value, null, 2)}</code></pre>`;
