// Pages that stay true. The first answer is asked for; what changes comes over one stream for the whole page (/v1/live).
// Where there is no stream, the page asks again, at a bounded pace. Nothing is asked or followed while nobody looks.
import { useCallback, useEffect, useRef, useState } from "/assets/view.js";
import { address, call, opened, parse, problemOf } from "/assets/api.js";

const SILENT_MS = 25_000; // the stream says something every ten seconds
const SLOWEST_MS = 30_000;
const GATHER_MS = 80; // views of one page come into being together
const ASKING_SHARE = 0.1; // of the time, at most, goes into asking again: large answers are asked for more rarely
const ASK_MS = 4000; // between two questions while there is no stream
const NO_STREAM_AGAIN_MS = 60_000;

const watched = new Map(); // address -> {told: Set of functions, text: of the last answer}
const listeners = new Set();
// state: "off" (nothing changes by itself), "asks" (views that ask again), "opening", "live", "lost" (until again_at), "asking" (this node has no stream for us)
let connection = { state: "off", again_at: 0 };
let current = null; // {paths, abort}
let tries = 0;
let timer = 0;
let asked = 0; // views that ask again by themselves

const still = () => say(asked ? "asks" : "off");

function say(state, again_at = 0) {
  if (connection.state === state && connection.again_at === again_at) return;
  connection = { state, again_at };
  listeners.forEach((each) => each(connection));
}

export function useConnection() {
  const [at, setAt] = useState(connection);
  useEffect(() => {
    listeners.add(setAt);
    setAt(connection);
    return () => listeners.delete(setAt);
  }, []);
  return at;
}

function soon(pause = GATHER_MS) {
  clearTimeout(timer);
  timer = setTimeout(follow, pause);
}

export function reconnect() {
  tries = 0;
  soon(0);
}

// Begin a stream of what is watched now; the one before goes on until the new one has begun.
async function follow() {
  const paths = document.hidden ? [] : [...watched.keys()].toSorted();
  if (!paths.length) {
    current?.abort.abort();
    current = null;
    still();
    return;
  }
  if (current && current.paths.join("\n") === paths.join("\n")) return;
  const before = current;
  const mine = { paths, abort: new AbortController() };
  current = mine;
  if (connection.state !== "live") say("opening");
  let pause = 0;
  try {
    const answer = await opened(address("/v1/live", paths.map((path) => ["watch", path])), mine.abort.signal);
    before?.abort.abort();
    tries = 0;
    say("live");
    await read(answer, mine);
  } catch (error) {
    before?.abort.abort();
    if (current !== mine) return;
    tries += 1;
    pause = Math.min(SLOWEST_MS, 1000 * 2 ** Math.min(tries - 1, 5)) * (0.8 + 0.4 * Math.random());
    if (error.status >= 400) {
      pause = NO_STREAM_AGAIN_MS;
      say("asking");
    } else {
      say("lost", Date.now() + pause);
    }
  }
  if (current !== mine) return;
  current = null;
  soon(pause);
}

async function read(answer, mine) {
  let silent = 0;
  const heard = () => {
    clearTimeout(silent);
    silent = setTimeout(() => mine.abort.abort(new Error("silent")), SILENT_MS);
  };
  heard();
  try {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      events.forEach(take);
    }
  } finally {
    clearTimeout(silent);
  }
}

function take(event) {
  const [about, body] = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
  if (body === undefined) return;
  const { path, status } = JSON.parse(about);
  const known = watched.get(path);
  if (!known) return;
  known.told.forEach((each) => each(status, body));
}

document.addEventListener("visibilitychange", () => soon(0));
window.addEventListener("online", reconnect);
window.addEventListener("offline", () => current?.abort.abort());

function watch(path, told) {
  const known = watched.get(path) || { told: new Set() };
  known.told.add(told);
  watched.set(path, known);
  soon();
  return () => {
    known.told.delete(told);
    if (!known.told.size) watched.delete(path);
    soon();
  };
}

// The answer at an address, and whatever it becomes; a falsy address asks nothing. exact: keep numbers as they were written.
export function useWatch(path, { exact = false } = {}) {
  const [found, setFound] = useState({ data: null, error: null, path });
  const turn = useRef(null);
  useEffect(() => {
    if (!path) return undefined;
    let closed = false;
    let text = null;
    let heard = 0;
    let again = 0;
    let large = false;
    const abort = new AbortController();
    const told = (status, body) => {
      if (status === 413) { // too large for the stream: the page asks by itself
        large = true;
        return;
      }
      heard += 1;
      if (closed || body === text) return;
      if (status < 400) {
        text = body;
        setFound({ data: exact ? parse(body) : JSON.parse(body), error: null, path });
      } else {
        text = null;
        const error = problemOf(status, body);
        if (status === 401) window.dispatchEvent(new Event("noontide:login"));
        setFound((known) => ({ ...known, error }));
      }
    };
    async function ask() {
      const before = heard;
      try {
        const body = await call("GET", path, { signal: abort.signal, text: true });
        if (heard === before) told(200, body);
      } catch (error) {
        const said = error.status === 0 && text !== null; // the page says that the connection is lost
        if (!closed && error.name !== "AbortError" && heard === before && !said) setFound((known) => ({ ...known, error }));
      }
    }
    // Without a stream: ask again and again.
    function poll() {
      clearTimeout(again);
      again = setTimeout(async () => {
        if ((large || connection.state !== "live") && !document.hidden) await ask();
        if (!closed) poll();
      }, ASK_MS);
    }
    turn.current = ask;
    setFound((known) => ({ ...known, error: null })); // what was there stays until there is something newer
    ask();
    poll();
    const leave = watch(path, told);
    return () => {
      closed = true;
      clearTimeout(again);
      abort.abort();
      leave();
    };
  }, [path, exact]);
  const again = useCallback(() => turn.current?.(), []);
  return { ...found, fresh: found.path === path && found.data !== null, again };
}

// Something that takes several questions: asked again after a pause, longer after failures, not while nobody looks.
export function useAsked(ask, every_ms, keys) {
  const [found, setFound] = useState({ data: null, error: null });
  const turn = useRef(null);
  useEffect(() => {
    let again = 0;
    let failures = 0;
    let asking = false;
    let once_more = false;
    const abort = new AbortController();
    async function look() {
      clearTimeout(again);
      if (abort.signal.aborted || document.hidden) return;
      if (asking) {
        once_more = true; // what is under way may have been asked before something was done
        return;
      }
      asking = true;
      const began = performance.now();
      try {
        const data = await ask(abort.signal);
        failures = 0;
        if (!abort.signal.aborted) setFound({ data, error: null });
      } catch (error) {
        failures += 1;
        if (!abort.signal.aborted) setFound((before) => ({ data: before.data, error }));
      }
      asking = false;
      if (once_more) {
        once_more = false;
        look();
      } else if (every_ms && !abort.signal.aborted) {
        const pause = Math.max(every_ms * 2 ** Math.min(failures, 5), (performance.now() - began) / ASKING_SHARE);
        again = setTimeout(look, Math.min(SLOWEST_MS, pause));
      }
    }
    const seen = () => document.hidden || look();
    turn.current = look;
    asked += every_ms ? 1 : 0;
    soon();
    look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      clearTimeout(again);
      abort.abort();
      asked -= every_ms ? 1 : 0;
      soon();
      document.removeEventListener("visibilitychange", seen);
    };
  }, keys);
  const again = useCallback(() => turn.current?.(), []);
  return { ...found, again };
}

// The time, moving on: for what is said relative to it.
export function useNow(every_ms = 1000) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const ticking = setInterval(() => document.hidden || setNow(Date.now()), every_ms);
    return () => clearInterval(ticking);
  }, [every_ms]);
  return now;
}
