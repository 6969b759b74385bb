// Rules that hold what the filter in the bar holds for: made by a key, and switched by another one.

import { get, request, send } from "./api.mjs";
import { changed, html } from "./dom.mjs";
import { count, number } from "./format.mjs";
import { rows } from "./live.mjs";
import { closeDialog, complain, openDialog, say } from "./registry.mjs";
import { wholeFilter } from "./state.mjs";

const TTL = "10m";
const MOST_NAMED = 8;

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
  const rule = { at: "request", hold_for: "20s", then: "pass", most: 20 };
  let sending = false;
  const set = (name) => (event) => {
    rule[name] = name === "most" ? Number(event.target.value) : event.target.value;
    changed();
  };
  const add = async (event) => {
    event.preventDefault();
    sending = true;
    try {
      const name = `intercept ${new Date().toISOString().slice(11, 19)}`;
      const body = { kind: "intercept", ...rule, ...(filter ? { filter } : {}) };
      await request(`/api/rules/${encodeURIComponent(name)}?ttl=${TTL}`, { method: "PUT", json: body });
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
      ${choice("then", ["pass", "close"])} <label>at most <input type="number" min="1" max="1000" size="5" value=${rule.most} onChange=${set("most")} /></label></p>
    <p class="foot"><button class="primary" autofocus disabled=${sending}>Intercept</button><span class="dim">the rule goes after ten minutes</span>
      <button type="button" class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p></form>`, { title: "Intercept these" });
}

// Turn all rules that hold frames off; on again if none is on.
export async function toggleIntercepts() {
  const { rules } = await get("/api/rules");
  const found = rules.filter((one) => one.kind === "intercept");
  if (!found.length) return say("there is no rule that holds frames: i makes one");
  const on = found.some((one) => one.enabled);
  for (const one of found) {
    if (one.enabled === on) await send("POST", `/api/rules/${encodeURIComponent(one.name)}/${on ? "disable" : "enable"}`);
  }
  say(on ? "nothing is held from now on" : "frames are held again");
}
