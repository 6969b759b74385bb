// The rail: the chosen connection, the last minute, the audit. Other parts add sections of their own.

import { get } from "./api.mjs";
import { changed, html } from "./dom.mjs";
import { bytes, clock, ms, number } from "./format.mjs";
import { buttons } from "./keys.mjs";
import { history, rows } from "./live.mjs";
import { byApi } from "./timeline.mjs";
import { complain, on, section } from "./registry.mjs";
import { state } from "./state.mjs";

const connection = { number: null, shown: null, asked: 0 };

function chosen() {
  if (state.selected === null) return null;
  const place = rows.find(state.selected);
  return place < 0 ? null : rows.row(place);
}

on("select", look);
on("tick", () => { if (Date.now() - connection.asked > 5000) look(); });

// Ask for the connection of the chosen row; of one that is gone the row says what is known.
async function look() {
  const row = chosen();
  if (row === null || state.source !== "live") return;
  connection.asked = Date.now();
  const { connections } = await get("/api/connections").catch((error) => { complain(error); return { connections: [] }; });
  connection.number = row.connection;
  connection.shown = connections.find((one) => one.id === row.connection) ?? null;
  changed();
}

section({ name: "connection", order: 30, when: () => chosen() !== null, draw: () => {
  const row = chosen();
  const one = connection.number === row.connection ? connection.shown : null;
  const lines = [["client", row.client, one?.client ?? row.address], ["library", one?.software ?? row.software, row.principal && `principal ${row.principal}`],
    ["came to", null, row.listener && `listener ${row.listener}`], ["goes to", row.node !== null ? `node ${row.node}` : null, one?.broker],
    ["names", one?.rules?.join(", ")], ["now", one && `${one.in_flight} in flight · ${bytes(one.client_bytes)} ↑ ${bytes(one.broker_bytes)} ↓`, one?.outdated ? "outdated names" : null]];
  return html`<h2><b>Connection ${row.connection}</b> ${one ? `since ${clock(Date.parse(one.since) / 1000)}` : "closed, or not asked yet"}</h2>
    <dl>${lines.map(([name, ...words]) => [name, words.filter(Boolean)]).filter(([, words]) => words.length).map(([name, words]) => html`
      <dt>${name}</dt><dd title=${words.join(" · ")}>${words.join(" · ")}</dd>`)}</dl><div class="actions">${buttons("connection")}</div>`;
} });

const PARTS = [["h", "rule", "rules"], ["b", "broker", "the broker"], ["k", "kproxy", "kproxy"]];

// Draw the parts of an API's latency as a bar, with their shares in words.
function partsOf({ parts }) {
  const whole = Object.values(parts).reduce((sum, one) => sum + one, 0);
  if (!whole) return "";
  const share = (name) => (parts[name] / whole) * 100;
  const words = PARTS.map(([, name, text]) => `${text} ${share(name).toFixed(0)} %`).join(", ");
  return html`<span class="bar" role="img" aria-label=${words} title=${words}>${PARTS.map(([kind, name]) => html`<s class=${kind} style=${{ width: `${share(name).toFixed(1)}%` }}></s>`)}</span>`;
}

section({ name: "minute", order: 40, draw: () => {
  const { title, rows: all } = byApi();
  const table = all.slice(0, 8);
  return html`<h2><b>${title}</b> client-side latency, ms</h2><table class="by-api"><thead><tr><th scope="col">API</th><th scope="col">/s</th><th scope="col">p50</th><th scope="col">p90</th><th scope="col">p99</th><th scope="col">parts</th></tr></thead>
    <tbody>${table.map((row) => html`<tr key=${row.api}><th scope="row">${row.api}</th><td>${row.rate < 10 ? row.rate.toFixed(1) : number(row.rate)}</td>
      <td>${short(row.p50)}</td><td>${short(row.p90)}</td><td class=${row.p99 >= 200 && row.api !== "Fetch" ? "slow" : ""}>${short(row.p99)}</td><td>${partsOf(row)}</td></tr>`)}</tbody></table>
    ${!table.length && html`<p class="dim">nothing has passed</p>`}`;
} });

const short = (value) => ms(value).replace(" ms", "");

section({ name: "audit", order: 50, when: () => Boolean(history.last?.audit), draw: () => {
  const { written, waiting, lost, failing, blocked } = history.last.audit;
  const bad = lost > 0 || Boolean(failing);
  return html`<h2 class=${bad ? "bad alone" : "alone"}><b>Audit</b> ${number(written)} written · ${number(waiting)} waiting · ${number(lost ?? 0)} lost${failing ? " · failing" : ""}${blocked ? " · clients wait" : ""}</h2>`;
} });
