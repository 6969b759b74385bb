// The strip above the list: rates, the 99th percentile and errors of five minutes, or of an opened capture. A drag over it
// chooses a time.

import { Component, changed, html } from "./dom.mjs";
import { clock, fine, ms, number } from "./format.mjs";
import { live } from "./live.mjs";
import { command } from "./registry.mjs";
import { state } from "./state.mjs";
import { timeline } from "./timeline.mjs";

const POINTS = 300;
const WIDTH = 1000, HEIGHT = 44;
const KINDS = ["data", "group", "other"];

// Return the shapes of the strip: an area of each kind of API, the line of p99, bars of errors.
export function shapes(values, count) {
  const step = WIDTH / (POINTS - 1), from = WIDTH - (count - 1) * step;
  const sums = Array.from({ length: count }, (_, at) => KINDS.reduce((sum, kind) => sum + (values[kind][at] ?? 0), 0));
  const top = Math.max(1, ...sums) * 1.1;
  const x = (at) => (from + at * step).toFixed(1);
  let below = new Array(count).fill(0);
  const areas = KINDS.map((kind) => {
    const above = below.map((low, at) => low + (values[kind][at] ?? 0));
    const points = [...above.map((value, at) => `${x(at)},${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`),
      ...below.map((value, at) => `${x(at)},${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`).reverse()].join(" ");
    below = above;
    return { kind, points };
  });
  const p99 = values.p99;
  const high = Math.log10(Math.max(10, ...p99.map((value) => value ?? 0)) + 1);
  const line = p99.map((value, at) => (value === null ? null
    : `${x(at)},${(HEIGHT - 2 - (Math.log10(value + 1) / high) * (HEIGHT - 6)).toFixed(1)}`)).filter(Boolean).join(" ");
  const errors = values.errors.flatMap((value, at) => (value > 0 ? [{ x: x(at), height: Math.min(14, 4 + 3 * Math.log10(1 + value)) }] : []));
  return { areas, line, errors, step };
}

export class Strip extends Component {
  constructor() {
    super();
    this.keep = (element) => { this.element = element; };
    this.down = (event) => {
      this.element.setPointerCapture(event.pointerId);
      this.from = this.timeAt(event);
    };
    this.moved = (event) => {
      if (this.from === undefined) return;
      const to = this.timeAt(event);
      this.choose(Math.min(this.from, to), Math.max(this.from, to));
    };
    this.up = (event) => {
      const to = this.timeAt(event);
      const { from: first, to: last } = timeline();
    const least = (last - first) / POINTS;
    if (this.from !== undefined && Math.abs(to - this.from) < least) this.choose(to - 5 * least, to + 5 * least);
      this.from = undefined;
    };
  }
  timeAt(event) {
    const { left, width } = this.element.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - left) / width));
    const { from, to } = timeline();
    return from + part * (to - from);
  }
  choose(from, to) {
    state.range = [from, to];
    state.follow = false;
    changed();
  }
  render() {
    const { from, to, count, values } = timeline();
    const span = to - from;
    const { areas, line, errors } = count ? shapes(values, count) : { areas: [], line: "", errors: [] };
    const last = (name) => values[name]?.[count - 1];
    const chosen = state.range?.map((time) => WIDTH - ((to - time) / span) * WIDTH);
    const where = live.state === "source" ? "in this file" : "in the last five minutes";
    const label = count
      ? `Exchanges a second ${where}: at its end ${number(last("data") + last("group") + last("other"))}, p99 ${ms(last("p99")) || "unknown"}`
      : `Exchanges a second ${where}: nothing so far`;
    const time = span < 60 ? (at) => fine(at) : clock;
    return html`<section class="strip" aria-label="Overview"><svg ref=${this.keep} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none" role="img" aria-label=${label} onPointerDown=${this.down} onPointerMove=${this.moved} onPointerUp=${this.up}>
      ${[1, 2, 3, 4].map((part) => html`<path class="grid" d=${`M${part * 200} 0V${HEIGHT}`} />`)}
      ${areas.map(({ kind, points }) => html`<polygon class=${`area ${kind}`} points=${points} />`)}
      <polyline class="p99" points=${line} />
      ${errors.map((one) => html`<rect class="error" x=${one.x} y=${HEIGHT - one.height} width="3" height=${one.height} />`)}
      ${chosen && html`<rect class="chosen" x=${Math.max(0, chosen[0])} y="0" width=${Math.max(2, chosen[1] - Math.max(0, chosen[0]))} height=${HEIGHT} />`}
      </svg>
      <div class="axis">${[0, 1, 2, 3, 4, 5].map((part) => html`<span>${to ? time(from + (part / 5) * span) : ""}</span>`)}</div>
      <div class="key"><span><i class="data"></i>data</span><span><i class="group"></i>groups</span><span><i class="other"></i>other</span>
      <span title="client-side latency, without Fetch, which waits for records"><i class="p99"></i>p99 ${ms(last("p99"))}</span><span><i class="error"></i>errors</span></div></section>`;
  }
}

// Choose the last minute, or all times: for those without a mouse.
command({ key: "t", title: "Time", group: "filter", view: "exchanges", help: "the last minute only, then the last ten seconds, then all times",
  act: () => {
    const now = timeline().to;
    const far = state.range === null ? 60 : state.range[1] - state.range[0] > 30 ? 10 : null;
    state.range = far === null ? null : [now - far, now];
    if (far === null) state.follow = live.state !== "source";
    changed();
  } });
