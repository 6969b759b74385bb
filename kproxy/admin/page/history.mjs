// What the ticks said, one value a second for an hour. Rates are of all exchanges, latencies of those looked at.

import { addBuckets, family, quantile } from "./format.mjs";

export const SECONDS = 3600;
const MOST_OF = 100; // series of one sort: errors, rules, of APIs three sorts; the one that was silent longest goes
const SORT = /^(p\d+|error|rule) ./;
const COUNTED = /^(error|rule) ./; // what a tick does not name has not happened
const MINUTE = 60;
const PARTS = ["rule", "kproxy", "broker"];

export class History {
  constructor() {
    this.clear();
  }
  clear() {
    this.series = new Map();
    this.sorts = new Map(); // names of series by their sort; who was heard last stands last
    this.length = 0; // ticks that came so far; the newest is at (length - 1) % SECONDS
    this.minute = []; // the newest ticks whole
    this.step = 1.05; // factor between the bounds of two latency buckets
    this.last = null;
  }
  // Return the values of a series; it is made when it is first set. Those that are always there have room of their own:
  // clients choose how many APIs and errors there are.
  of(name) {
    const sort = SORT.exec(name)?.[1];
    if (sort) this.hear(name, sort);
    let found = this.series.get(name);
    if (!found) this.series.set(name, found = new Float64Array(SECONDS).fill(NaN));
    return found;
  }
  // Take note that a series of this sort goes on; of too many the one that was silent longest goes.
  hear(name, sort) {
    if (!this.sorts.has(sort)) this.sorts.set(sort, new Set());
    const heard = this.sorts.get(sort);
    heard.delete(name);
    heard.add(name);
    if (heard.size <= MOST_OF) return;
    const [silent] = heard;
    heard.delete(silent);
    this.series.delete(silent);
  }
  add(tick, time) {
    const at = this.length++ % SECONDS;
    for (const [name, values] of this.series) values[at] = COUNTED.test(name) ? 0 : NaN;
    const put = (name, value) => {
      const values = value === null || value === undefined ? null : this.of(name);
      if (values) values[at] = value;
    };
    const seconds = tick.seconds || 1;
    this.last = tick;
    this.minute.push(tick);
    if (this.minute.length > MINUTE) this.minute.shift();
    const rates = { data: 0, group: 0, other: 0 };
    let into = 0, out = 0, failed = 0;
    const all = new Map(), sums = { rule: 0, kproxy: 0, broker: 0 };
    for (const [api, [count, errors, bytesIn, bytesOut, latency]] of Object.entries(tick.apis ?? {})) {
      const kind = family(api);
      rates[kind === "data" || kind === "group" ? kind : "other"] += count;
      into += bytesIn;
      out += bytesOut;
      failed += errors;
      if (api !== "Fetch") {
        addBuckets(all, latency.buckets);
        for (const name of PARTS) sums[name] += latency[`${name}_ms`];
      }
      for (const q of [0.5, 0.9, 0.99]) put(`p${q * 100} ${api}`, quantile(this.step, latency.buckets, q));
    }
    put("time", time);
    for (const kind in rates) put(kind, rates[kind] / seconds);
    put("passed", tick.passed / seconds);
    put("matched", tick.matched / seconds);
    put("bytes in", into / seconds);
    put("bytes out", out / seconds);
    for (const q of [0.5, 0.9, 0.99]) put(`p${q * 100}`, quantile(this.step, all, q));
    const answered = [...all.values()].reduce((sum, one) => sum + one, 0);
    for (const name of PARTS) put(`mean ${name}`, answered ? sums[name] / answered : null);
    const named = Object.values(tick.errors ?? {}).reduce((sum, count) => sum + count, 0);
    put("errors", Math.max(named, failed) / seconds);
    for (const [name, count] of Object.entries(tick.errors ?? {})) put(`error ${name}`, count / seconds);
    put("throttle", tick.throttle_ms);
    put("connections", tick.connections);
    put("held memory", tick.held_bytes);
    put("audit waiting", tick.audit?.waiting);
    put("audit lost", tick.audit?.lost);
    for (const [name, [, fired]] of Object.entries(tick.rules ?? {})) put(`rule ${name}`, fired);
  }
  // Return the newest `most` values of a series, oldest first; null where there are none.
  values(name, most = SECONDS) {
    const series = this.series.get(name);
    const count = Math.min(this.length, SECONDS, most);
    if (!series) return new Array(count).fill(null);
    const found = new Array(count);
    for (let index = 0; index < count; index++) {
      const value = series[(this.length - count + index) % SECONDS];
      found[index] = Number.isNaN(value) ? null : value;
    }
    return found;
  }
  // Return of each API in the last minute: exchanges a second, three quantiles, and the parts of latency; busiest first.
  table() {
    const found = new Map();
    let seconds = 0;
    for (const tick of this.minute) {
      seconds += tick.seconds || 1;
      for (const [api, [count, errors, , , latency]] of Object.entries(tick.apis ?? {})) {
        const sum = found.get(api) ?? { api, count: 0, errors: 0, buckets: new Map(), parts: { rule: 0, kproxy: 0, broker: 0 } };
        sum.count += count;
        sum.errors += errors;
        addBuckets(sum.buckets, latency.buckets);
        for (const name of PARTS) sum.parts[name] += latency[`${name}_ms`];
        found.set(api, sum);
      }
    }
    return [...found.values()]
      .map(({ buckets, ...one }) => ({
        ...one, rate: seconds ? one.count / seconds : 0,
        p50: quantile(this.step, buckets, 0.5),
        p90: quantile(this.step, buckets, 0.9),
        p99: quantile(this.step, buckets, 0.99),
      }))
      .filter((row) => row.count)
      .sort((a, b) => b.count - a.count);
  }
}
