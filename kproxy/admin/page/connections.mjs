// The view of connections: those that are open, asked for every two seconds while they are shown.

import { get, send } from "./api.mjs";
import { askFirst } from "./confirm.mjs";
import { changed, html } from "./dom.mjs";
import { bytes, clock, count, duration, number } from "./format.mjs";
import { mayUse, use } from "./keys.mjs";
import { begin, history } from "./live.mjs";
import { command, commands, complain, say, view } from "./registry.mjs";
import { dot } from "./list.mjs";
import { go, state } from "./state.mjs";

const EVERY = 2000;
const AT_ONCE = 500;
const shown = { list: [], ended: [], chosen: null, timer: null, most: AT_ONCE };

view({ name: "connections", proxy: true, title: "Connections", order: 20, draw, badge: () => history.last?.connections ?? null,
  enter: () => { clearInterval(shown.timer); ask(); shown.timer = setInterval(ask, EVERY); }, leave: () => { clearInterval(shown.timer); shown.chosen = null; } });

async function ask() {
  if (document.hidden) return;
  try {
    const [{ connections }, { ended }] = await Promise.all([get("/api/connections"), get("/api/connections/ended")]);
    Object.assign(shown, { list: connections, ended });
    changed();
  } catch (error) {
    if (error.status !== 404) complain(error);
  }
}

function choose(id) {
  shown.chosen = id;
  changed();
}

function move(step) {
  const at = shown.list.findIndex((one) => one.id === shown.chosen);
  const next = shown.list[Math.min(shown.list.length - 1, Math.max(0, at + step))];
  if (next) choose(next.id);
  requestAnimationFrame(() => document.querySelector(".table [aria-selected=true]")?.scrollIntoView({ block: "nearest" }));
}

const HEADS = ["#", "client id", "address", "library", "principal", "listener", "goes to", "since", "in flight", "from client", "from broker", "names", "state"];

function draw() {
  return html`<main class="page" aria-label="Connections"><div class="tools"><h2>${count(shown.list.length, "connection")}</h2>${tools()}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Open connections"><table class="table" role="grid" aria-label="Connections"><thead><tr role="row">${HEADS.map((text) => html`<th role="columnheader" scope="col">${text}</th>`)}</tr></thead>
    <tbody>${shown.list.slice(0, shown.most).map((one) => html`<tr role="row" key=${one.id} aria-selected=${String(one.id === shown.chosen)} onClick=${() => choose(one.id)} onDblClick=${() => followIt(one.id)}>
      <td role="gridcell"><i class=${dot(one.id)}></i>${one.id}</td><td role="gridcell">${one.client_id ?? ""}</td><td role="gridcell">${one.client}</td><td role="gridcell">${one.software ?? ""}</td><td role="gridcell">${one.principal ?? ""}</td><td role="gridcell">${one.listener}</td>
      <td role="gridcell">${one.node === null ? "bootstrap" : `node ${one.node}`} <span class="dim">${one.broker ?? "not connected yet"}</span></td><td role="gridcell">${clock(Date.parse(one.since) / 1000)}</td>
      <td role="gridcell" class="r">${number(one.in_flight)}</td><td role="gridcell" class="r">${bytes(one.client_bytes)}</td><td role="gridcell" class="r">${bytes(one.broker_bytes)}</td>
      <td role="gridcell">${one.rules.map((name) => html`<em class="tag">${name}</em>`)}</td><td role="gridcell">${one.leaving ? "leaving" : one.outdated ? html`<span class="slow">outdated names</span>` : ""}</td></tr>`)}</tbody></table>
    ${shown.list.length > shown.most && html`<button onClick=${() => { shown.most += AT_ONCE; changed(); }}>${number(shown.list.length - shown.most)} more</button>`}
    ${ends()}</div></main>`;
}

const END_HEADS = ["ended", "#", "client id", "address", "lasted", "listener", "went to", "from client", "from broker", "why", "whose doing"];

// Show why the last connections ended.
function ends() {
  if (!shown.ended.length) return "";
  const lasted = (one) => duration((Date.parse(one.ended) - Date.parse(one.since)) / 1000);
  return html`<h2>Why the last ${number(shown.ended.length)} ended</h2><table class="table ended" aria-label="Ended connections"><thead><tr>${END_HEADS.map((text) => html`<th scope="col" key=${text}>${text}</th>`)}</tr></thead>
    <tbody>${shown.ended.map((one) => html`<tr key=${one.id}><td>${clock(Date.parse(one.ended) / 1000)}</td><td><i class=${dot(one.id)}></i>${one.id}</td><td>${one.client_id ?? ""}</td><td>${one.client}</td><td>${lasted(one)}</td>
      <td>${one.listener}</td><td>${one.node === null ? "bootstrap" : `node ${one.node}`} <span class="dim">${one.broker ?? "never connected"}</span></td><td>${bytes(one.client_bytes)}</td><td>${bytes(one.broker_bytes)}</td>
      <td class=${one.blame ? "bad" : ""}>${one.reason || one.cause}</td><td>${one.blame}</td></tr>`)}</tbody></table>`;
}

function tools() {
  return commands.filter((one) => one.place === "connections" && mayUse(one)).map((one) => html`
    <button class=${one.warns ? "warns" : ""} disabled=${shown.chosen === null && !one.all} onClick=${() => use(one)}>${one.title}<kbd>${one.keys[0]}</kbd></button>`);
}

function followIt(id) {
  state.crumbs = [{ title: `connection ${id}`, text: `connection == ${id}`, lanes: true }];
  begin();
  go("exchanges");
}

function confirm(title, words, label, act) {
  askFirst(title, words, [[label, () => act().then(ask)]]);
}

export function recycle(id) {
  confirm(`Recycle connection ${id}?`, "It is closed once its requests in flight are answered. Its client comes back under the rules in force now.", "Recycle",
    async () => { await send("POST", `/api/connections/${id}/recycle`); say(`connection ${id} is being recycled`); });
}

export function close(id) {
  confirm(`Close connection ${id}?`, `It is closed now, with ${shown.list.find((one) => one.id === id)?.in_flight ?? "some"} requests in flight.`, "Close connection",
    async () => { await send("DELETE", `/api/connections/${id}`); say(`connection ${id} was closed`); });
}

const here = { group: "page", view: "connections" };
command({ ...here, key: "j down", title: "Down", help: "connections: down", act: () => move(1) });
command({ ...here, key: "k up", title: "Up", help: "connections: up", act: () => move(-1) });
command({ ...here, key: "c enter", title: "Follow", help: "connections: its exchanges", place: "connections", when: () => true, act: () => shown.chosen !== null && followIt(shown.chosen) });
command({ ...here, key: "r", title: "Recycle…", help: "connections: recycle", place: "connections", writes: true, act: () => shown.chosen !== null && recycle(shown.chosen) });
command({ ...here, key: "X", title: "Close…", help: "connections: close", place: "connections", writes: true, warns: true, act: () => shown.chosen !== null && close(shown.chosen) });

const rail = { group: "exchange", place: "connection", view: "exchanges", when: ({ row }) => row !== null };
command({ ...rail, key: "", title: "Recycle", order: 60, writes: true, act: ({ row }) => recycle(row.connection) });
command({ ...rail, key: "", title: "Close", order: 61, writes: true, warns: true, act: ({ row }) => close(row.connection) });
