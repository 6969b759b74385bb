// Timing, rules and event of an exchange.

import { get } from "./api.mjs";
import { changed, html } from "./dom.mjs";
import { ms, number } from "./format.mjs";

const PLACES = [["request_in", "the request's first bytes were read"], ["request_out", "it went to the broker"],
  ["response_in", "the response's first bytes were read"], ["response_out", "its last bytes were handed to the socket"]];

// Show the parts of the latency, each with its reason; they add up to it.
export function Timing({ event, row }) {
  const latency = event.latency_ms ?? row?.latency;
  const rule = event.rule_ms ?? row?.rule_ms ?? 0;
  const broker = event.broker_ms ?? row?.broker_ms ?? 0;
  const rest = latency === null || latency === undefined ? null : Math.max(0, latency - rule - broker);
  const names = event.rules?.length ? ` (${event.rules.join(", ")})` : "";
  const parts = [["h", "rules", rule, `rules held it${names}`], ["b", "broker", broker, row?.max_wait > 0
    ? `the broker had it; a Fetch may wait ${ms(row.max_wait)} for records` : "the broker had it"],
  ["k", "kproxy", rest, "read, judged, changed and sent by kproxy, or waiting for a socket"]];
  const whole = latency || 1;
  return html`<div class="timing">${latency !== null && latency !== undefined ? html`
    <div class="bar" aria-hidden="true">${parts.map(([kind, , value]) => value > 0 && html`<s class=${kind} style=${{ width: `${((value / whole) * 100).toFixed(2)}%` }}></s>`)}</div>
    <table><tbody>${parts.map(([kind, name, value, why]) => html`<tr><th scope="row"><i class=${kind}></i>${name}</th><td class="r">${ms(value)}</td><td>${why}</td></tr>`)}
    <tr class="whole"><th scope="row">latency</th><td class="r">${ms(latency)}</td><td>from the request's first byte to the response's last</td></tr></tbody></table>`
    : html`<p class="nothing">${event.outcome === "no_answer_due" ? "No answer was due." : "There was no answer so far."}</p>`}
    <table><tbody>${PLACES.filter(([name]) => event[name]).map(([name, words]) => html`<tr><th scope="row">${name.replace("_", " ")}</th><td class="o">${event[name]}</td><td>${words}</td></tr>`)}
    ${event.throttle_ms > 0 && html`<tr><th scope="row">throttle</th><td class="r">${ms(event.throttle_ms)}</td><td>wait that the response asks of the client</td></tr>`}</tbody></table></div>`;
}

const known = { rules: [], asked: 0 };

// Ask for the rules, unless that was done a moment ago.
async function learn() {
  if (Date.now() - known.asked < 5000) return;
  known.asked = Date.now();
  known.rules = (await get("/api/rules").catch(() => ({ rules: [] }))).rules;
  changed();
}

// Return why a rule did not act, as far as its state now tells it.
function whyNot(rule) {
  if (!rule.enabled) return "it is off";
  if (!rule.in_force) return rule.stage ? `its stage ${rule.stage} is not in force` : "it is not in force: faults are disabled";
  if (rule.binds === "connection") return "it binds connections when they open, and changes names, addresses or versions";
  if (!rule.matched) return "its selectors have held for no request so far";
  if (!rule.fired) return `its selectors have held ${number(rule.matched)} times, its trigger never`;
  return `its selectors or its trigger did not hold; it has fired ${number(rule.fired)} of ${number(rule.matched)} times`;
}

// Show which rules acted on it, who answered, and of all other rules why they did not.
export function Ruled({ event, row }) {
  learn();
  const names = event.rules ?? row?.rules ?? [];
  const by = event.responder ?? row?.responder;
  const others = known.rules.filter((rule) => !names.includes(rule.name));
  return html`<div class="ruled"><p>${names.length ? `${names.length === 1 ? "One rule" : `${names.length} rules`} acted on it:` : "No rule acted on it."}
    ${names.map((name) => html` <em class="tag" key=${name}>${name}</em>`)} ${event.rule_ms > 0 && `Rules held it for ${ms(event.rule_ms)}.`} ${by === "kproxy" ? "kproxy answered in the broker's place." : by === "broker" ? "The broker answered." : ""}</p>
    ${others.length > 0 && html`<table><thead><tr><th scope="col">not this time</th><th scope="col">kind</th><th scope="col">why</th></tr></thead>
    <tbody>${others.map((rule) => html`<tr key=${rule.name}><th scope="row">${rule.name}</th><td>${rule.kind}</td><td>${whyNot(rule)}</td></tr>`)}</tbody></table>`}</div>`;
}

// Show the event as the audit has it.
export function EventText({ event }) {
  return html`<pre class="event">${JSON.stringify(event, null, 2)}</pre>`;
}
