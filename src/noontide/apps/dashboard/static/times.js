// Instants and durations for people: in a zone of the job, in the viewer's own, and relative to now.

export const viewerZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const formats = new Map();

function formatOf(zone) {
  if (!formats.has(zone)) {
    const options = {
      year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
      hourCycle: "h23",
    };
    try {
      formats.set(zone, new Intl.DateTimeFormat("en-CA", { ...options, timeZone: zone }));
    } catch {
      return formatOf("UTC"); // a zone that this browser does not know
    }
  }
  return formats.get(zone);
}

export const knowsZone = (zone) => formatOf(zone).resolvedOptions().timeZone !== "UTC" || /^(Etc\/)?(UTC|GMT)/.test(zone);

export function ms(instant) {
  return typeof instant === "number" ? instant : Date.parse(instant);
}

// 2026-03-29 03:00:00; the seconds only where there are any.
export function inZone(instant, zone = viewerZone, { seconds = false } = {}) {
  const part = Object.fromEntries(formatOf(zone).formatToParts(ms(instant)).map((each) => [each.type, each.value]));
  const clock = `${part.hour}:${part.minute}${seconds || part.second !== "00" ? `:${part.second}` : ""}`;
  return `${part.year}-${part.month}-${part.day} ${clock}`;
}

export function clock(instant) {
  const at = ms(instant);
  return `${inZone(at, viewerZone, { seconds: true }).slice(11)}.${String(at % 1000).padStart(3, "0")}`;
}

export const clockIn = (instant) => inZone(instant).slice(11, 16);
export const dayIn = (instant, zone) => inZone(instant, zone).slice(5, 10);

const grouped = new Intl.NumberFormat("en-GB");
export const count = (number) => (typeof number === "number" ? grouped.format(number) : "–");

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

// 412 ms, 9.0 s, 3 min 20 s, 2 d 4 h
export function duration(length) {
  const abs = Math.abs(length);
  const sign = length < 0 ? "−" : "";
  if (abs < 1000) return `${sign}${Math.round(abs)} ms`;
  if (abs < 60_000) return `${sign}${(abs / 1000).toFixed(abs < 10_000 ? 1 : 0)} s`;
  const first = UNITS.findIndex(([, unit]) => abs >= unit);
  const [name, unit] = UNITS[first];
  const [next, smaller] = UNITS[first + 1];
  const whole = Math.floor(abs / unit);
  const rest = Math.floor((abs - whole * unit) / smaller);
  return `${sign}${whole} ${name}${rest ? ` ${rest} ${next}` : ""}`;
}

// PT3M31.613S, P1D -> as people say it; anything else stays as it is
const ISO = /^P(?:([\d.]+)W)?(?:([\d.]+)D)?(?:T(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?)?$/;
const ISO_MS = [604_800_000, 86_400_000, 3_600_000, 60_000, 1000];
export function plainLength(text) {
  const parts = ISO.exec(text);
  const length = parts ? ISO_MS.reduce((sum, unit, place) => sum + unit * Number(parts[place + 1] || 0), 0) : 0;
  return length ? duration(length).replace(".0 s", " s") : text;
}

export function relative(instant, now = Date.now()) {
  const away = ms(instant) - now;
  if (Math.abs(away) < 1000) return "now";
  const text = duration(Math.abs(away) < 60_000 ? Math.round(away / 1000) * 1000 : away).replace("−", "").replace(".0 s", " s");
  return away > 0 ? `in ${text}` : `${text} ago`;
}
