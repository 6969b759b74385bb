// The view of charts: what the ticks said, an hour at most, with one cursor for all.

import uPlot from "./vendor/uPlot.esm.js";
import { Component, changed, html } from "./dom.mjs";
import { bytes, clock, ms, number, rate } from "./format.mjs";
import { SECONDS } from "./history.mjs";
import { history } from "./live.mjs";
import { on, view } from "./registry.mjs";

const HEIGHT = 150;
const MOST_LINES = 6;
const COLOURS = ["--blue", "--amber", "--green", "--violet", "--teal", "--red", "--dim"];
const SPANS = [[300, "5 min"], [900, "15 min"], [SECONDS, "1 h"]];

const shown = { span: 300, turns: 0, log: true }; // `log`: latencies on a logarithmic scale

view({ name: "charts", proxy: true, title: "Charts", order: 50, draw });

// Return the range of a linear axis: from 0 to a twentieth above the highest value.
export function linearRange(high) {
  return [0, high > 0 ? high * 1.05 : 1];
}

// Return the range of a logarithmic axis: whole decades around the values, one at least.
export function logRange(low, high) {
  if (!(high > 0)) return [1, 10];
  const from = Math.floor(Math.log10(low > 0 ? low : high)), to = Math.ceil(Math.log10(high));
  return [10 ** from, 10 ** Math.max(to, from + 1)];
}

// Charts by title: which series, how a value is written. `all`: series with this beginning, those with most first. `log`:
// on a logarithmic scale, unless that is turned off.
const CHARTS = [
  { title: "Exchanges a second", series: ["passed", "matched"], write: rate },
  { title: "Bytes a second", series: ["bytes in", "bytes out"], write: bytes },
  { title: "Client-side latency, without Fetch", series: ["p50", "p90", "p99"], write: ms, log: true },
  { title: "Mean latency by part, without Fetch", series: ["mean rule", "mean kproxy", "mean broker"], write: ms },
  { title: "p50 by API", all: "p50 ", write: ms, log: true },
  { title: "p90 by API", all: "p90 ", write: ms, log: true },
  { title: "p99 by API", all: "p99 ", write: ms, log: true },
  { title: "Errors a second, of those looked at", all: "error ", write: rate },
  { title: "Throttle time in responses, ms per second", series: ["throttle"], write: ms },
  { title: "Connections", series: ["connections"], write: number },
  { title: "Rules fired a second", all: "rule ", write: rate },
  { title: "Memory held", series: ["held memory"], write: bytes },
  { title: "Audit: lines that wait, and lost ones", series: ["audit waiting", "audit lost"], write: number },
];

function linesOf(chart) {
  if (chart.series) return chart.series.filter((name) => history.series.has(name)).map((name) => [name, name]);
  const names = [...history.series.keys()].filter((name) => name.startsWith(chart.all));
  const weight = (name) => history.values(name, shown.span).reduce((sum, value) => sum + (value ?? 0), 0);
  return names.map((name) => [name, weight(name)]).sort((a, b) => b[1] - a[1]).slice(0, MOST_LINES)
    .map(([name]) => [name, name.slice(chart.all.length)]);
}

// A chart that is made once for its lines, and given other data each second.
class Chart extends Component {
  constructor() {
    super();
    this.keep = (element) => { this.element = element; };
  }
  componentDidMount() {
    this.watch = new ResizeObserver(() => this.plot?.setSize({ width: this.element.clientWidth, height: HEIGHT }));
    this.watch.observe(this.element);
    this.fill();
  }
  componentDidUpdate() {
    this.fill();
  }
  componentWillUnmount() {
    this.watch.disconnect();
    this.plot?.destroy();
  }
  fill() {
    const { chart, turn } = this.props;
    const lines = linesOf(chart);
    const key = `${lines.map(([name]) => name)} ${turn}`;
    const data = [history.values("time", shown.span), ...lines.map(([name]) => history.values(name, shown.span))];
    if (this.key === key) {
      if (this.last !== history.length || this.span !== shown.span) this.plot?.setData(data);
    } else {
      this.key = key;
      this.plot?.destroy();
      this.plot = lines.length ? new uPlot(this.options(chart, lines), data, this.element) : null;
    }
    this.last = history.length;
    this.span = shown.span;
  }
  options(chart, lines) {
    const colour = (name) => { // as the theme in force has it: what a canvas takes is no variable
      this.element.style.color = `var(${name})`;
      return getComputedStyle(this.element).color;
    };
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "10px sans-serif" };
    return {
      width: this.element.clientWidth || 400, height: HEIGHT,
      cursor: { sync: { key: "kproxy" }, drag: { x: false, y: false } },
      legend: { live: true },
      scales: {
        x: { range: (plot, first, last) => [(last ?? 0) - shown.span, last ?? 0] },
        y: chart.log && shown.log ? { distr: 3, log: 10, range: (plot, low, high) => logRange(low, high) } : { range: (plot, low, high) => linearRange(high) },
      },
      axes: [{ ...axis, size: 24, values: (plot, times) => times.map((time) => clock(time).slice(0, shown.span > 900 ? 5 : 8)) },
        { ...axis, size: 62, values: (plot, values) => values.map((value) => (value === null ? "" : chart.write(value))) }],
      series: [{ value: (plot, time) => (time === null ? "" : clock(time)) }, ...lines.map(([, label], index) => ({
        label, stroke: colour(COLOURS[index]), width: 1.3, points: { show: false }, spanGaps: true,
        value: (plot, value) => (value === null || value === undefined ? "–" : chart.write(value)),
      }))],
    };
  }
  render({ chart }) {
    return html`<figure class="chart"><figcaption>${chart.title}</figcaption><div ref=${this.keep} aria-hidden="true"></div>
      ${!linesOf(chart).length && html`<p class="nothing">nothing so far</p>`}
      <p class="sr">${linesOf(chart).map(([name, label]) => `${label}: ${chart.write(history.values(name, 1)[0]) || "none"}`).join(", ")}</p></figure>`;
  }
}

function draw() {
  return html`<main class="page" aria-label="Charts"><div class="tools"><h2>Charts</h2><span class="dim">rates of all exchanges; latencies, bytes and errors of those looked at</span>
    <button class="log" aria-pressed=${String(shown.log)} onClick=${() => { shown.log = !shown.log; shown.turns++; changed(); }}>Log scale of latencies</button>
    <span class="spans" role="group" aria-label="Time">${SPANS.map(([span, text]) => html`<button aria-pressed=${String(span === shown.span)} onClick=${() => { shown.span = span; shown.turns++; changed(); }}>${text}</button>`)}</span></div>
    <div class="scroll charts" tabindex="0" role="region" aria-label="Charts">${CHARTS.map((chart) => html`<${Chart} key=${chart.title} chart=${chart} turn=${shown.turns} />`)}</div></main>`;
}

on("theme", () => { shown.turns++; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { shown.turns++; });
