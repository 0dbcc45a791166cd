// New job, or a change of one: fields for the usual, JSON for the rest, the next times before anything is saved.
import { html, useEffect, useMemo, useRef, useState } from "/assets/view.js";
import { call, getJob, jobPath, parse, post } from "/assets/api.js";
import { Failure, Section, Waiting, isEverywhere, jobLink, say } from "/assets/parts.js";
import { viewerZone } from "/assets/times.js";
import { targetText } from "/assets/pages/jobs.js";
import { Times } from "/assets/pages/job.js";

const KINDS = { cron: "cron expression", every: "every (ISO 8601)", at: "once, at", other: "as in the JSON below" };
const EXAMPLES = { cron: "0 6 * * MON-FRI", every: "PT15M", at: "2027-01-04T06:00:00" };
const PREVIEW_AFTER_MS = 350;
const zones = [...new Set(["UTC", ...(Intl.supportedValuesOf?.("timeZone") || [])])];

// The fields of the form, and what is left of a definition, as text.
function formOf(definition) {
  const { id = "", schedule, timezone = "UTC", target, payload, note = "", tenant, ...rest } = definition;
  let kind = "other";
  let when = "";
  if (schedule && typeof schedule === "object" && !Array.isArray(schedule)) {
    const [only, ...more] = Object.keys(schedule);
    // An update that keeps its interval and names no anchor keeps the beat.
    const alone = !more.length || (only === "every" && more.join() === "anchor");
    if (alone && only in EXAMPLES && typeof schedule[only] === "string") [kind, when] = [only, schedule[only]];
  }
  if (kind === "other" && schedule !== undefined) rest.schedule = schedule;
  // Short where nothing gets lost by it.
  const http = target?.http;
  const plain = target?.handler || (http && Object.keys(http).join() === "url") || (target?.topic && Object.keys(target.topic).length === 1 && target.topic.name);
  return {
    id, kind, when, timezone, note, tenant: tenant || "",
    target: target === undefined ? "" : plain || typeof target === "string" ? targetText(target) : JSON.stringify(target),
    payload: payload === undefined || payload === null ? "" : JSON.stringify(payload, null, 2),
    rest: JSON.stringify(rest, null, 2),
  };
}

function parsed(text, what) {
  try {
    return parse(text);
  } catch (error) {
    throw Object.assign(new Error(`${what} is no JSON: ${error.message}`), { errors: [] });
  }
}

// The definition that a form means. Throws what a person can mend.
function definitionOf(form) {
  const rest = parsed(form.rest.trim() || "{}", "“Everything else”");
  if (typeof rest !== "object" || rest === null || Array.isArray(rest)) throw new Error("“Everything else” must be a JSON object");
  const found = { ...(form.id ? { id: form.id } : {}), ...(form.tenant ? { tenant: form.tenant } : {}), ...rest };
  if (form.kind !== "other") found.schedule = { [form.kind]: form.when.trim() };
  found.timezone = form.timezone.trim() || "UTC";
  const target = form.target.trim();
  if (target) found.target = target.startsWith("{") ? parsed(target, "The target") : target;
  if (form.payload.trim()) found.payload = parsed(form.payload, "The payload");
  if (form.note.trim()) found.note = form.note.trim();
  return found;
}

function usePreview(form) {
  const [found, setFound] = useState({ times: null, error: null, busy: true });
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const definition = definitionOf(form);
        const shown = await call("POST", "/v1/preview", { query: { count: 10 }, body: definition, signal: abort.signal });
        setFound({ times: shown.times, zone: shown.timezone, error: null });
      } catch (error) {
        if (error.name !== "AbortError") setFound({ times: null, error });
      }
    }, PREVIEW_AFTER_MS);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [JSON.stringify(form)]);
  return found;
}

export function Editor({ id, who }) {
  const [job, setJob] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (id) getJob(id).then(setJob, setError);
    else setJob({ etag: null, definition: { schedule: { cron: "0 6 * * *" }, timezone: viewerZone } });
  }, [id]);
  if (!job) return html`<h1>${id}</h1><${Waiting} error=${error} />`;
  return html`<${Form} job=${job} id=${id} who=${who} />`;
}

function Form({ job, id, who }) {
  const choice = isEverywhere(who) || who.tenants.length > 1;
  const [form, setForm] = useState(() => formOf(job.definition));
  const [etag, setEtag] = useState(job.etag);
  const [error, setError] = useState(null);
  const [theirs, setTheirs] = useState(null); // the job as somebody else has left it
  const [busy, setBusy] = useState(false);
  const key = useRef(crypto.randomUUID?.() || String(Math.random()).slice(2));
  const preview = usePreview(form);
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });

  async function save(event, over) {
    event?.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const definition = definitionOf(form);
      const saved = id
        ? await call("PUT", jobPath(id), { body: definition, headers: { "if-match": `"${over || etag}"` } })
        : await post("/v1/jobs", definition, { "idempotency-key": key.current });
      say(id ? `${id} is saved` : `${saved.id || definition.id} is made`);
      location.hash = jobLink(id || saved.id || definition.id);
    } catch (problem) {
      setBusy(false);
      if (problem.status === 412) setTheirs(await getJob(id).catch(() => null));
      else setError(problem);
      if (!id && problem.status) key.current = `${key.current.slice(0, 36)}-${Date.now()}`;
    }
  }
  const take = () => { setForm(formOf(theirs.definition)); setEtag(theirs.etag); setTheirs(null); };
  const over = () => { setEtag(theirs.etag); setTheirs(null); save(null, theirs.etag); };

  return html`<p class="crumbs"><a href="#/jobs">Jobs</a>${id ? html` · <a href=${jobLink(id)}>${id}</a>` : null}</p>
    <h1>${id ? `Edit ${id}` : "New job"}</h1>
    ${theirs ? html`<${Conflict} mine=${form} theirs=${theirs} take=${take} over=${over} />` : null}
    <div class="editor">
      <form onSubmit=${save} class="fields" aria-label="Definition">
        ${id ? null : html`<label>Id<input value=${form.id} onInput=${set("id")} placeholder="made for you when left out" maxlength="200" spellcheck=${false} autocomplete="off" /></label>`}
        ${id || !choice ? null : html`<label>Tenant<input value=${form.tenant} onInput=${set("tenant")} placeholder="default" maxlength="100" list="tenants" spellcheck=${false} autocomplete="off" /></label>
        <datalist id="tenants">${who.tenants.filter((each) => each !== "*").map((each) => html`<option value=${each} />`)}</datalist>`}
        <div class="pair">
          <label>Schedule<select value=${form.kind} onChange=${set("kind")}>${Object.entries(KINDS).map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select></label>
          ${form.kind === "other" ? null : html`<label class="wide">When<input value=${form.when} onInput=${set("when")} placeholder=${EXAMPLES[form.kind]} required spellcheck=${false} autocomplete="off" /></label>`}
        </div>
        <label>Time zone<input value=${form.timezone} onInput=${set("timezone")} list="zones" spellcheck=${false} autocomplete="off" /></label>
        <datalist id="zones">${zones.map((each) => html`<option value=${each} />`)}</datalist>
        <label>Target<input value=${form.target} onInput=${set("target")} placeholder="handler:name, https://…, kafka://topic" required spellcheck=${false} autocomplete="off" /></label>
        <label>Payload (JSON)<textarea rows="4" value=${form.payload} onInput=${set("payload")} spellcheck=${false}></textarea></label>
        <label>Note<textarea rows="2" class="prose" value=${form.note} onInput=${set("note")} maxlength="2000"></textarea></label>
        <details open=${form.rest !== "{}"}><summary>Everything else (JSON)</summary>
          <label class="hidden-label"><span class="hidden">Everything else</span><textarea rows=${Math.min(16, form.rest.split("\n").length + 1)} value=${form.rest} onInput=${set("rest")} spellcheck=${false}></textarea></label>
          <p class="quiet">retry, timeout, misfire, overlap, calendar, lane, labels, notify … as in the job definition reference.</p>
        </details>
        <${Failure} error=${error} />
        <div class="buttons">
          <a class="button" href=${id ? jobLink(id) : "#/jobs"}>Cancel</a>
          <button class="primary" disabled=${busy}>${id ? "Save" : "Create"}</button>
        </div>
      </form>
      <${Section} title="It would run">
        <div aria-live="polite">${preview.error ? html`<${Failure} error=${preview.error} />` : preview.times ? html`<${Times} times=${preview.times} zone=${preview.zone} named=${Boolean(form.id)} />` : html`<p class="quiet">…</p>`}</div>
      <//>
    </div>`;
}

const NAMES = { kind: "schedule", when: "when", timezone: "time zone", target: "target", payload: "payload", note: "note", rest: "everything else" };

function Conflict({ mine, theirs, take, over }) {
  const other = useMemo(() => formOf(theirs.definition), [theirs]);
  const differ = Object.keys(NAMES).filter((name) => mine[name] !== other[name]);
  return html`<div class="conflict" role="alert">
    <h2>Somebody else has changed it meanwhile</h2>
    <p>Nothing of yours is saved. ${differ.length ? "This differs:" : "Your text says the same as theirs."}</p>
    <dl>${differ.map((name) => html`<div><dt>${NAMES[name]}</dt><dd><span class="hidden">yours</span><code class="mine">${mine[name] || "–"}</code> <span class="quiet">yours</span><br /><code>${other[name] || "–"}</code> <span class="quiet">theirs</span></dd></div>`)}</dl>
    <div class="buttons"><button type="button" onClick=${take}>Take theirs</button><button type="button" class="danger" onClick=${over}>Save mine over it</button></div>
  </div>`;
}
