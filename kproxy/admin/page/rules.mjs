// Rules: what is in force, what each has done, on and off; and the text of one, to look at, change or add.

import { access, get, send } from "./api.mjs";
import { askFirst } from "./confirm.mjs";
import { changed, html } from "./dom.mjs";
import { count, duration, number } from "./format.mjs";
import { closeDialog, command, complain, on, openDialog, say, section, view } from "./registry.mjs";
import { Draft, Editor, download } from "./rule_editor.mjs";
import { state } from "./state.mjs";
import { document_of } from "./yaml.mjs";

const EVERY = 2000;
const MINUTE = 60;
const AT_ONCE = 500;
const COUNTED = ["matched", "fired", "applied", "held"];
const NEW = `rules:
  - name: a rule
    kind: delay
    match: {api: Metadata}
    delay: 200ms
`;

const shown = { data: null, at: 0, chosen: null, timer: null, most: AT_ONCE, asking: false };
const sparks = new Map(); // of each rule: how often it fired, second by second
let byName = new Map();

const list = () => shown.data?.rules ?? [];
const path = (name) => `/api/rules/${encodeURIComponent(name)}`;

view({ name: "rules", proxy: true, title: "Rules", order: 40, draw, badge: () => (shown.data ? list().length : null),
  enter: () => { clearInterval(shown.timer); ask(); shown.timer = setInterval(ask, EVERY); }, leave: () => { clearInterval(shown.timer); shown.chosen = null; } });

on("hello", ask);
on("rules", ask);
on("tick", ({ rules }) => {
  for (const [name, values] of Object.entries(rules ?? {})) {
    const one = byName.get(name);
    if (!one) continue;
    COUNTED.forEach((counter, index) => { one[counter] = counter === "held" ? values[index] : one[counter] + values[index]; });
    beat(name, values[1]);
  }
});

// Keep how often a rule fired in this second.
function beat(name, fired) {
  if (!sparks.has(name)) sparks.set(name, []);
  const values = sparks.get(name);
  values.push(fired);
  if (values.length > MINUTE) values.shift();
}

async function ask() {
  if (shown.asking || document.hidden) return;
  shown.asking = true;
  try {
    take(await get("/api/rules"));
  } catch (error) {
    if (error.status !== 404) complain(error);
  }
  shown.asking = false;
}

function take(data) {
  shown.data = data;
  shown.at = Date.now();
  byName = new Map(list().map((one) => [one.name, one]));
  for (const name of sparks.keys()) if (!byName.has(name)) sparks.delete(name);
  if (!byName.has(shown.chosen)) shown.chosen = null;
  changed();
}

const chosen = () => byName.get(shown.chosen) ?? null;

function choose(name) {
  shown.chosen = name;
  changed();
}

function move(step) {
  const at = list().findIndex((one) => one.name === shown.chosen);
  const next = list()[Math.min(list().length - 1, Math.max(0, at + step))];
  if (next) choose(next.name);
  requestAnimationFrame(() => document.querySelector(".view-rules [aria-selected=true]")?.scrollIntoView({ block: "nearest" }));
}

// ---- what can be done, and why not

// Return why a rule cannot be changed or removed here; empty if it can.
export function whyFixed(rule) {
  if (rule.origin === "file") return `it is in a file, at ${rule.position}: change it there, or turn it off`;
  return rule.stage !== null ? "it belongs to a scenario, which can only be removed as a whole" : "";
}

async function change(method, name, action, words) {
  await send(method, `${path(name)}${action}`);
  say(`${name}: ${words}`);
  await ask();
}

function turn(rule) {
  return change("POST", rule.name, rule.enabled ? "/disable" : "/enable", rule.enabled ? "turned off" : "turned on");
}

function remove(rule) {
  askFirst("Remove a rule?", `The rule "${rule.name}" and its counters are removed. Frames that it holds are resumed.`,
    [["Remove rule", () => change("DELETE", rule.name, "", "removed")]]);
}

function open(rule) {
  const fixed = whyFixed(rule);
  const text = document_of([rule.rule]);
  const draft = new Draft(text, { replace: true, quiet: Boolean(fixed) });
  write(draft, { title: fixed ? `Rule: ${rule.name}` : `Change a rule: ${rule.name}`, fixed, ttl: rule.ttl_left === null ? "" : `${Math.ceil(rule.ttl_left)}s`,
    done: "changed" });
}

export function add(text = NEW) {
  write(new Draft(text), { title: "Add rules", fixed: "", ttl: "", done: "in force" });
}

// Open a dialog with the text of rules. `fixed`: why they cannot be changed.
function write(draft, { title, fixed, ttl, done }) {
  const given = { ttl };
  const send_it = async (dryRun) => {
    take(await draft.add(given.ttl, dryRun));
    draft.close();
    closeDialog();
    say(done);
  };
  openDialog(() => html`<div class="write"><${Editor} draft=${draft} name="The rules" readonly=${Boolean(fixed) || !access.mayWrite} />
    ${fixed && html`<p class="dim">${fixed}</p>`}</div>
    <p class="foot">${!fixed && access.mayWrite && html`<label>gone after <input size="6" placeholder="never" value=${given.ttl}
      onInput=${(event) => { given.ttl = event.target.value.trim(); }} /></label>
      <button class="primary" disabled=${!draft.fine || draft.sending} onClick=${() => send_it(false).catch(() => {})}>${draft.replace ? "Change" : "Add"}</button>
      <button disabled=${!draft.fine || draft.sending} onClick=${() => send_it(true).catch(() => {})}>${draft.replace ? "Change" : "Add"} as dry run</button>`}
    <button onClick=${() => download(draft.text, "rules.yaml")}>Download</button>
    <button class="last" onClick=${() => { draft.close(); closeDialog(); }}>${fixed ? "Close" : "Cancel"}<kbd>esc</kbd></button></p>`,
  { title, wide: true });
}

// ---- drawing

// Return a rule's state: on, off, not in its stage, or off because faults are disabled.
export function stands(rule, disabled) {
  if (!rule.enabled) return "off";
  if (!rule.in_force) return disabled && rule.fault ? "faults disabled" : "not now";
  return rule.mode === "dry_run" ? "dry run" : "on";
}

const left = (rule) => (rule.ttl_left === null ? "" : duration(Math.max(0, rule.ttl_left - (Date.now() - shown.at) / 1000)));

function Spark({ name }) {
  const values = sparks.get(name) ?? [];
  const most = Math.max(1, ...values);
  const points = values.map((value, index) => `${((index + MINUTE - values.length) * 48) / (MINUTE - 1)},${13 - (12 * value) / most}`);
  return html`<svg class="spark" viewBox="0 0 48 14" aria-hidden="true"><polyline points=${points.join(" ")} /></svg>`;
}

function Switch({ rule }) {
  return html`<button role="switch" aria-checked=${String(rule.enabled)} aria-label=${rule.name} disabled=${!access.mayWrite}
    onClick=${(event) => { event.stopPropagation(); turn(rule).catch(complain); }} />`;
}

const HEADS = ["", "", "name", "kind", "from", "in force", "matched", "fired", "applied", "held", "a minute", "left", "where"];

function draw() {
  const { data } = shown;
  const one = chosen();
  return html`<main class="page" aria-label="Rules"><div class="tools"><h2>${data ? count(list().length, "rule") : "Rules"}
    ${data && html` <span class="dim">version ${data.version}</span>`} ${data?.faults_disabled && html`<span class="bad">faults are disabled</span>`}</h2>
    ${access.mayWrite && html`<button onClick=${() => add()}>Add…<kbd>+</kbd></button>`}${tools(one)}</div>
    ${data?.last_rejection && html`<p class="note">Refused at ${data.last_rejection.at} (${data.last_rejection.origin}): ${
      data.last_rejection.mistakes.slice(0, 3).map((each) => `${each.where}: ${each.message}`).join("; ")}</p>`}
    ${(data?.scenarios ?? []).map((each) => html`<p class="note" key=${each.name}>Scenario ${each.name}: ${each.stage === null ? "over" : `stage ${each.stage}${each.ends_in === null ? "" : `, ${duration(each.ends_in)} left`}`}</p>`)}
    <div class="scroll" tabindex="0" role="region" aria-label="All rules"><table class="table" role="grid" aria-label="Rules"><thead><tr role="row">${HEADS.map((text, index) => html`
      <th role="columnheader" scope="col" key=${index} class=${[6, 7, 8, 9, 11].includes(index) ? "r" : ""}>${text || html`<span class="sr">${index ? "on or off" : "number"}</span>`}</th>`)}</tr></thead>
    <tbody>${list().slice(0, shown.most).map((rule, index) => row(rule, index, data.faults_disabled))}</tbody></table>
    ${list().length > shown.most && html`<button onClick=${() => { shown.most += AT_ONCE; changed(); }}>${number(list().length - shown.most)} more</button>`}
    ${data && !list().length && html`<p class="nothing">There are no rules.</p>`}</div></main>`;
}

function row(rule, index, disabled) {
  const cell = (content, name = "") => html`<td role="gridcell" class=${name}>${content}</td>`;
  return html`<tr role="row" key=${rule.name} class=${rule.in_force ? "" : "dim"} aria-selected=${String(rule.name === shown.chosen)}
      onClick=${() => choose(rule.name)} onDblClick=${() => open(rule)}>${cell(index + 1, "r")}${cell(html`<${Switch} rule=${rule} />`)}
    ${cell(html`${rule.name}${[...rule.warnings, ...(rule.problem ? [`${rule.problems} problems: ${rule.problem}`] : [])].map((text) => html` <span class="slow" title=${text}>▲<span class="sr">${text}</span></span>`)}`)}
    ${cell(rule.kind)}${cell(rule.origin)}${cell(stands(rule, disabled), rule.in_force ? "" : "slow")}
    ${COUNTED.map((counter) => cell(rule[counter] === null ? "–" : number(rule[counter]), "r"))}
    ${cell(html`<${Spark} name=${rule.name} />`)}${cell(left(rule), "r")}${cell(rule.origin === "file" ? rule.position : rule.binds === "connection" ? "new connections" : "")}</tr>`;
}

function tools(rule) {
  if (!rule) return "";
  const fixed = whyFixed(rule);
  const act = (title, key, run, why = "") => html`<button key=${title} disabled=${Boolean(why)} title=${why} onClick=${() => run().catch?.(complain)}>${title}${key && html`<kbd>${key}</kbd>`}</button>`;
  return html`<button onClick=${() => open(rule)}>${fixed || !access.mayWrite ? "Text" : "Edit…"}<kbd>enter</kbd></button>
    ${access.mayWrite && html`${act(rule.enabled ? "Turn off" : "Turn on", "t", () => turn(rule))}
    ${act("Counters to 0", "", () => change("POST", rule.name, "/reset", "counts from 0"), rule.binds === "frame" ? "" : "it counts nothing")}
    ${act("Resume", "", () => change("POST", rule.name, "/resume", "resumed"), rule.held ? "" : "it holds nothing")}
    ${act("Remove…", "x", async () => remove(rule), fixed)}`}`;
}

section({ name: "rules", order: 20, when: () => shown.data !== null && state.source === "live", draw: () => html`
  <h2><b>Rules</b> version ${shown.data.version}<span class="e">${access.mayWrite && html`<button onClick=${() => add()}>Add…</button>`}</span></h2>
  ${list().some((rule) => rule.fired !== null) && html`<div class="rule-heads" aria-hidden="true"><span>matched</span><span>fired</span></div>`}
  <ul class="rules">${list().slice(0, 8).map((rule) => html`<li key=${rule.name} class=${rule.in_force ? "" : "off"}><${Switch} rule=${rule} />
    <span class="name"><a href="#/rules" onClick=${() => choose(rule.name)}>${rule.name}</a><small>${[rule.kind, rule.origin, left(rule) && `${left(rule)} left`].filter(Boolean).join(" · ")}</small></span>
    ${rule.fired === null ? html`<span class="wide dim">at connect</span>` : html`<${Spark} name=${rule.name} /><span class="r" title="matched">${number(rule.matched)}</span><span class="r" title="fired">${number(rule.fired)}</span>`}</li>`)}</ul>
  ${list().length > 8 && html`<a href="#/rules">${number(list().length - 8)} more</a>`}${!list().length && html`<p class="dim">there are none</p>`}` });

const here = { group: "rules", view: "rules" };
command({ ...here, key: "j down", title: "Down", help: "rules: down", act: () => move(1) });
command({ ...here, key: "k up", title: "Up", help: "rules: up", act: () => move(-1) });
command({ ...here, key: "enter", title: "Text", help: "rules: the text of one, to look at or to change", act: () => { if (chosen()) open(chosen()); } });
command({ ...here, key: "t", title: "Turn off or on", help: "rules: turn off or on", writes: true, act: () => chosen() && turn(chosen()) });
command({ ...here, key: "x", title: "Remove…", help: "rules: remove", writes: true, act: () => {
  if (chosen() && whyFixed(chosen())) say(whyFixed(chosen()), true);
  else if (chosen()) remove(chosen());
} });
command({ ...here, key: "+", title: "Add rules…", help: "rules: write some", writes: true, act: () => add() });
