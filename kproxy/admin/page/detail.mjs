// Details of the chosen exchange: its frames as fields and bytes, its records, its times, its rules, its event.

import { get } from "./api.mjs";
import { Component, changed, html } from "./dom.mjs";
import { bytes, fromBase64, ms, number } from "./format.mjs";
import { Hex, owners } from "./hex.mjs";
import { KeptDetails } from "./kept_details.mjs";
import { buttons } from "./keys.mjs";
import { dot, longPoll } from "./list.mjs";
import { idOf, rows } from "./live.mjs";
import { Records, flat } from "./records.mjs";
import { command, on } from "./registry.mjs";
import { EventText, Ruled, Timing } from "./timing.mjs";
import { select, state } from "./state.mjs";
import { Tree, nodesOf, valueText } from "./tree.mjs";

const TABS = [["request", "Request"], ["response", "Response"], ["records", "Records"], ["timing", "Timing"],
  ["rules", "Rules"], ["event", "Event"]];

const kept = new KeptDetails(); // {data, error, row} by source and id
const shown = { marked: null, chosen: null, of: "request" }; // the step that is marked, and the node that is chosen

const NONE = new Map();

const keyOf = (id) => `${state.source}/${id}`;

export function detailOf(id) {
  return id === null ? null : kept.get(keyOf(id)) ?? null;
}

// Ask for the details of the chosen row, unless they are here.
export async function watchSelection(id) {
  shown.marked = shown.chosen = null;
  if (id === null || id === undefined) return;
  const place = rows.find(id);
  const row = place < 0 ? null : rows.row(place);
  const key = keyOf(id);
  const before = kept.get(key);
  if (before && (before.data === null ? before.asking : !before.underWay)) {
    kept.put(key, before);
    return;
  }
  const one = { data: before?.data ?? null, error: null, row, asking: true, underWay: row !== null && row.outcome === null };
  kept.put(key, one);
  try {
    const asked = new URLSearchParams({ source: state.source });
    one.data = prepared(await get(`/api/exchanges/${encodeURIComponent(id)}?${asked}`));
  } catch (error) {
    one.error = error;
  }
  one.asking = false;
  if (kept.get(key) === one) kept.put(key, one);
  changed();
}

// A row that was under way has its end: its details are others now.
on("rows", ({ rows: list }) => {
  const one = detailOf(state.selected);
  if (one?.underWay && list.some((row) => idOf(row) === state.selected)) watchSelection(state.selected);
});

// Turn the bytes of all frames into arrays, and find out to which field each belongs.
function prepared(data) {
  for (const half of [data.request, data.response]) {
    for (const side of ["client", "broker"]) {
      const frame = half?.[side];
      if (!frame) continue;
      frame.data = typeof frame.data === "string" ? fromBase64(frame.data) : new Uint8Array(0);
      frame.steps ??= [];
      frame.owner = owners(frame.steps, frame.data.length);
    }
  }
  return data;
}

// Return what differs between both frames of a half: paths, values at the broker, and the steps of each side.
function differences(half) {
  if (half.differences) return half.differences;
  const found = { paths: new Set(), others: new Map(), client: new Set(), broker: new Set() };
  if (half.broker && half.client) {
    for (const one of half.changed ?? []) found.paths.add(one.path);
    for (const side of ["client", "broker"]) {
      for (const node of nodes(half[side])) {
        const path = found.paths.has(node.path) ? node.path : `${node.path} (${node.kind})`;
        if (node.step === null || !found.paths.has(path)) continue;
        found[side].add(node.marks);
        if (side === "broker") found.others.set(node.path, valueText(node, half.broker.data));
      }
    }
  }
  return half.differences = found;
}

function mark(step) {
  if (shown.marked === step) return;
  shown.marked = step;
  changed();
}

// Choose a node of the tree, and mark its bytes; or the field of a byte.
function choose(frame, at) {
  shown.chosen = at;
  shown.marked = nodes(frame)[at]?.marks ?? null;
  changed();
}

function chooseStep(frame, step) {
  const found = nodes(frame).find((node) => node.step === step);
  choose(frame, found?.at ?? null);
  shown.marked = step;
}

function nodes(frame) {
  return frame.nodes ??= nodesOf(frame.steps);
}

function Half({ half, name, sides }) {
  if (!half?.client && !half?.broker) return html`<p class="nothing">${missing(name, half)}</p>`;
  const broker = half.client ? half.broker : null;
  const client = half.client ?? half.broker;
  const main = state.bytesOf === "broker" && broker ? broker : client;
  const found = differences(half);
  const sent = name === "request" ? ["Client sent", "Broker got"] : ["Client got", "Broker sent"];
  const notes = [client.withheld, client.decode_error, main.form && main.form !== "whole" ? `kept ${bytes(main.kept)} of ${bytes(main.bytes)}` : ""].filter(Boolean);
  const tree = html`<div class="fields">${notes.map((note) => html`<p class="note">${note}</p>`)}
    <${Tree} key=${`${state.selected}${name}${main === client}`} steps=${main.steps} data=${main.data} label=${`Fields of the ${name}`} chosen=${shown.of === name ? shown.chosen : null}
      marked=${shown.of === name ? shown.marked : null} mark=${(step) => { shown.of = name; mark(step); }}
      choose=${(at) => { shown.of = name; choose(main, at); }} others=${main === client ? found.others : NONE} /></div>`;
  const pane = (frame, title, note, marks) => html`<${Hex} kind=${title === sent[0] ? "of-client" : "of-broker"} frame=${frame} title=${title} note=${note} marked=${shown.of === name ? paired(main, frame) : null}
    changedSteps=${marks} mark=${(step) => { shown.of = name; mark(paired(frame, main, step)); }}
    chooseStep=${(step) => { shown.of = name; chooseStep(main, paired(frame, main, step)); }} />`;
  if (sides === 1) return html`${tree}${pane(main, main === client ? sent[0] : sent[1], size(main), new Set())}`;
  const count = found.paths.size;
  return html`${switcher(sent)}${tree}
    ${state.bytesOf !== "broker" && pane(client, sent[0], size(client), found.client)}
    ${state.bytesOf !== "client" && (broker
      ? pane(broker, sent[1], `${size(broker)} · ${count} field${count === 1 ? "" : "s"} changed`, found.broker)
      : state.bytesOf === "broker" ? pane(client, sent[1], size(client), new Set())
      : html`<div class="hex same of-broker"><h3>${sent[1]} <span>the same</span></h3></div>`)}`;
}

// Draw the buttons that choose one pane where all do not fit beside each other: fields, the client's bytes, the broker's.
function switcher(sent) {
  return html`<div class="panes" role="group" aria-label="Shown part of the frame">${[["fields", "Fields"], ["client", sent[0]], ["broker", sent[1]]].map(([name, text]) => html`
    <button key=${name} aria-pressed=${String(state.pane === name)} onClick=${() => { state.pane = name; changed(); }}>${text}</button>`)}</div>`;
}

// Return the step of another frame that has the path of a step of this one.
function paired(from, to, step = shown.marked) {
  if (from === to || step === null) return step;
  const found = from.steps[step];
  if (!found) return null;
  const at = to.steps.findIndex((one) => one[3] === found[3] && one[4] === found[4]);
  return at < 0 ? null : at;
}

const size = (frame) => (frame.form !== "whole" ? `first ${number(frame.kept)} of ${number(frame.bytes)} bytes` : `${number(frame.bytes)} bytes`);

function missing(name, half) {
  if (name === "response") return half === null ? "There is no response: none was due, or none has come." : "The response was not kept.";
  return "The request was not kept.";
}

export class Details extends Component {
  render() {
    const id = state.selected;
    const one = detailOf(id);
    const place = rows.find(id);
    const row = place < 0 ? one?.row : rows.row(place);
    return html`<section class=${`details tab-${state.tab} pane-${state.pane}${state.sideBySide ? " beside" : ""}`} aria-label=${`Exchange ${id}`}>
      <h2>Exchange ${id} ${row && title(row, place)}${from(one?.data?.again_of ?? row?.again_of)}<span class="actions">${buttons("exchange")}</span></h2>
      <div class="tabs"><div role="tablist" aria-label="Parts of the exchange" onKeyDown=${turn}>${TABS.map(([name, text]) => html`
        <button role="tab" key=${name} id=${`tab-${name}`} aria-controls="part" tabindex=${name === state.tab ? 0 : -1}
          aria-selected=${String(name === state.tab)} onClick=${() => open(name)}>${text}${count(name, row, one?.data)}</button>`)}</div>
      ${["request", "response"].includes(state.tab) && html`<label>bytes of <select value=${state.bytesOf}
        onChange=${(event) => { state.bytesOf = event.target.value; changed(); }}>
        <option value="both">client and broker</option><option value="client">client</option><option value="broker">broker</option></select></label>`}</div>
      <div class="part" role="tabpanel" id="part" aria-labelledby=${`tab-${state.tab}`} tabindex=${state.tab === "timing" || state.tab === "event" || state.tab === "rules" ? 0 : null}>${part(one, row)}</div></section>`;
  }
}

function title(row, place) {
  const slow = row.latency >= 200 && !(place >= 0 && longPoll(place));
  const parts = [["rules", row.rule_ms], ["broker", row.broker_ms], ["kproxy", row.kproxy_ms]].filter(([, value]) => value >= 0.005);
  return html`<span class="what">${row.api} v${row.version} · ${row.about ? `${row.about} · ` : ""}<i class=${dot(row.connection)}></i>connection ${row.connection}
    ${row.client ? ` · ${row.client}` : ""}${row.node !== null ? ` → node ${row.node}` : ""}
    ${row.latency !== null && html` · <b class=${slow ? "slow" : ""}>${ms(row.latency)}</b>`}</span>
    ${row.latency !== null && parts.length > 1 && html`<span class="sum">= ${parts.map(([name, value]) => `${name} ${ms(value).replace(" ms", "")}`).join(" + ")}</span>`}`;
}

// Lead to the exchange whose request was sent again as this one.
function from(of) {
  return of && html`<span class="again">sent again from <button onClick=${() => select(of)}>exchange ${of}</button></span>`;
}

function count(name, row, data) {
  if (name === "records") return row?.records ? html` <span>${number(data?.records ? flat(data.records).length : row.records)}</span>` : "";
  if (name === "rules") return row?.rules.length ? html` <span>${row.rules.length}</span>` : "";
  return "";
}

function part(one, row) {
  if (!one || (one.asking && !one.data)) return html`<p class="nothing" role="status">one moment …</p>`;
  if (!one.data) return html`<p class="nothing" role="status">${gone(one.error, row)}</p>`;
  const { data } = one;
  switch (state.tab) {
    case "request":
    case "response":
      if (state.sideBySide) {
        return html`<${Half} half=${data.request} name="request" sides=${1} /><${Half} half=${data.response} name="response" sides=${1} />`;
      }
      return html`<${Half} half=${data[state.tab]} name=${state.tab} sides=${2} />`;
    case "records":
      return html`<${Records} records=${data.records ?? []} event=${data.event} />`;
    case "timing":
      return html`<${Timing} event=${data.event} row=${row} />`;
    case "rules":
      return html`<${Ruled} event=${data.event} row=${row} />`;
    default:
      return html`<${EventText} event=${data.event} />`;
  }
}

function gone(error, row) {
  if (error?.code === "exchange_gone") return "Its frames are not kept any more: newer ones needed the room. The row is all there is.";
  if (row && !row.kept && row.outcome === null) return "It is under way; its details come with its end.";
  return error?.message ?? "There are no details.";
}

function open(name) {
  state.tab = name;
  shown.marked = shown.chosen = null;
  shown.of = name;
  changed();
}

// Keys of the tabs: left and right.
function turn(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1, l: 1, h: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const at = TABS.findIndex(([name]) => name === state.tab);
  open(TABS[(at + step + TABS.length) % TABS.length][0]);
  requestAnimationFrame(() => document.querySelector(`#tab-${state.tab}`)?.focus());
}

const details = { group: "exchange", view: "exchanges", when: () => state.selected !== null };
command({ ...details, key: "tab", title: "Next part", help: "from part to part of the page, as everywhere", when: () => false, act() {} });
command({ ...details, key: "b", title: "Both sides", help: "request and response side by side, or the bytes of client and broker", act: () => {
  state.sideBySide = !state.sideBySide;
  if (!["request", "response"].includes(state.tab)) state.tab = "request";
  changed();
} });
command({ ...details, key: "-", title: "Layout", help: "bytes of both, of the client, of the broker", act: () => {
  state.bytesOf = { both: "client", client: "broker", broker: "both" }[state.bytesOf];
  changed();
} });
for (const [key, step, words] of [["]", 1, "field behind"], ["[", -1, "field before"]]) {
  command({ ...details, key, title: words, help: words, act: () => {
    const half = detailOf(state.selected)?.data?.[state.tab];
    if (!half?.client) return;
    shown.of = state.tab;
    const list = nodes(half.client);
    choose(half.client, Math.min(list.length - 1, Math.max(0, (shown.chosen ?? -1) + step)));
  } });
}
