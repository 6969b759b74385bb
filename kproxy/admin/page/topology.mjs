// The view of topology: listeners on the left, kproxy, brokers on the right, with what each of them is told.

import { get } from "./api.mjs";
import { Component, changed, html } from "./dom.mjs";
import { bytes, clock, count, number } from "./format.mjs";
import { complain, view } from "./registry.mjs";
import { rows, begin } from "./live.mjs";
import { go, state } from "./state.mjs";

const EVERY = 2000;
const shown = { clusters: {}, listeners: {}, connections: [], rates: new Map(), measured: false, before: null, timer: null };

view({ name: "topology", proxy: true, title: "Topology", order: 30, draw, badge: () => brokers().length || null,
  enter: () => { clearInterval(shown.timer); ask(); shown.timer = setInterval(ask, EVERY); }, leave: () => clearInterval(shown.timer) });

async function ask() {
  if (document.hidden) return;
  try {
    const [{ clusters, listeners }, { connections }] = await Promise.all([get("/api/topology"), get("/api/connections")]);
    Object.assign(shown, { clusters, listeners, connections });
    measure(connections);
    changed();
  } catch (error) {
    if (error.status !== 404) complain(error);
  }
}

// Find the bytes a second of each listener and each broker, from what their connections had two seconds ago.
function measure(connections) {
  const now = Date.now() / 1000;
  const before = shown.before;
  const bytesOf = new Map(connections.map((one) => [one.id, one.client_bytes + one.broker_bytes]));
  const rates = new Map();
  for (const one of connections) {
    const was = before?.bytesOf.get(one.id);
    const rate = was === undefined ? 0 : Math.max(0, bytesOf.get(one.id) - was) / (now - before.now);
    for (const key of [`listener ${one.listener}`, keyOf(one)]) rates.set(key, (rates.get(key) ?? 0) + rate);
  }
  Object.assign(shown, { rates, measured: Boolean(before), before: { now, bytesOf } });
}

const keyOf = (one) => `node ${one.cluster} ${one.node ?? "bootstrap"}`;

function brokers() {
  return Object.entries(shown.clusters).flatMap(([cluster, { nodes }]) => nodes.map((node) => ({ cluster, ...node })));
}

// Topics in sight by the node that they were written to or read from.
function topics() {
  const found = new Map();
  for (let place = Math.max(rows.first, rows.next - 2000); place < rows.next; place++) {
    const api = rows.text(place, "api"), node = rows.text(place, "node"), topic = rows.text(place, "topic");
    if (node === null || topic === null || (api !== "Produce" && api !== "Fetch")) continue;
    if (!found.has(node)) found.set(node, new Set());
    found.get(node).add(topic);
  }
  return found;
}

// Return the bytes a second of a box; a dash until they have been measured.
const trafficOf = (key) => (shown.measured ? bytes(Math.round(shown.rates.get(key) ?? 0)) || "0" : "–");

// Lines between the boxes, drawn where the boxes are.
class Lines extends Component {
  constructor() {
    super();
    this.keep = (element) => { this.element = element; };
  }
  componentDidMount() {
    this.watch = new ResizeObserver(() => this.place());
    this.watch.observe(this.element.parentElement);
    this.place();
  }
  componentDidUpdate() {
    this.place();
  }
  componentWillUnmount() {
    this.watch.disconnect();
  }
  place() {
    const map = this.element.parentElement;
    const base = map.getBoundingClientRect();
    this.element.setAttribute("viewBox", `0 0 ${base.width} ${map.scrollHeight}`);
    this.element.style.height = `${map.scrollHeight}px`;
    const middle = map.querySelector(".proxy")?.getBoundingClientRect();
    for (const line of this.element.querySelectorAll("path")) {
      const box = map.querySelector(`[data-box="${CSS.escape(line.dataset.to)}"]`)?.getBoundingClientRect();
      if (!box || !middle) continue;
      const left = box.left < middle.left;
      const from = [(left ? box.right : box.left) - base.left, box.top + Math.min(box.height / 2, 24) - base.top];
      const to = [(left ? middle.left : middle.right) - base.left, middle.top + middle.height / 2 - base.top];
      const half = (from[0] + to[0]) / 2;
      line.setAttribute("d", `M${from[0]} ${from[1]}C${half} ${from[1]} ${half} ${to[1]} ${to[0]} ${to[1]}`);
    }
  }
  render({ keys }) {
    return html`<svg class="lines" ref=${this.keep} aria-hidden="true">${keys.map(([key, busy]) => html`<path key=${key} data-to=${key} class=${busy ? "busy" : ""} />`)}</svg>`;
  }
}

function draw() {
  const listeners = Object.entries(shown.listeners);
  const nodes = brokers();
  const inSight = topics();
  const busy = (key) => [key, (shown.rates.get(key) ?? 0) > 0];
  const keys = [...listeners.map(([name]) => busy(`listener ${name}`)), ...nodes.map((node) => busy(`node ${node.cluster} ${node.id}`))];
  return html`<main class="page" aria-label="Topology"><div class="tools"><h2>Topology</h2><span class="dim">traffic of the connections that are open, bytes a second</span></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Map"><div class="map"><${Lines} keys=${keys} />
    <div class="side"><h3>Listeners</h3>${listeners.map(([name, one]) => html`<article key=${name} class="box" data-box=${`listener ${name}`}>
      <h4>${name} <span>${trafficOf(`listener ${name}`)}/s</span></h4><dl><dt>bind</dt><dd class="mono">${one.address}</dd><dt>cluster</dt><dd>${one.cluster}</dd>
      <dt>TLS</dt><dd>${one.tls ? "yes" : "no"}</dd><dt>open</dt><dd>${count(one.connections, "connection")}</dd>${logins(name)}</dl></article>`)}</div>
    <div class="middle"><div class="proxy"><b>kproxy</b><span>${location.host}</span></div></div>
    <div class="side"><h3>Brokers</h3>${Object.entries(shown.clusters).map(([cluster, { bootstrap, nodes: list }]) => html`
      <p class="dim" key=${cluster}>cluster ${cluster}, from <span class="mono">${bootstrap.join(", ")}</span></p>
      ${list.map((node) => html`<article key=${`${cluster} ${node.role} ${node.id}`} class="box" data-box=${`node ${cluster} ${node.id}`}>
        <h4>${node.role === "broker" ? "node" : node.role} ${node.id} <span>${trafficOf(`node ${cluster} ${node.id}`)}/s</span></h4>
        <dl><dt>its own</dt><dd class="mono">${node.host}:${node.port}</dd>${node.rack && html`<dt>rack</dt><dd>${node.rack}</dd>`}
        ${Object.entries(node.addresses).map(([listener, address]) => html`<dt>clients of ${listener}</dt><dd class="mono">${address}</dd>`)}
        ${dialled(cluster, node)}
        ${inSight.get(String(node.id)) && html`<dt>topics</dt><dd>${[...inSight.get(String(node.id))].slice(0, 12).join(", ")}</dd>`}</dl>
        <div class="actions"><button onClick=${() => followNode(node)}>Follow</button></div></article>`)}`)}
      ${!nodes.length && html`<p class="dim">No answer has named a broker so far.</p>`}</div></div></div></main>`;
}

// Say where kproxy dialled for a node, and since when the oldest of its connections is open.
function dialled(cluster, node) {
  const found = shown.connections.filter((one) => one.cluster === cluster && one.node === node.id && one.broker);
  if (!found.length) return null;
  const since = found.reduce((oldest, one) => (one.since < oldest ? one.since : oldest), found[0].since);
  return html`<dt>dialled</dt><dd><span class="mono">${[...new Set(found.map((one) => one.broker))].join(", ")}</span> · ${number(found.length)} open, since ${clock(Date.parse(since) / 1000)}</dd>`;
}

function logins(name) {
  const found = [...new Set(shown.connections.filter((one) => one.listener === name && one.principal).map((one) => one.principal))];
  return found.length ? html`<dt>logins</dt><dd>${found.slice(0, 8).join(", ")}${found.length > 8 ? ` +${found.length - 8}` : ""}</dd>` : null;
}

function followNode(node) {
  state.crumbs = [{ title: `node ${node.id}`, text: `node == ${node.id}` }];
  begin();
  go("exchanges");
}
