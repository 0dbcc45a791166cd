// Tenants: what each may use, and what it uses now.
import { html } from "/assets/view.js";
import { get } from "/assets/api.js";
import { useAsked } from "/assets/live.js";
import { count } from "/assets/times.js";
import { Code, Section, Table, Waiting, isEverywhere } from "/assets/parts.js";

const MOST = 100;

export function Tenants({ who }) {
  const all = isEverywhere(who);
  const { data, error } = useAsked(async (signal) => {
    const found = all ? (await get("/v1/tenants", {}, signal)).items : [];
    const known = new Map(found.map((each) => [each.name, each.value]));
    for (const name of all ? ["default"] : who.tenants) if (!known.has(name)) known.set(name, {});
    const names = [...known.keys()].toSorted().slice(0, MOST);
    const tenants = [];
    for (const name of names) {
      tenants.push({ name, value: known.get(name), share: await get(`/v1/tenants/${encodeURIComponent(name)}/share`, {}, signal) });
    }
    return { tenants, more: known.size > MOST };
  }, 15_000, []);
  if (!data) return html`<h1>Tenants</h1><${Waiting} error=${error} />`;
  return html`<div class="head"><h1>Tenants</h1></div>
    <p class="quiet">What is configured for each, and what it has of it now.${data.more ? ` The first ${MOST} by name.` : ""}</p>
    ${data.tenants.map((each) => html`<${Tenant} key=${each.name} ...${each} />`)}`;
}

function Tenant({ name, value, share }) {
  const settings = Object.entries(value);
  const bound = (each) => [each.concurrency_max === null ? null : `${each.concurrency_max} at once`, each.starts_per_second_max === null ? null : `${each.starts_per_second_max} starts/s`].filter(Boolean).join(", ") || "none";
  return html`<${Section} title=${name} aside=${html`<a href=${`#/jobs?tenant=${encodeURIComponent(name)}`} aria-label=${`Jobs of ${name}`}>its jobs</a>`}>
    <dl class="facts"><div><dt>weight</dt><dd>${share.weight}</dd></div>
      ${settings.filter(([key]) => key !== "weight").map(([key, each]) => html`<div><dt>${key.replaceAll("_", " ")}</dt><dd>${typeof each === "object" ? html`<${Code} value=${each} />` : String(each)}</dd></div>`)}</dl>
    ${share.limiters.length ? html`<${Table} caption=${`Limits of ${name}`} items=${share.limiters} keyOf=${(each) => each.limiter} columns=${[
      { name: "Limit", klass: "name", cell: (each) => each.limiter },
      { name: "At most", cell: bound },
      ...["given", "running", "waiting"].map((column) => ({ name: column[0].toUpperCase() + column.slice(1), klass: "number", cell: (each) => count(each[column]) })),
    ]} />` : null}
    ${share.lanes.length ? html`<${Table} caption=${`Runs of ${name} by lane`} items=${share.lanes} keyOf=${(each) => each.lane} columns=${[
      { name: "Lane", klass: "name", cell: (each) => each.lane },
      ...["ready", "queued", "running", "waiting"].map((column) => ({ name: column[0].toUpperCase() + column.slice(1), klass: "number", cell: (each) => count(each[column]) })),
    ]} />` : html`<p class="quiet">No run is under way.</p>`}
  <//>`;
}
