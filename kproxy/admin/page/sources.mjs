// Sources: captures of kproxy, tcpdump or dumpcap that somebody opens, by a button or by dropping a file on the page.
// They are shown in place of what passes, with the same list, filter and details.

import { get, request, send } from "./api.mjs";
import { changed, html } from "./dom.mjs";
import { bytes, count, cut } from "./format.mjs";
import { begin } from "./live.mjs";
import { command, complain, on, say, section } from "./registry.mjs";
import { go, readAddress, state } from "./state.mjs";

const LONGEST = 256 * 2 ** 20;
const shown = { list: [], most: 4, live: true, mayOpen: false, opening: "", over: 0 };

async function ask() {
  try {
    const { sources, most, live, may_open } = await get("/api/sources");
    Object.assign(shown, { list: sources, most, live, mayOpen: may_open });
    if (state.filesOnly !== !live) {
      state.filesOnly = !live;
      readAddress();
    }
    const there = state.source === "live" ? live : sources.some((one) => one.source === state.source);
    if (!there && (live || sources.length)) look(live ? "live" : sources[0].source);
    changed();
  } catch (error) {
    if (error.status !== 404) complain(error);
  }
}

// Show what passes ("live"), or a source by its id.
export function look(source) {
  if (state.source !== source) {
    Object.assign(state, { source, selected: null, crumbs: [], range: null });
    begin();
  }
  go("exchanges");
}

export async function openBlob(blob, name) {
  if (blob.size > LONGEST) throw new Error(`${name} has ${bytes(blob.size)}, at most ${bytes(LONGEST)} are taken`);
  shown.opening = name;
  changed();
  try {
    const query = new URLSearchParams({ name: name.slice(0, 255) || "capture" });
    const response = await request(`/api/sources?${query}`, { method: "POST", body: blob, headers: { "Content-Type": "application/octet-stream" } });
    const source = await response.json();
    shown.list = [...shown.list, source];
    look(source.source);
    say(`${name}: ${count(source.exchanges, "exchange")}`);
  } finally {
    shown.opening = "";
    changed();
  }
}

async function openAll(files) {
  for (const file of files) await openBlob(file, file.name);
}

export function choose() {
  const field = document.createElement("input");
  field.type = "file";
  field.multiple = true;
  field.accept = ".pcapng,.pcap,.cap,.gz";
  field.addEventListener("change", () => openAll(field.files).catch(complain));
  field.click();
}

async function close(one) {
  await send("DELETE", `/api/sources/${one.source}`);
  await ask();
}

const brings = (event) => shown.mayOpen && [...(event.dataTransfer?.types ?? [])].includes("Files");

addEventListener("dragenter", (event) => { if (brings(event)) { shown.over += 1; document.documentElement.classList.add("over"); } });
addEventListener("dragleave", (event) => {
  if (brings(event) && --shown.over <= 0) { shown.over = 0; document.documentElement.classList.remove("over"); }
});
addEventListener("dragover", (event) => { if (brings(event)) event.preventDefault(); });
addEventListener("drop", (event) => {
  if (!brings(event)) return;
  event.preventDefault();
  shown.over = 0;
  document.documentElement.classList.remove("over");
  openAll(event.dataTransfer.files).catch(complain);
});

on("hello", ask);
setTimeout(ask); // where files are all there is, nobody says hello

section({ name: "sources", order: 55, when: () => shown.mayOpen || shown.list.length > 0, draw: () => html`
  <h2><b>Files</b><span class="e">${shown.mayOpen && html`<button disabled=${Boolean(shown.opening)} onClick=${choose}>Open a file…<kbd>L</kbd></button>`}</span></h2>
  ${shown.opening && html`<p class="dim" role="status">${cut(shown.opening, 60)} is being read …</p>`}
  ${shown.list.length > 0 && html`<ul class="sources">${shown.live && live()}${shown.list.map((one) => html`<li key=${one.source}>
    <button aria-pressed=${String(state.source === one.source)} title=${one.name} onClick=${() => look(one.source)}>${cut(one.name, 28)}</button>
    <span class="dim">${count(one.exchanges, "exchange")} · ${bytes(one.size)}</span>
    ${shown.mayOpen && html`<button aria-label=${`Close ${one.name}`} onClick=${() => close(one).catch(complain)}>×</button>`}
    ${one.missing.map((text) => html`<small class="slow" key=${text}>${text}</small>`)}</li>`)}</ul>`}` });

function live() {
  return html`<li key="live"><button aria-pressed=${String(state.source === "live")} onClick=${() => look("live")}>live</button>
    <span class="dim">what passes now</span></li>`;
}

command({ key: "L", title: "Open a file…", help: "open a capture: of kproxy, tcpdump or dumpcap", group: "page", when: () => shown.mayOpen, act: choose });
