// What the page has of the proxy: its rows, its ticks, and how the stream is doing.

import { get, pageId, request } from "./api.mjs";
import { changed } from "./dom.mjs";
import { count } from "./format.mjs";
import { History } from "./history.mjs";
import { complain, emit } from "./registry.mjs";
import { state, wholeFilter } from "./state.mjs";
import { Rows } from "./store.mjs";
import { Stream } from "./stream.mjs";

const RATE = 400;
const MOST_WAITING = 10000; // rows that come while the page is paused
const OLDER = 1000; // rows that were kept before the page was opened, or its filter changed
const MOST_OF_SOURCE = 50000;
const HIDDEN = 60000;
const PATIENCE = 3000;

export const rows = new Rows();
export const history = new History();
export const live = {
  state: "connecting", // connecting, live, lost, refused, closed, source
  error: null,
  hello: null,
  paused: false,
  waiting: [], // rows that came meanwhile
  left: { not_looked_at: 0, too_many: 0, too_slow: 0, unknown: 0 },
  why: "",
  shown: 0, // rows a second
  searched: null, // of a source: whether all was looked at
};

let names = [];
let filling = null; // rows of the stream that wait for older ones
let arrived = 0;
let wake = null;
let run = 0;
let opened = () => {}; // resolves what waits for the stream

const stream = new Stream({
  open: (headers, signal) => {
    const asked = new URLSearchParams({ filter: wholeFilter(), rows: RATE, page: pageId() });
    return request(`/api/view?${asked}`, { headers, signal });
  },
  tell,
  turned: (now, error) => {
    live.state = now;
    live.error = error ?? null;
    if (now === "live") live.error = null;
    if (now === "refused") opened();
    changed();
  },
  ready: () => (live.paused && live.waiting.length >= MOST_WAITING ? new Promise((go) => { wake = go; }) : null),
});

function tell(event, data) {
  if (event === "hello") hello(data);
  else if (event === "rows") take(data.rows);
  else if (event === "tick") tick(data);
  else if (event === "left") left(data);
  else if (event === "gap") gap(data);
  emit(event, data);
}

function hello(data) {
  const again = live.hello !== null;
  opened();
  live.hello = data;
  history.step = data.latency_step ?? history.step;
  names = data.columns;
  if (again) emit("resumed", data);
}

function take(list) {
  arrived += list.length;
  for (const row of list) put(row);
}

// Add a row or a note, now or when older rows are here, or when the page goes on.
function put(one) {
  if (filling) filling.push(one);
  else if (live.paused) live.waiting.push(one);
  else keep(one);
}

function keep(one) {
  if (one.note) rows.note(one.note, Date.now() / 1000);
  else rows.add(one, names);
}

function tick(data) {
  history.add(data, Date.now() / 1000);
  live.shown = arrived / (data.seconds || 1);
  arrived = 0;
}

function left(data) {
  for (const name in live.left) live.left[name] += data[name] ?? 0;
  if (data.why) live.why = data.why;
}

function gap(data) {
  const missing = data.missing ? `${count(data.missing, "row")} ${data.missing === 1 ? "is" : "are"} missing` : "rows are missing";
  put({ note: data.why ? `${missing}: ${data.why}` : missing });
}

// Begin anew with the filter and the source in force: older rows first, as far as the proxy has kept them.
export async function begin() {
  const mine = ++run;
  rows.clear();
  live.waiting = [];
  arrived = 0;
  const source = state.source;
  filling = [];
  if (source === "live") {
    const open = new Promise((go) => { opened = go; });
    stream.start();
    changed();
    await Promise.race([open, new Promise((go) => setTimeout(go, PATIENCE))]); // first, so that none falls between
    if (run !== mine) return;
  } else {
    stream.close();
    live.state = "source";
  }
  changed();
  const found = [];
  try {
    if (live.state !== "refused") await older(source, found, () => run === mine);
  } catch (error) {
    if (run === mine && error.status !== 404) complain(error);
  }
  if (run !== mine) return;
  const late = filling;
  filling = null;
  const known = new Set(late.map(idOf));
  for (let at = found.length - 1; at >= 0; at--) if (!known.has(idOf(found[at]))) rows.add(found[at], names);
  for (const one of late) put(one);
  emit("filter", wholeFilter());
}

// Return the id of a row as it came; undefined for a note.
export function idOf(row) {
  return row[names.indexOf("id")];
}

// Put rows that the proxy or a source has kept behind `found`, newest first.
async function older(source, found, wanted) {
  const most = source === "live" ? OLDER : MOST_OF_SOURCE;
  let before = null;
  while (found.length < most && wanted()) {
    const asked = new URLSearchParams({ source, filter: wholeFilter(), limit: source === "live" ? 200 : 1000 });
    if (before !== null) asked.set("before", before);
    const page = await get(`/api/exchanges?${asked}`);
    names = page.columns;
    for (const row of page.rows) found.push(row);
    before = page.next ?? null;
    if (before === null) return;
  }
}

// Stop to add rows, or go on with those that came meanwhile.
export function pause(paused = !live.paused) {
  live.paused = paused;
  if (!paused) {
    const waiting = live.waiting;
    live.waiting = [];
    for (const one of waiting) put(one);
    wake?.();
    wake = null;
  }
  changed();
}

export function leftOut() {
  return Object.values(live.left).reduce((sum, count) => sum + count, 0);
}

// Forget all rows that are here.
export function clear() {
  rows.clear();
  live.waiting = [];
  changed();
}

// Functions that return true while the stream has to stay open in a hidden page.
export const needed = [];

let hidden = null;
function rest() {
  if (needed.some((one) => one())) hidden = setTimeout(rest, HIDDEN);
  else stream.close();
}
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(rest, HIDDEN);
  } else if (stream.closed && state.source === "live" && live.state === "closed") {
    stream.start(stream.place);
  }
});

