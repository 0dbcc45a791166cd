// What states and reasons mean, in a sentence; and why a run was late.
import { duration, ms } from "/assets/times.js";

export const STATES = {
  active: "Runs at its times.",
  paused: "Times pass without a run until it is resumed.",
  completed: "There are no more times to come.",
  quarantined: "Set aside: it cannot be worked with as it is.",
  blocked: "Waits for jobs that wait for it.",
  pending: "Claimed; waits for its start, a permit or its target.",
  queued: "Offered to the workers of its lane; nobody has taken it yet.",
  running: "A worker holds its lease.",
  retry_wait: "An attempt failed; the next one waits for its backoff.",
  succeeded: "It ran to its end.",
  dead: "No more attempts. It is kept and can be started again.",
  cancelled: "Stopped by request, or replaced.",
  skipped: "Decided not to run.",
  missed: "Too late, and the job says to skip what is late.",
  coalesced: "Missed together with a newer occurrence, which ran for all of them.",
  dropped: "Beyond the most that this job catches up.",
  planned: "Still to come.",
  unrecorded: "Due by the schedule as it is now; nothing about it is recorded (any more).",
};

const REASONS = [
  [/^overlap: replaced/, "The next occurrence replaced it (overlap: replace)."],
  [/^overlap/, "The run before it was still live when it came due (overlap: skip)."],
  [/^misfire/, "Nothing could run when it was due; the job's misfire rule decided."],
  [/^upstream/, "A job that it waits for did not succeed."],
  [/^max_attempts/, "Every attempt that its retry policy allows failed."],
  [/^permanent/, "The failure said that trying again is of no use."],
  [/^lease_lost/, "The worker that held it fell silent."],
  [/^timeout/, "An attempt took longer than its timeout."],
  [/^paused/, "The job was paused."],
];

export const DECISIONS = new Set(["skipped", "missed", "coalesced", "dropped"]);
export const meaning = (reason) => REASONS.find(([form]) => form.test(reason || ""))?.[1] || null;

// Where the time went, from due to the start of the last attempt (or to now): [{what, from, to, kind}].
export function phases(run, now = Date.now()) {
  const found = [];
  let at = ms(run.due);
  const until = (to, what, kind) => {
    if (to !== null && to !== undefined && ms(to) > at) {
      found.push({ what, from: at, to: ms(to), kind });
      at = ms(to);
    }
  };
  until(run.start_after, "spread: the job's own offset", "planned");
  until(run.claimed_at, "until a scheduler claimed it", "waiting");
  const attempts = run.attempts || [];
  const isTopic = /^kafka:/.test(run.target || "");
  const takes = (queued, again) => {
    until(queued || null, again ? "backoff, and waiting for room in its lane" : isTopic ? "waiting for its topic" : "waiting for a permit, or room in its lane", "waiting");
    return isTopic ? "waiting for its topic" : queued ? "offered, waiting for a worker" : again ? "backoff, and waiting for a worker" : "waiting for a worker, or a permit";
  };
  attempts.forEach((each, index) => {
    until(each.granted, takes(each.queued, index > 0), "waiting");
    until(each.ended, `attempt ${each.attempt}: failed`, "failed");
  });
  const started = run.started_at || run.granted_at;
  const last = attempts.length ? attempts[attempts.length - 1] : null;
  if (started && !(last && last.attempt >= (run.attempt || 0) && run.state !== "running")) {
    until(started, takes(run.queued_at, attempts.length > 0), "waiting");
    until(run.ended_at || now, `attempt ${run.attempt}: ${run.ended_at ? run.state : "running"}`, run.ended_at ? run.state : "running");
  } else if (!run.ended_at) {
    const offered = run.state === "queued" ? takes(run.queued_at, attempts.length > 0) : null;
    const what = run.reason ? `waiting: ${run.reason}` : offered || (attempts.length ? "backoff, and waiting for a worker" : "waiting");
    until(now, what, "waiting");
  } else {
    until(run.ended_at, run.state === "succeeded" ? "until it was written" : "until it was closed", run.state);
  }
  return found;
}

// "Started 9.0 s after it was to start: 6.9 s backoff ..., 2.0 s waiting ..."
export function whyLate(run, now = Date.now()) {
  if (DECISIONS.has(run.state)) return null; // it never was to begin
  const planned = ms(run.start_after || run.due);
  const all = phases(run, now);
  const waits = !run.ended_at && run.state !== "running"; // then it has not begun
  const last = waits ? null : all.findLast((each) => /^attempt/.test(each.what) && each.kind !== "failed") || all.findLast((each) => each.kind === "failed");
  const began = last ? last.from : null;
  const before = all.filter((each) => each.kind !== "planned" && each.to > planned && (began === null || each.to <= began));
  const late = (began ?? (run.ended_at ? ms(run.ended_at) : now)) - planned;
  if (late < 1000) return null;
  const parts = before.toSorted((one, other) => other.to - other.from - (one.to - one.from)).slice(0, 3);
  const text = parts.map((each) => `${duration(each.to - Math.max(each.from, planned))} ${each.what}`).join("; ");
  return { late, text };
}
