// Captures: files of what passes, that the proxy writes. Started with the filter of the bar, stopped, saved, opened.

import { access, download, get, request, send } from "./api.mjs";
import { changed, html } from "./dom.mjs";
import { bytes, clock, duration, number } from "./format.mjs";
import { closeDialog, command, complain, on, openDialog, say, section, view } from "./registry.mjs";
import { openBlob } from "./sources.mjs";
import { wholeFilter } from "./state.mjs";

const EVERY = 2000;
const shown = { folder: null, list: null, timer: null, asking: false };
const running = () => (shown.list ?? []).filter((one) => one.state === "running" || one.state === "ending");

view({ name: "captures", proxy: true, title: "Captures", order: 60, draw, badge: () => (running().length ? `${running().length} running` : null),
  enter: () => { clearInterval(shown.timer); ask(); shown.timer = setInterval(ask, EVERY); }, leave: () => clearInterval(shown.timer) });

on("hello", ask);
on("captures", ask);

async function ask() {
  if (shown.asking || document.hidden) return;
  shown.asking = true;
  try {
    const { folder, captures } = await get("/api/captures");
    Object.assign(shown, { folder, list: captures });
    changed();
  } catch (error) {
    if (error.status !== 404) complain(error);
  }
  shown.asking = false;
}

const path = (one) => `/api/captures/${encodeURIComponent(one.name)}`;

async function stop(one) {
  await send("DELETE", path(one));
  say(`${one.name} was stopped`);
  await ask();
}

// Read a capture of the proxy's as a source, as if it was dropped here.
async function open(one) {
  const blob = await (await request(`${path(one)}/file`)).blob();
  await openBlob(blob, one.name);
}

export function start() {
  const at = new Date().toISOString().slice(0, 19).replace(/[-:]/g, "").replace("T", "-");
  const given = { file: `capture-${at}`, filter: wholeFilter(), payload: "full", max_seconds: "10m", max_size: "100MB" };
  const refused = { text: "" };
  const field = (name, label, more = {}) => html`<label>${label}<input value=${given[name]} ...${more} aria-invalid=${refused.text.startsWith(name) ? "true" : null}
    aria-describedby="refused" onInput=${(event) => { given[name] = event.target.value.trim(); }} /></label>`;
  const go = async (event) => {
    event.preventDefault();
    try {
      await send("POST", `/api/captures?${new URLSearchParams(given)}`);
      closeDialog();
      say(`${given.file} is being recorded`);
      await ask();
    } catch (error) {
      refused.text = error.message;
      changed();
    }
  };
  openDialog(() => html`<form class="fields" onSubmit=${go}>${field("file", "file")}${field("filter", "filter, empty for all")}
    <label>of each frame<select value=${given.payload} onChange=${(event) => { given.payload = event.target.value; }}>
      <option value="full">all bytes</option><option value="head">its beginning</option><option value="none">its header only</option></select></label>
    ${field("max_seconds", "ends after")}${field("max_size", "or when it has")}
    <p class="text bad" id="refused" role="alert">${refused.text}</p>
    <p class="foot"><button class="primary" type="submit">Start</button><button type="button" class="last" autofocus onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p></form>`,
  { title: "Start a capture" });
}

const HEADS = ["file", "state", "filter", "frames", "exchanges", "connections", "size", "duration", "dropped", "since", ""];

function draw() {
  const list = shown.list ?? [];
  return html`<main class="page" aria-label="Captures"><div class="tools"><h2>Captures ${shown.folder && html`<span class="dim">in ${shown.folder}</span>`}</h2>
    ${access.mayWrite && shown.folder && html`<button onClick=${start}>Start…<kbd>s</kbd></button>`}</div>
    ${shown.list && !shown.folder && html`<p class="note">The config names no folder for captures: captures: FOLDER allows them.</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label="All captures"><table class="table" aria-label="Captures"><thead><tr>${HEADS.map((text) => html`<th scope="col" key=${text}>${text || html`<span class="sr">actions</span>`}</th>`)}</tr></thead>
    <tbody>${list.map((one) => html`<tr key=${one.name}><td title=${one.file}>${one.name}</td><td class=${one.state === "failed" ? "bad" : ""}>${one.error ?? one.state}${one.stopped && one.stopped !== "asked" && one.stopped !== "failed" ? ` · ${one.stopped}` : ""}</td>
      <td>${one.filter || "all"}</td><td>${one.payload} · ${one.side}</td><td class="r">${number(one.exchanges)}</td><td class="r">${number(one.connections)}</td><td class="r">${bytes(one.size)}</td>
      <td class="r">${duration(one.seconds)}</td><td class="r">${one.dropped + one.unknown ? html`<span class="slow" title=${`${one.dropped} for lack of time, ${one.unknown} not to be judged by the filter`}>${number(one.dropped + one.unknown)}</span>` : ""}</td>
      <td>${clock(Date.parse(one.since) / 1000)}</td><td>${actions(one)}</td></tr>`)}</tbody></table>
    ${shown.list && !list.length && html`<p class="nothing">None was made since the start.</p>`}</div></main>`;
}

function actions(one) {
  if (one.state === "running") return access.mayWrite ? html`<button onClick=${() => stop(one).catch(complain)}>Stop</button>` : "";
  if (one.state !== "stopped") return "";
  return html`<button onClick=${() => download(`${path(one)}/file`, one.name).catch(complain)}>Download</button>
    ${access.mayWrite && html`<button onClick=${() => open(one).catch(complain)}>Open</button>`}`;
}

section({ name: "captures", order: 60, when: () => Boolean(shown.folder), draw: () => html`<h2><b>Captures</b><span class="e">
  ${access.mayWrite && html`<button onClick=${start}>Start…</button>`}</span></h2>
  <div class="pairs">${(shown.list ?? []).slice(-4).reverse().map((one) => html`<span key=${one.name} title=${one.filter}>${one.name} <span class="dim">${one.payload}${one.filter ? ` · ${one.filter}` : ""}</span></span>
    <span>${bytes(one.size)} ${actions(one)}</span>`)}</div>${!shown.list?.length && html`<p class="dim">none was made</p>`}` });

command({ key: "s", title: "Start…", help: "captures: start one with the filter in force", group: "page", view: "captures", writes: true,
  when: () => Boolean(shown.folder), act: start });
