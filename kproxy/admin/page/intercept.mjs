// Rules that hold what the filter in the bar matches: added by a key, and switched by another one. They end with the page.

import { get, pageId, request, send } from "./api.mjs";
import { askFirst } from "./confirm.mjs";
import { changed, html } from "./dom.mjs";
import { count, cut, number } from "./format.mjs";
import { needed, rows } from "./live.mjs";
import { closeDialog, complain, on, openDialog, say } from "./registry.mjs";
import { wholeFilter } from "./state.mjs";

const TTL = "10m";
const MOST_NAMED = 8;
const LONGEST_NAME = 150;

const mine = new Set(); // names of rules that this page has added, as long as they are there
needed.push(() => mine.size > 0);
on("rules", async () => {
  if (!mine.size) return;
  const there = new Set((await get("/api/rules").catch(() => ({ rules: [...mine].map((name) => ({ name })) }))).rules.map((one) => one.name));
  for (const name of mine) if (!there.has(name)) mine.delete(name);
});

// Return the name of the rule for a filter: the same filter has the same rule, so that rules do not stack. The name of a
// filter that is cut has a checksum.
export function nameFor(filter) {
  if (filter.length <= LONGEST_NAME) return `intercept ${filter || "all requests"}`;
  let sum = 0;
  for (const one of filter) sum = (Math.imul(sum, 31) + one.codePointAt(0)) >>> 0;
  return `intercept ${cut(filter, LONGEST_NAME)} ${sum.toString(36)}`;
}

// Return whom the rows in sight are of: the rule would hold frames of these connections and clients.
function whom() {
  const connections = new Set();
  const clients = new Set();
  for (let place = rows.first; place < rows.next; place++) {
    if (rows.isNote(place)) continue;
    connections.add(rows.number(place, "connection"));
    const client = rows.text(place, "client");
    if (client) clients.add(client);
  }
  return { connections, clients: [...clients] };
}

export function interceptThese() {
  const filter = wholeFilter();
  const { connections, clients } = whom();
  const rule = { at: "request", hold_for: "20s", on_timeout: "pass", max_frames: 20 };
  let sending = false;
  const set = (name) => (event) => {
    rule[name] = name === "max_frames" ? Number(event.target.value) : event.target.value;
    changed();
  };
  const add = async (event) => {
    event.preventDefault();
    sending = true;
    try {
      const name = nameFor(filter);
      const body = { kind: "intercept", ...rule, ...(filter ? { filter } : {}) };
      await request(`/api/rules/${encodeURIComponent(name)}?${new URLSearchParams({ ttl: TTL, page: pageId() })}`, { method: "PUT", json: body });
      mine.add(name);
      closeDialog();
      say(`"${name}" holds ${rule.at === "both" ? "requests and responses" : `${rule.at}s`} for ${TTL}`);
    } catch (error) {
      complain(error);
    }
    sending = false;
    changed();
  };
  const choice = (name, values) => html`<label>${name === "hold_for" ? "for" : name} <select name=${name} onChange=${set(name)}>${values.map((one) => html`
    <option key=${one} selected=${rule[name] === one}>${one}</option>`)}</select></label>`;
  openDialog(() => html`<form onSubmit=${add}><p class="text">${filter ? html`What <code>${filter}</code> holds for waits until somebody lets it go`
    : "Every request waits until somebody lets it go, since there is no filter"}, and what follows on its connection waits behind it. Nobody else does.</p>
    <p class="text">The rows in sight are of ${count(connections.size, "connection")}${clients.length ? html`, of ${clients.slice(0, MOST_NAMED).join(", ")}
      ${clients.length > MOST_NAMED ? `and ${number(clients.length - MOST_NAMED)} more` : ""}` : ""}.</p>
    <p class="text choices">${choice("at", ["request", "response", "both"])} ${choice("hold_for", ["5s", "20s", "60s", "5m"])}
      ${choice("on_timeout", ["pass", "close"])} <label>at most <input type="number" min="1" max="1000" size="5" value=${rule.max_frames} onChange=${set("max_frames")} /></label></p>
    <p class="foot"><button class="primary" disabled=${sending}>Intercept</button><span class="dim">the rule ends after ten minutes, or 30 s after this page is closed or shows a capture</span>
      <button type="button" class="last" autofocus onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p></form>`, { title: "Intercept these" });
}

// Ask, then turn all intercept rules off, or on if none is on.
export async function toggleIntercepts() {
  const found = (await get("/api/rules")).rules.filter((one) => one.kind === "intercept");
  if (!found.length) return say("there is no intercept rule: i adds one");
  const on = found.some((one) => one.enabled);
  const turned = found.filter((one) => one.enabled === on);
  const title = on ? "Turn intercepts off" : "Turn intercepts on";
  askFirst(`${title}?`, `${on ? "Frames that they hold are resumed" : "Frames are held again"}: ${turned.map((one) => one.name).join(", ")}.`, [[title, async () => {
    for (const one of turned) await send("POST", `/api/rules/${encodeURIComponent(one.name)}/${on ? "disable" : "enable"}`);
    say(on ? "nothing is held from now on" : "frames are held again");
  }]]);
}
