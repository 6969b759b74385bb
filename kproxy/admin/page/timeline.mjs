// What the strip and the table of the rail show: of a running proxy what the ticks said, of an opened capture what its
// rows say, by the capture's own clock.

import { family } from "./format.mjs";
import { history, rows } from "./live.mjs";
import { state } from "./state.mjs";

const SLOTS = 300; // points of the strip
const KINDS = ["data", "group", "other"];
const PERCENTILES = [0.5, 0.9, 0.99];
const LEAST = 1; // seconds that the strip of a capture has at least

// Return the time of now: of a capture, that of its last row.
export function now() {
  if (state.source === "live") return Date.now() / 1000;
  return rows.count ? file().to : 0;
}

// Return the value that a share of these sorted values does not exceed: one of the values, null without any.
export function ranked(sorted, share) {
  return sorted.length ? sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] : null;
}

// Return {from, to, count, values}: `count` points up to `to`, with rates a second, p99 without Fetch, and errors.
export function timeline() {
  if (state.source !== "live") return rows.count ? file() : { from: 0, to: 0, count: 0, values: {} };
  const to = history.values("time", 1)[0] ?? Date.now() / 1000;
  const values = Object.fromEntries([...KINDS, "p99", "errors"].map((name) => [name, history.values(name, SLOTS)]));
  return { from: to - SLOTS, to, count: Math.min(history.length, SLOTS), values };
}

// Return {seconds, rows} with the rate, percentiles and mean parts of each API, busiest first.
export function byApi() {
  return state.source === "live" ? { title: "Last minute", rows: history.table() } : { title: "This file", rows: rows.count ? file().apis : [] };
}

// Work out the timeline of the opened capture, again only when its rows have changed.
function file() {
  const key = `${state.source} ${rows.cleared} ${rows.first} ${rows.next}`;
  if (file.key === key) return file.made;
  let from = Infinity, last = -Infinity;
  for (let place = rows.first; place < rows.next; place++) {
    const time = rows.isNote(place) ? NaN : rows.number(place, "time");
    if (time < from) from = time;
    if (time > last) last = time;
  }
  if (from === Infinity) from = last = 0;
  const to = Math.max(last, from + LEAST);
  const step = (to - from) / SLOTS;
  const values = Object.fromEntries([...KINDS, "errors"].map((name) => [name, new Array(SLOTS).fill(0)]));
  const latencies = Array.from({ length: SLOTS }, () => []);
  const apis = new Map();
  for (let place = rows.first; place < rows.next; place++) {
    const time = rows.isNote(place) ? NaN : rows.number(place, "time");
    if (Number.isNaN(time)) continue;
    const api = rows.text(place, "api") ?? "", kind = family(api), latency = rows.number(place, "latency");
    const at = Math.min(SLOTS - 1, Math.floor((time - from) / step));
    const failed = rows.list(place, "errors").length > 0;
    values[kind === "data" || kind === "group" ? kind : "other"][at] += 1 / step;
    values.errors[at] += failed ? 1 / step : 0;
    const one = apis.get(api) ?? { api, count: 0, errors: 0, latencies: [], parts: { rule: 0, broker: 0, kproxy: 0 } };
    apis.set(api, one);
    one.count += 1;
    one.errors += failed;
    if (Number.isNaN(latency)) continue;
    if (api !== "Fetch") latencies[at].push(latency);
    one.latencies.push(latency);
    for (const name in one.parts) one.parts[name] += rows.number(place, `${name}_ms`) || 0;
  }
  values.p99 = latencies.map((list) => ranked(list.sort((a, b) => a - b), 0.99));
  const table = [...apis.values()].sort((a, b) => b.count - a.count).map(({ latencies: list, ...one }) => {
    list.sort((a, b) => a - b);
    const [p50, p90, p99] = PERCENTILES.map((share) => ranked(list, share));
    return { ...one, rate: one.count / (to - from), p50, p90, p99 };
  });
  Object.assign(file, { key, made: { from, to, count: SLOTS, values, apis: table } });
  return file.made;
}
