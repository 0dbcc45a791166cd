// The frame: who is there, where one is, and what was said last.
import { html, render, useEffect, useRef, useState } from "/assets/view.js";
import { get, token } from "/assets/api.js";
import { reconnect, useConnection, useNow } from "/assets/live.js";
import { arrive, issuer, leave, renew } from "/assets/login.js";
import { Failure } from "/assets/parts.js";
import { Jobs } from "/assets/pages/jobs.js";
import { Job } from "/assets/pages/job.js";
import { Editor } from "/assets/pages/editor.js";
import { Runs } from "/assets/pages/runs.js";
import { Run } from "/assets/pages/run.js";
import { DeadLetters } from "/assets/pages/dead_letters.js";
import { Overview } from "/assets/pages/overview.js";
import { Tenants } from "/assets/pages/tenants.js";
import { Why } from "/assets/pages/why.js";

const PAGES = [
  [/^\/$/, Overview, "Overview"],
  [/^\/jobs$/, Jobs, "Jobs"],
  [/^\/new$/, Editor, "New job"],
  [/^\/jobs\/([^/]+)$/, Job, "Job"],
  [/^\/jobs\/([^/]+)\/edit$/, Editor, "Edit job"],
  [/^\/jobs\/([^/]+)\/why$/, Why, "Why"],
  [/^\/runs$/, Runs, "Runs"],
  [/^\/runs\/([^/]+)$/, Run, "Run"],
  [/^\/dead$/, DeadLetters, "Dead letters"],
  [/^\/tenants$/, Tenants, "Tenants"],
];
const MENU = [["#/", "Overview"], ["#/jobs", "Jobs"], ["#/runs", "Runs"], ["#/dead", "Dead letters"], ["#/tenants", "Tenants"]];

function where() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  for (const [form, page, title] of PAGES) {
    const found = form.exec(path);
    if (!found) continue;
    let id = null;
    try {
      id = found[1] === undefined ? null : decodeURIComponent(found[1]);
    } catch {
      break; // a broken percent sign names nothing
    }
    return { page, title: id ? `${id} · ${title}` : title, id, query: new URLSearchParams(query || ""), key: path };
  }
  return { page: null, title: "Not there", id: null, query: new URLSearchParams(), key: path };
}

function useWhere() {
  const [at, setAt] = useState(where);
  useEffect(() => {
    const moved = () => setAt(where());
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return at;
}

function Login({ entered, problem }) {
  const [refused, setRefused] = useState(problem);
  const [at, setAt] = useState(null);
  useEffect(() => { issuer().then(setAt, () => null); }, []);
  async function submit(event) {
    event.preventDefault();
    token.set(new FormData(event.target).get("token").trim());
    try {
      entered(await get("/v1/me"));
    } catch (problem) {
      token.forget();
      setRefused(problem);
    }
  }
  return html`<main class="login">
    <h1 class="brand"><img src="/assets/icon.svg" alt="" width="28" height="28" /> Noontide</h1>
    ${at?.issuer ? html`<div class="issuer"><button type="button" class="primary" onClick=${() => leave(at)}>Sign in at ${new URL(at.issuer).host}</button>
      <p class="quiet">or</p></div>` : null}
    <form onSubmit=${submit}>
      <label>Token
        <input name="token" type="password" required autocomplete="off" spellcheck=${false} autofocus />
      </label>
      <p class="quiet">Made with <code>noontide tokens create</code>, or a token of your OpenID issuer. It stays in this tab.</p>
      <${Failure} error=${refused} />
      <button class=${at?.issuer ? "" : "primary"}>Sign in</button>
    </form>
  </main>`;
}

function Said() {
  const [text, setText] = useState("");
  useEffect(() => {
    let timer = 0;
    const heard = (event) => {
      setText(event.detail);
      clearTimeout(timer);
      timer = setTimeout(() => setText(""), 6000);
    };
    window.addEventListener("noontide:said", heard);
    return () => window.removeEventListener("noontide:said", heard);
  }, []);
  return html`<div class=${`said ${text ? "shown" : ""}`} role="status" aria-live="polite">${text}</div>`;
}

const SAID = {
  live: ["live", "What changes is shown at once."], opening: ["connecting", "The page begins to follow what changes."],
  asks: ["refreshing", "This page asks again every few seconds."],
  asking: ["refreshing", "Too many follow this node: the page asks again every few seconds."], lost: ["lost", "The connection is lost."],
};

// Whether the page follows what changes; that it does not is said where nobody misses it.
function Connection() {
  const { state } = useConnection();
  if (!SAID[state]) return null; // nothing here changes by itself
  const [word, meaning] = SAID[state];
  return html`<span class=${`connection connection-${state}`} title=${meaning}><span class="light" aria-hidden="true"></span>${word}</span>`;
}

function Lost() {
  const { state, again_at } = useConnection();
  const now = useNow();
  if (state !== "lost") return null;
  const left = Math.max(0, Math.ceil((again_at - now) / 1000));
  return html`<div class="lost" role="status">The connection to the API is lost; what is shown may be old. ${left ? `Trying again in ${left} s.` : "Trying again …"}
    <button type="button" class="small" onClick=${reconnect}>Now</button></div>`;
}

function Frame({ who, leave }) {
  const at = useWhere();
  const main = useRef(null);
  const first = useRef(true);
  useEffect(() => {
    document.title = `${at.title} · Noontide`;
    if (!first.current) main.current?.focus();
    first.current = false;
    window.scrollTo(0, 0);
  }, [at.key]);
  const current = (address) => (address === "#/" ? at.key === "/" : at.key.startsWith(address.slice(1)) || (address === "#/jobs" && at.key === "/new"));
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>To the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/assets/icon.svg" alt="" width="22" height="22" /> Noontide</a>
      <nav aria-label="Pages">${MENU.map(([address, name]) => html`<a href=${address} aria-current=${current(address) ? "page" : null}>${name}</a>`)}</nav>
      <div class="who"><${Connection} /><span title=${`tenants: ${who.tenants.join(", ")}`}>${who.name} <span class="quiet role">${who.role}</span></span>
        ${token.get() ? html`<button type="button" onClick=${leave}>Sign out</button>` : null}</div>
    </header>
    <${Lost} />
    <main id="main" ref=${main} tabindex="-1">
      ${at.page ? html`<${at.page} key=${at.key} id=${at.id} query=${at.query} who=${who} />` : html`<h1>Not there</h1><p>There is no such page. <a href="#/">Overview</a></p>`}
    </main>
    <${Said} />`;
}

function App() {
  const [who, setWho] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const out = async () => {
      if (await renew()) {
        reconnect();
        return;
      }
      token.forget();
      setWho(null);
      setError({ status: 401 });
    };
    window.addEventListener("noontide:login", out);
    arrive().then(() => get("/v1/me").then(setWho, setError), (problem) => setError({ status: 401, problem }));
    return () => window.removeEventListener("noontide:login", out);
  }, []);
  if (who) return html`<${Frame} who=${who} leave=${() => { token.forget(); setWho(null); setError({ status: 401 }); }} />`;
  if (error && error.status !== 401) {
    return html`<main><h1>Noontide</h1><${Failure} error=${error} />
      <button type="button" onClick=${() => location.reload()}>Try again</button></main>`;
  }
  if (error) return html`<${Login} entered=${setWho} problem=${error.problem || null} />`;
  return html`<main><p class="quiet" aria-busy="true">Loading…</p></main>`;
}

const app = document.getElementById("app");
app.replaceChildren();
render(html`<${App} />`, app);
