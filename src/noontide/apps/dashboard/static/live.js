// Pages that stay true: one question at a time, at a bounded pace, none while nobody looks.
import { useCallback, useEffect, useRef, useState } from "/assets/view.js";

const SLOWEST_MS = 30_000;

// ask(signal) -> data. every_ms: pause between answers; 0 = once. keys: what the question depends on.
export function useLive(ask, every_ms, keys) {
  const [found, setFound] = useState({ data: null, error: null });
  const turn = useRef(null);
  useEffect(() => {
    let timer = 0;
    let failures = 0;
    let closed = false;
    const abort = new AbortController();
    let asking = false;
    let once_more = false;
    const next = (pause) => {
      clearTimeout(timer);
      if (!closed && every_ms) timer = setTimeout(look, pause);
    };
    async function look() {
      if (closed || document.hidden) return;
      if (asking) {
        once_more = true; // what is under way may have been asked before something was done
        return;
      }
      asking = true;
      try {
        const data = await ask(abort.signal);
        failures = 0;
        if (!closed) setFound({ data, error: null });
      } catch (error) {
        failures += 1;
        if (!closed && error.name !== "AbortError") setFound((before) => ({ data: before.data, error }));
      } finally {
        asking = false;
        if (once_more) {
          once_more = false;
          look();
          return;
        }
        next(Math.min(SLOWEST_MS, every_ms * 2 ** Math.min(failures, 5)));
      }
    }
    const seen = () => document.hidden || look();
    turn.current = look;
    setFound((before) => ({ data: before.data, error: null })); // what was there stays until there is something newer
    look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      closed = true;
      clearTimeout(timer);
      abort.abort();
      document.removeEventListener("visibilitychange", seen);
    };
  }, keys);
  const again = useCallback(() => turn.current?.(), []);
  return { ...found, again };
}
