// Numbers, times and bytes as text, and what API belongs where.

import { inExpression } from "./printable.mjs";

const FAMILIES = {
  data: ["Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords", "ShareFetch", "ShareAcknowledge"],
  group: ["OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
    "DescribeGroups", "ListGroups", "OffsetDelete", "DeleteGroups", "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe", "ShareGroupHeartbeat", "ShareGroupDescribe", "StreamsGroupHeartbeat",
    "StreamsGroupDescribe"],
  transaction: ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers",
    "TxnOffsetCommit", "DescribeProducers", "DescribeTransactions", "ListTransactions"],
  metadata: ["Metadata", "ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster",
    "DescribeTopicPartitions", "GetTelemetrySubscriptions", "PushTelemetry"],
};
const FAMILY = new Map(Object.entries(FAMILIES).flatMap(([family, apis]) => apis.map((api) => [api, family])));

// Return data, group, transaction, metadata or admin.
export function family(api) {
  return FAMILY.get(api) ?? "admin";
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value) {
  return value === null || value === undefined || Number.isNaN(value) ? "" : whole.format(value);
}

// Return `1 rule`, `1,204 rules`.
export function count(value, word) {
  return `${number(value)} ${word}${value === 1 ? "" : "s"}`;
}

// Return a rate: `0.3`, `12`.
export function rate(value) {
  return value === null || value === undefined || Number.isNaN(value) ? "" : value > 0 && value < 9.95 ? value.toFixed(1) : number(value);
}

// Return `210`, `4.1 kB`, `1.1 MB`.
export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (value < 1000) return String(value);
  for (const [unit, factor] of [["kB", 1e3], ["MB", 1e6], ["GB", 1e9]]) {
    if (value < factor * 999.5 || unit === "GB") return `${(value / factor).toFixed(1)} ${unit}`;
  }
}

// Return milliseconds in a few characters: `0.61 ms`, `3.1 ms`, `253 ms`, `2.5 s`.
export function ms(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (value >= 9999.5) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 999.5) return `${(value / 1000).toFixed(2)} s`;
  if (value >= 99.5) return `${value.toFixed(0)} ms`;
  if (value >= 0.995) return `${value.toFixed(value >= 9.95 ? 1 : 1)} ms`;
  return `${value.toFixed(2)} ms`;
}

// Return seconds as a person says them: `42 s`, `9 min`, `3 h`.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

const two = (value) => String(value).padStart(2, "0");

// Return a time in seconds since 1970 as `14:22:07`.
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Return the same with milliseconds; `short` leaves hours and minutes out.
export function fine(seconds, short = false) {
  const at = new Date(Math.round(seconds * 1000));
  const rest = `${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  return short ? rest : `${two(at.getHours())}:${two(at.getMinutes())}:${rest}`;
}

// Return a time as the filter language has it, in UTC.
export function utc(seconds) {
  return new Date(seconds * 1000).toISOString().replace(/Z$/, "");
}

// Return `text` as a value of the filter language, with quotes where it needs them.
export function quoted(text) {
  return /^[\w.:@/-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

// Return an expression that finds this text and nothing else.
export function exactly(text) {
  return quoted(`^${inExpression(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))}$`);
}

// Cut a text that is longer than `most` characters.
export function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// Return the bytes of base64.
export function fromBase64(text) {
  const letters = atob(text ?? "");
  const found = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) found[at] = letters.charCodeAt(at);
  return found;
}

export const hex2 = (value) => value.toString(16).padStart(2, "0");

// Return the milliseconds that the share `q` of latencies did not exceed, at most 5 % too little and never too much; null
// without latencies. `counts`: [bucket, count] pairs; bucket `n` has the latencies above step ** (n - 1) ms.
export function quantile(step, counts, q) {
  const sorted = [...counts].sort((a, b) => a[0] - b[0]);
  let left = Math.ceil(q * sorted.reduce((sum, [, count]) => sum + count, 0));
  for (const [bucket, count] of sorted) {
    left -= count;
    if (left <= 0) return step ** (bucket - 1);
  }
  return null;
}

// Add [bucket, count] pairs to a Map of counts, and return it.
export function addBuckets(sum, counts) {
  for (const [bucket, count] of counts) sum.set(bucket, (sum.get(bucket) ?? 0) + count);
  return sum;
}
