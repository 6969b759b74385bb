// Timing, rules and event of an exchange.

import { html } from "./dom.mjs";
import { ms } from "./format.mjs";

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
    ${event.throttle_ms > 0 && html`<tr><th scope="row">throttle</th><td class="r">${ms(event.throttle_ms)}</td><td>for which the response told the client to wait</td></tr>`}</tbody></table></div>`;
}

// Show which rules acted on it, and who answered.
export function Ruled({ event, row }) {
  const names = event.rules ?? row?.rules ?? [];
  const by = event.answered_by ?? row?.answered_by;
  return html`<div class="ruled"><p>${names.length ? `${names.length === 1 ? "One rule" : `${names.length} rules`} acted on it:` : "No rule acted on it."}</p>
    <ul>${names.map((name) => html`<li key=${name}><em class="tag">${name}</em></li>`)}</ul>
    ${event.rule_ms > 0 && html`<p>Rules held it for ${ms(event.rule_ms)}.</p>`}
    <p>${by === "kproxy" ? "kproxy answered in the broker's place." : by === "broker" ? "The broker answered." : ""}</p></div>`;
}

// Show the event as the audit has it.
export function EventText({ event }) {
  return html`<pre class="event">${JSON.stringify(event, null, 2)}</pre>`;
}
