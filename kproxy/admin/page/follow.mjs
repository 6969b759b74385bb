// Following one thing: a filter as a crumb, and its lanes. A lane is a connection; requests go down, answers come up.

import { get } from "./api.mjs";
import { changed, html } from "./dom.mjs";
import { bytes, count, exactly, fine, ms } from "./format.mjs";
import { begin, rows } from "./live.mjs";
import { dot } from "./list.mjs";
import { breaks } from "./breaks.mjs";
import { closeDialog, command, openDialog, say, view } from "./registry.mjs";
import { go, select, state } from "./state.mjs";

const MOST = 500;
const LANES = 8;
const LINE = 18;
const PITCH = 5, ROOM = 60; // pixels from one bar to the next, and for all bars of a lane
const TOLD = new Set(["Produce", "InitProducerId", "Fetch", "JoinGroup", "OffsetCommit", "TxnOffsetCommit"]);
const AT_ONCE = 4;

const events = new Map(); // events of exchanges, by id
let asking = 0;

// Return what a row can be followed by: [words, filter, with lanes].
export function choices(row) {
  const found = [[`connection ${row.connection}`, `connection == ${row.connection}`, true]];
  const text = (words, field, value, lanes = false) => value && found.push([`${words} ${value}`, `${field} ~ ${exactly(value)}`, lanes]);
  text("group", "group", row.group, true);
  text("member", "member", row.member);
  if (row.producer_id !== null && row.producer_id >= 0) found.push([`producer id ${row.producer_id}`, `producer_id == ${row.producer_id}`, true]);
  text("transactional id", "transactional_id", row.transactional_id);
  if (row.topic && row.partition !== null) found.push([`${row.topic}[${row.partition}]`, `topic ~ ${exactly(row.topic)} and partition == ${row.partition}`, false]);
  text("topic", "topic", row.topic);
  text("client id", "client_id", row.client);
  return found;
}

// Follow: the crumb takes the place of one like it.
export function followBy([title, text, lanes]) {
  state.crumbs = [...state.crumbs.filter((one) => one.text !== text), { title, text, lanes }];
  events.clear();
  if (state.view !== "exchanges") go("exchanges");
  begin();
  say(`following ${title}${lanes ? "; Y shows its lanes" : ""}`);
}

const here = { group: "exchange", when: ({ row }) => row !== null, view: "exchanges" };
command({ ...here, key: "o", title: "Follow…", help: "follow its connection, group, producer, topic …", place: "exchange", order: 20, act: ({ row }) => {
  openDialog(() => html`<ul class="choices">${choices(row).map((choice, index) => html`<li key=${choice[1]}>
      <button autofocus=${index === 0} onClick=${() => { closeDialog(); followBy(choice); }}><b>${choice[0]}</b> <code>${choice[1]}</code></button></li>`)}</ul>
    <p class="foot"><button class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`, { title: "Follow what?" });
} });
command({ ...here, key: "c", title: "Follow", help: "follow its connection", place: "connection", act: ({ row }) => followBy(choices(row)[0]) });
command({ key: "Y", title: "Lanes", group: "filter", help: "lanes of what is followed: requests down, answers up", place: "filter",
  when: () => state.crumbs.some((one) => one.lanes), act: () => go("lanes") });
command({ key: "u", title: "Follow no more", group: "filter", help: "follow no more", when: () => state.crumbs.length > 0, act: () => {
  state.crumbs = [];
  begin();
} });

view({ name: "lanes", title: "Lanes", order: 15, draw, hidden: () => !state.crumbs.some((one) => one.lanes) });

// Return the moments of all exchanges in the order of their times, their columns, and the bars between them.
export function layout(list) {
  const lanes = [...new Set(list.map((row) => row.connection))].slice(0, LANES);
  const moments = [];
  for (const row of list) {
    const lane = lanes.indexOf(row.connection);
    if (lane < 0) continue;
    moments.push({ row, lane, time: row.time, down: true });
    if (row.latency !== null && row.outcome === "answered") moments.push({ row, lane, time: row.time + row.latency / 1000, down: false });
  }
  moments.sort((a, b) => a.time - b.time);
  const bars = new Map();
  const free = lanes.map(() => []);
  moments.forEach((moment, line) => {
    const { row, lane, down } = moment;
    if (down) {
      let slot = free[lane].findIndex((used) => !used);
      if (slot < 0) slot = free[lane].length;
      free[lane][slot] = true;
      bars.set(row.id, { row, lane, slot, from: line, to: row.outcome === null ? moments.length : line });
      if (row.outcome !== "answered" && row.outcome !== null) free[lane][slot] = false;
    } else {
      const bar = bars.get(row.id);
      bar.to = line;
      free[lane][bar.slot] = false;
    }
  });
  return { lanes, moments, bars: [...bars.values()], slots: free.map((one) => one.length) };
}

function followed() {
  const found = [];
  for (let place = rows.next - 1; place >= rows.first && found.length < MOST; place--) {
    if (!rows.isNote(place)) found.push(rows.row(place));
  }
  return found.reverse();
}

// Ask for the events of exchanges that tell offsets, epochs and sequence numbers; a few at a time.
async function learn(list) {
  for (const row of list) {
    if (asking >= AT_ONCE) return;
    if (!TOLD.has(row.api) || events.has(row.id) || !row.kept || row.outcome === null) continue;
    events.set(row.id, null);
    if (events.size > 2 * MOST) events.delete(events.keys().next().value);
    asking++;
    get(`/api/exchanges/${encodeURIComponent(row.id)}?${new URLSearchParams({ source: state.source })}`)
      .then(({ event }) => events.set(row.id, event)).catch(() => null)
      .finally(() => { asking--; changed(); });
  }
}

function draw() {
  const list = followed();
  const { lanes, moments, bars, slots } = layout(list);
  const pitch = slots.map((count) => Math.min(PITCH, ROOM / Math.max(1, count))); // of many at a time the bars move together
  const shift = slots.map((count, lane) => Math.max(26, count * pitch[lane] + 8)); // where the texts begin
  learn(list);
  const notes = breaks(list.map((row) => [row.id, events.get(row.id)]).filter(([, event]) => event));
  const width = `${lanes.length || 1}`;
  const name = state.crumbs.map((one) => one.title).join(", ") || "all";
  return html`<main class="page" aria-label="Lanes"><div class="tools"><h2>Lanes: ${name}</h2>
    <span class="dim">${count(list.length, "exchange")}${list.length === MOST ? ", the newest" : ""} on ${count(lanes.length, "connection")} · ↓ request, ↑ answer</span>
    <button onClick=${() => go("exchanges")}>Back to the list</button></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Lanes"><div class="lanes" style=${{ "--lanes": width }}>
      <div class="lane-heads">${lanes.map((one) => html`<h3 key=${one}><i class=${dot(one)}></i>connection ${one} <span>${list.find((row) => row.connection === one)?.client ?? ""}</span></h3>`)}</div>
      <div class="moments" style=${{ height: `${moments.length * LINE}px` }}>
      ${bars.map(({ row, lane, slot, from, to }) => html`<i key=${row.id} class=${`bar ${row.errors.length ? "failed" : row.rules.length ? "by-rule" : ""}`}
        style=${{ left: `calc(66px + (100% - 66px) / ${width} * ${lane} + ${(slot * pitch[lane]).toFixed(1)}px)`, top: `${from * LINE + 3}px`, height: `${Math.max(1, to - from + 1) * LINE - 6}px` }}></i>`)}
      ${moments.map((moment, line) => html`<div class="moment" key=${`${moment.row.id}${moment.down}`} style=${{ top: `${line * LINE}px` }}><span class="o">${fine(moment.time, true)}</span>
        <button style=${{ left: `calc(66px + (100% - 66px) / ${width} * ${moment.lane} + ${shift[moment.lane]}px)`, "max-width": `calc((100% - 66px) / ${width} - ${shift[moment.lane] + 4}px)` }} onClick=${() => { select(moment.row.id); go("exchanges", { f: state.filter, x: moment.row.id }); }}>
        ${moment.down ? html`↓ <b>${moment.row.api}</b> ${moment.row.about ?? ""}` : html`<span class="dim">↑ ${bytes(moment.row.response)} · ${ms(moment.row.latency)}</span> <span class="bad">${moment.row.errors.join(", ")}</span>`}
        ${moment.down && notes.get(moment.row.id)?.map((text) => html` <em class="tag warn">${text}</em>`)}</button></div>`)}</div></div></div></main>`;
}

