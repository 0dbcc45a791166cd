// Charts as plain SVG: no canvas, so they follow the colours of the page and are read out as text.
import { html } from "/assets/view.js";

const WIDTH = 720;
const HEIGHT = 120;

// bars: [{label, parts: [{kind, value}]}]; ticks: labels of the axis by index.
export function Bars({ title, bars, ticks = {}, unit = "" }) {
  const totals = bars.map((bar) => bar.parts.reduce((sum, part) => sum + part.value, 0));
  const highest = Math.max(0, ...totals);
  const most = Math.max(1, highest);
  const width = WIDTH / bars.length;
  const summary = `${title}. At most ${highest}${unit} in one bar, ${totals.reduce((sum, each) => sum + each, 0)} in all.`;
  return html`<figure class="chart">
    <figcaption>${title} <span class="quiet">${highest ? `max ${highest}${unit}` : "none"}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT + 18}`} role="img" aria-label=${summary} preserveAspectRatio="none">
      <line class="axis" x1="0" y1=${HEIGHT} x2=${WIDTH} y2=${HEIGHT} />
      ${bars.map((bar, index) => {
        let top = HEIGHT;
        return html`<g>
          <title>${`${bar.label}: ${bar.parts.map((part) => `${part.value}${unit} ${part.kind}`).join(", ")}`}</title>
          <rect class="hit" x=${index * width} y="0" width=${width} height=${HEIGHT} />
          ${bar.parts.filter((part) => part.value).map((part) => {
            const height = Math.max(1.5, (part.value / most) * (HEIGHT - 4));
            top -= height;
            return html`<rect class=${`bar bar-${part.kind}`} x=${index * width + width * 0.12} y=${top} width=${width * 0.76} height=${height} />`;
          })}
        </g>`;
      })}
    </svg>
    <div class="ticks" aria-hidden="true">${Object.values(ticks).map((tick) => html`<span>${tick}</span>`)}</div>
  </figure>`;
}

// The last outcomes of a job, oldest first; the text beside it says the same.
export function Outcomes({ states }) {
  const bad = states.filter((state) => state === "dead").length;
  const label = states.length ? `last ${states.length}: ${states.filter((state) => state === "succeeded").length} succeeded, ${bad} dead` : "no outcome yet";
  return html`<svg class="outcomes" viewBox=${`0 0 ${10 * 8} 16`} role="img" aria-label=${label}>
    <title>${label}</title>
    ${states.map((state, index) => html`<rect class=${`bar bar-${state}`} x=${(10 - states.length + index) * 8} y=${state === "dead" ? 0 : 4} width="6" height=${state === "dead" ? 16 : 12} rx="1" />`)}
  </svg>`;
}

// Where the time of a run went. phases: [{what, from, to, kind}].
export function Phases({ phases, lengthOf }) {
  const from = phases[0]?.from ?? 0;
  const whole = Math.max(1, (phases[phases.length - 1]?.to ?? 1) - from);
  return html`<svg class="phases" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label=${phases.map((each) => `${each.what}: ${lengthOf(each.to - each.from)}`).join("; ")}>
    ${phases.map((each) => html`<rect class=${`bar bar-${each.kind}`} x=${((each.from - from) / whole) * 1000} y="2" width=${Math.max(2, ((each.to - each.from) / whole) * 1000)} height="20">
      <title>${`${each.what}: ${lengthOf(each.to - each.from)}`}</title></rect>`)}
  </svg>`;
}
