// Charts as plain SVG: no canvas, so they follow the colours of the page and are read out as text.
import { html, useState } from "/assets/view.js";
import { clockIn, count, duration, inZone } from "/assets/times.js";

const WIDTH = 720;
const HEIGHT = 120;

// The frame of a chart over time: what is under the pointer is said in its head, and the left and right keys move along.
// times: of each place, ms; said(place): what there is; top, low: labels of the axis.
function Frame({ title, summary, times, said, note, top, low, children, label = clockIn }) {
  const [at, setAt] = useState(null);
  const last = times.length - 1;
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(Math.max(0, Math.min(last, Math.floor(((event.clientX - box.left) / box.width) * times.length))));
  };
  const key = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last }[event.key];
    if (!step) return;
    event.preventDefault();
    setAt((before) => Math.max(0, Math.min(last, (before ?? (step > 0 ? -1 : times.length)) + step)));
  };
  const width = WIDTH / times.length;
  return html`<figure class="chart">
    <figcaption><strong>${title}</strong> <span class="said-here" aria-live="off">${at === null ? html`<span class="quiet">${note}</span>` : html`${label(times[at])} · ${said(at)}`}</span></figcaption>
    <div class="plot">
      <span class="axis-top" aria-hidden="true">${top}</span>${low === undefined ? null : html`<span class="axis-low" aria-hidden="true">${low}</span>`}
      <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${summary} tabindex="0" preserveAspectRatio="none"
        onPointerMove=${move} onPointerLeave=${() => setAt(null)} onKeyDown=${key} onBlur=${() => setAt(null)}>
        ${at === null ? null : html`<rect class="here" x=${at * width} y="0" width=${width} height=${HEIGHT} />`}
        ${children}
        <line class="axis" x1="0" y1=${HEIGHT - 0.5} x2=${WIDTH} y2=${HEIGHT - 0.5} />
      </svg>
    </div>
    <svg class="ticks" viewBox=${`0 0 ${WIDTH} 6`} preserveAspectRatio="none" aria-hidden="true">${ticksOf(times).map(({ place }) => html`<line class="axis" x1=${place * width} y1="0" x2=${place * width} y2="6" />`)}</svg>
    <${Ticks} times=${times} label=${label} />
  </figure>`;
}

const STEPS = [5, 15, 60, 180, 360, 1440].map((minutes) => minutes * 60_000);
const DAY_MS = 86_400_000;

// Where the clock of whoever looks is round, at most five: [{place, time}]. It may be within a bar.
function ticksOf(times) {
  const step = STEPS.find((each) => (times[times.length - 1] - times[0]) / each <= 5) || 2 * DAY_MS;
  const clock = (time) => { const text = inZone(time); return (Number(text.slice(11, 13)) * 60 + Number(text.slice(14, 16))) * 60_000; };
  const days = Math.max(1, Math.round(step / DAY_MS));
  const wide = times.length > 1 ? times[1] - times[0] : 60_000;
  const past = (time) => clock(time) % Math.min(step, DAY_MS);
  return times.map((time, place) => ({ place: place - past(time) / wide, time: time - past(time) }))
    .filter(({ place, time }, at) => place >= 0 && at - place < 1 && (step <= DAY_MS || Number(inZone(time).slice(8, 10)) % days === 0));
}

function Ticks({ times, label }) {
  return html`<svg class="tick-texts" width="100%" height="16" aria-hidden="true">${ticksOf(times).map(({ place, time }) => {
    const share = (100 * place) / times.length;
    return html`<text x=${`${share}%`} y="12" text-anchor=${share < 4 ? "start" : share > 94 ? "end" : "middle"}>${label(time)}</text>`;
  })}</svg>`;
}

// parts: [{kind, name, values}], on top of each other. marked: places that are drawn with a mark above.
export function Bars({ title, times, parts, marked = [], label }) {
  const totals = times.map((_, place) => parts.reduce((sum, part) => sum + (part.values[place] || 0), 0));
  const highest = Math.max(0, ...totals);
  const all = totals.reduce((sum, each) => sum + each, 0);
  const width = WIDTH / times.length;
  const gap = times.length > 150 ? 0 : width * 0.12;
  const said = (place) => parts.length === 1 ? count(totals[place]) : parts.filter((part) => part.values[place]).map((part) => `${count(part.values[place])} ${part.name}`).join(", ") || "none";
  const peaks = new Set(marked);
  return html`<${Frame} title=${title} times=${times} said=${said} top=${highest ? count(highest) : ""} label=${label} note=${all ? `${count(all)} in all` : "none"}
    summary=${`${title}: ${count(all)} in all, at most ${count(highest)} at once.`}>
    ${parts.map((part, level) => part.values.map((value, place) => {
      if (!value) return null;
      const below = parts.slice(0, level).reduce((sum, each) => sum + (each.values[place] || 0), 0);
      const height = Math.max(1.5, (value / highest) * (HEIGHT - 6));
      const y = HEIGHT - (below / highest) * (HEIGHT - 6) - height;
      return html`<rect class=${`bar bar-${part.kind} ${peaks.has(place) ? "peak" : ""}`} x=${place * width + gap} y=${y} width=${Math.max(0.6, width - 2 * gap)} height=${height} />`;
    }))}
  <//>`;
}

// lines: [{kind, name, values}], null where there is nothing. scale(value) -> 0 .. 1; shown(value) -> text.
export function Lines({ title, times, lines, scale, shown, top, low, grid = [], note, label }) {
  const width = WIDTH / times.length;
  const y = (value) => HEIGHT - 2 - scale(value) * (HEIGHT - 6);
  const said = (place) => lines.filter((line) => line.values[place] !== null).map((line) => `${line.name} ${shown(line.values[place])}`).join(", ") || "nothing ended";
  const path = (values) => values.map((value, place) => (value === null ? "" : `${place && values[place - 1] !== null ? "L" : "M"}${(place + 0.5) * width},${y(value)}h0.01`)).join("");
  return html`<${Frame} title=${title} times=${times} said=${said} note=${note} top=${top} low=${low} label=${label} summary=${`${title}. ${note}`}>
    ${grid.map((value) => html`<line class="grid" x1="0" y1=${y(value)} x2=${WIDTH} y2=${y(value)} />`)}
    ${lines.map((line) => html`<path class=${`line line-${line.kind}`} d=${path(line.values)} />`)}
  <//>`;
}

export const Legend = ({ parts }) => html`<p class="legend-line quiet">${parts.map((part) => html`<span><span class=${`dot bar-${part.kind}`} aria-hidden="true"></span>${part.name}</span>`)}</p>`;

// The last outcomes of a job, oldest first; the text beside it says the same.
export function Outcomes({ states }) {
  const bad = states.filter((state) => state === "dead").length;
  const label = states.length ? `last ${states.length}: ${states.filter((state) => state === "succeeded").length} succeeded, ${bad} dead` : "no outcome yet";
  return html`<svg class="outcomes" viewBox=${`0 0 ${10 * 8} 16`} role="img" aria-label=${label}>
    <title>${label}</title>
    ${states.length ? null : html`<line class="axis" x1="0" y1="12" x2="80" y2="12" />`}
    ${states.map((state, index) => html`<rect class=${`bar bar-${state}`} x=${(10 - states.length + index) * 8} y=${state === "dead" ? 0 : 4} width="6" height=${state === "dead" ? 16 : 12} rx="1" />`)}
  </svg>`;
}

// Where the time of a run went. phases: [{what, from, to, kind}].
export function Phases({ phases }) {
  const from = phases[0]?.from ?? 0;
  const whole = Math.max(1, (phases[phases.length - 1]?.to ?? 1) - from);
  return html`<svg class="phases" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label=${phases.map((each) => `${each.what}: ${duration(each.to - each.from)}`).join("; ")}>
    ${phases.map((each) => html`<rect class=${`bar bar-${each.kind}`} x=${((each.from - from) / whole) * 1000} y="2" width=${Math.max(2, ((each.to - each.from) / whole) * 1000)} height="20">
      <title>${`${each.what}: ${duration(each.to - each.from)}`}</title></rect>`)}
  </svg>`;
}

// Instants on a line, with marks. points: [{at, label, kind}], kind "" for an ordinary one.
export function Instants({ points, from, title, label }) {
  const to = points.length ? points[points.length - 1].at : from + 1;
  const x = (at) => 8 + ((at - from) / Math.max(1, to - from)) * 984;
  const marked = points.filter((point) => point.kind);
  return html`<figure class="instants">
    <svg viewBox="0 0 1000 46" preserveAspectRatio="none" role="img" aria-label=${`${title}: ${points.length} times, ${marked.length} of them with a mark`}>
      <line class="axis" x1="0" y1="32" x2="1000" y2="32" />
      ${points.map((point) => html`<g><title>${point.label}</title>
        ${point.kind ? html`<line class=${`flag flag-${point.kind}`} x1=${x(point.at)} y1="2" x2=${x(point.at)} y2="32" />` : null}
        <line class="instant-mark" x1=${x(point.at)} y1=${point.kind ? 12 : 20} x2=${x(point.at)} y2="38" /></g>`)}
    </svg>
    <div class="ticks" aria-hidden="true">${[0, 0.25, 0.5, 0.75, 1].map((share) => html`<span>${label(from + share * (to - from))}</span>`)}</div>
  </figure>`;
}
