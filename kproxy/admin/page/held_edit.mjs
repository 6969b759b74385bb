// A held frame that is looked at: fields and records with other values, other bytes, or an answer in the broker's place.
//
// What is typed is checked by the proxy a moment after the last key, and marked before anything is sent. While a dialog is
// open, claims extend the hold, half a minute at a time and ten minutes at most.

import { get, me, send } from "./api.mjs";
import { Component, changed, html } from "./dom.mjs";
import { count, duration, fromBase64, hex2 } from "./format.mjs";
import { decide, held, left, named, put } from "./held.mjs";
import { rows } from "./live.mjs";
import { makeRule } from "./make_rule.mjs";
import { closeDialog, complain, openDialog } from "./registry.mjs";
import { Tree, nodesOf, valueText } from "./tree.mjs";

const PAUSE = 250;
const MOST_RECORDS = 50;
const MOST_OFFERED = 50;
const LONGEST_OFFERED = 200;
const CLAIM = 10000; // milliseconds between claims, each of which lasts thirty seconds

// Return the value that a text stands for: JSON where it is some, else the text itself.
export function valueOf(text, now) {
  if (typeof now === "string" && !/^(null|".*")$/s.test(text.trim())) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const toBase64 = (bytes) => btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(""));

export function bytesOf(text) {
  const digits = text.replace(/[\s:]/g, "");
  if (digits.length % 2 || /[^0-9a-f]/i.test(digits)) return null;
  return new Uint8Array((digits.match(/../g) ?? []).map((one) => parseInt(one, 16)));
}

const textOf = (base64) => {
  if (base64 === null || base64 === undefined) return null;
  const found = fromBase64(base64);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(found);
  } catch {
    return `hex:${Array.from(found, hex2).join("")}`;
  }
};

// Edit of one held frame: `changes` by path, or `bytes` as text; `said` is what the proxy said of it last.
export class Edit {
  constructor(shown) {
    Object.assign(this, { shown, changes: new Map(), bytes: null, said: null, mistakes: [], refused: "", timer: null, number: 0 });
  }
  get body() {
    const body = { revision: this.shown.revision };
    if (this.bytes !== null) {
      const data = bytesOf(this.bytes);
      return { ...body, bytes: data === null ? "!" : toBase64(data) };
    }
    if (this.changes.size) body.set = [...this.changes].map(([path, value]) => ({ path, value }));
    return body;
  }
  get touched() {
    return this.changes.size > 0 || this.bytes !== null;
  }
  // Rule that does the same to what comes later: {kind, parameters} as make_rule.mjs takes them, null where no kind can
  // say it. Bytes and records are no fields.
  get rule() {
    const records = this.shown.frame.steps.filter((step) => step[4] === "value" && step[5].endsWith("RECORDS"));
    const isField = (path) => !records.some((step) => path.startsWith(`${step[3]}[`));
    if (this.bytes !== null || !this.changes.size || ![...this.changes.keys()].every(isField)) return null;
    return { kind: "set", parameters: { fields: Object.fromEntries(this.changes), at: this.shown.at } };
  }
  set(path, value) {
    this.changes.set(path, value);
    this.wait();
  }
  undo() {
    this.changes.clear();
    this.bytes = this.said = null;
    this.mistakes = [];
    this.refused = "";
    this.number++;
    changed();
  }
  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.preview(), PAUSE);
    changed();
  }
  async preview() {
    const body = this.body;
    try {
      this.said = await send("POST", `/api/held/${this.shown.id}/preview`, body);
      this.mistakes = [];
      this.refused = "";
    } catch (error) {
      this.mistakes = error.mistakes ?? [];
      this.refused = this.mistakes.length ? "" : error.message;
    }
    changed();
  }
  mistakeOf(path) {
    return this.mistakes.find((one) => one.where === path)?.message ?? "";
  }
}

// Return the row of a held frame; where the list has none, what is known of its exchange.
function rowOf({ id, exchange }) {
  for (const place of rows.open.values()) {
    if (rows.has(place) && rows.number(place, "connection") === exchange.connection
      && rows.number(place, "correlation") === exchange.correlation_id) return rows.row(place);
  }
  return { ...exchange, id, address: exchange.client_address };
}

// Hold a frame until the returned function is called.
function keepHolding({ id }) {
  const claim = () => send("POST", `/api/held/${id}/claim`, { who: me() }).then(put).catch(() => {});
  claim();
  const timer = setInterval(claim, CLAIM);
  return () => clearInterval(timer);
}

// Show the remaining time of a frame that a dialog is about, or that it is gone.
function Remaining({ of }) {
  const one = held.list.get(of.id);
  if (!one) return html`<p class="note" role="alert">It is not held any more.</p>`;
  const most = one.latest === null || one.latest === undefined ? "" : `, extended while this is open, ${duration(Math.max(0, (one.latest - Date.now()) / 1000))} at most`;
  return html`<p class="note">${left(one)}${most}</p>`;
}

export async function editHeld(one) {
  const shown = await get(`/api/held/${one.id}`);
  if (!shown.frame) throw new Error(shown.why_not ?? "not all of it is here");
  shown.frame.data = fromBase64(shown.frame.data);
  const edit = new Edit(shown);
  learn();
  const stopHolding = keepHolding(one);
  const leave = () => {
    stopHolding();
    clearTimeout(edit.timer);
  };
  const resume = async (event, rule = null) => {
    event.preventDefault();
    const row = rule && rowOf(one);
    try {
      await decide(shown, "resume", { ...edit.body, who: me() });
      closeDialog();
      if (rule) makeRule(row, rule);
    } catch (error) {
      complain(error);
    }
  };
  const wrong = () => edit.mistakes.length > 0 || Boolean(edit.refused) || !held.list.has(one.id);
  const key = (event) => {
    if (event.key !== "V" || event.target.matches("input, textarea")) return;
    event.preventDefault();
    edit.undo();
  };
  openDialog(() => html`<form class="edit" onSubmit=${resume} onKeyDown=${key}><${Remaining} of=${one} /><${Fields} edit=${edit} round=${edit.number} />
    <p class="foot"><button class="primary" disabled=${wrong()}>${edit.touched ? "Resume with the edit" : "Resume"}</button>
    ${edit.rule && html`<button type="button" disabled=${wrong()} title="it goes on with the edit, and a rule is proposed that does the same to the next ones"
      onClick=${(event) => resume(event, edit.rule)}>Like this from now on…</button>`}
    <button type="button" onClick=${() => edit.undo()} disabled=${!edit.touched}>Undo the edit<kbd>V</kbd></button>
    <span role="status" class=${edit.refused || edit.mistakes.length ? "bad" : "dim"}>${edit.refused || (edit.mistakes.length ? `${edit.mistakes.length} do not fit`
      : edit.said ? `leaves with ${edit.said.frame.bytes} bytes` : "")}</span>
    <button type="button" class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p></form>`, { title: `Held: ${named(one)}`, wide: true, leave });
}

class Fields extends Component {
  constructor() {
    super();
    this.state = { chosen: null };
  }
  render({ edit, round }) {
    const { frame, records = [] } = edit.shown;
    const nodes = nodesOf(frame.steps);
    const node = this.state.chosen === null ? null : nodes[this.state.chosen];
    const choose = (at) => { this.setState({ chosen: at }); };
    const others = new Map([...edit.changes].map(([path, value]) => [path, JSON.stringify(value)]));
    const whole = frame.form === "whole" && !frame.withheld;
    const { list, rest } = recordsOf(records, frame.steps);
    const bytes = edit.bytes ?? Array.from(frame.data, hex2).join(" ");
    return html`<div class="fields" key=${round}>
      ${frame.withheld && html`<p class="note">not shown: ${frame.withheld}</p>`}${frame.decode_error && html`<p class="note">${frame.decode_error}</p>`}
      <${Tree} label="Fields" steps=${frame.steps} data=${frame.data} chosen=${this.state.chosen} marked=${null} others=${others} mark=${() => {}} choose=${choose} />
      ${node && node.kind === "value" && !node.path.startsWith("header") && html`<${Value} edit=${edit} path=${node.path} name=${node.path} now=${node.value} text=${valueText(node, frame.data)} offered=${offeredFor(node)} />`}
      ${list.map(({ path, record, place }) => html`<fieldset key=${path}><legend>${place} · record ${record.offset}</legend>
        <${Value} edit=${edit} path=${`${path}.key`} name="key" now=${textOf(record.key)} text=${textOf(record.key)} offered=${proposals("key", list)} />
        <${Value} edit=${edit} path=${`${path}.value`} name="value" now=${textOf(record.value)} text=${textOf(record.value)} offered=${proposals("value", list)} />
        <${Value} edit=${edit} path=${`${path}.headers`} name="headers" now=${headersOf(record)} offered=${[]} /></fieldset>`)}
      ${rest > 0 && html`<p class="note">${count(rest, "record")} more: their bytes can be edited, and their fields over the API</p>`}
      ${whole && html`<details><summary>Bytes</summary><textarea aria-label="Bytes of the frame" rows="8" value=${bytes} aria-invalid=${bytesOf(bytes) === null ? "true" : null}
        onInput=${(event) => { edit.bytes = event.target.value; edit.changes.clear(); edit.wait(); }}></textarea></details>`}</div>`;
  }
}

// Field with a text in which its value is written.
class Value extends Component {
  render({ edit, path, name, now, text, offered }) {
    const wrong = edit.mistakeOf(path);
    const list = offered.length ? `offered-${path}` : null;
    const value = edit.changes.has(path) ? edit.changes.get(path) : now;
    const written = value === null ? "null" : typeof value === "object" ? (typeof value?.bytes === "number" ? text : JSON.stringify(value)) : String(value);
    return html`<label class="value"><span title=${path}>${name}</span> <input type="text" value=${written} list=${list} aria-invalid=${wrong ? "true" : null} aria-describedby=${`wrong-${path}`}
      onInput=${(event) => edit.set(path, valueOf(event.target.value, now))} /><span id=${`wrong-${path}`} class="bad">${wrong}</span>
      ${list && html`<datalist id=${list}>${offered.map(([one, words]) => html`<option key=${one} value=${one}>${words}</option>`)}</datalist>`}</label>`;
  }
}

// Return the headers of a record as they are written: a list, which the proxy takes as JSON.
function headersOf(record) {
  return (record.headers ?? []).map(([key, value]) => ({ key, value: textOf(value) }));
}

// Return what may be written for a key or a value: null, and what the other records of the frame have.
export function proposals(part, list) {
  const known = new Set(list.map(({ record }) => textOf(record[part])).filter((one) => one !== null && one.length <= LONGEST_OFFERED));
  return [["null", part === "value" ? "a tombstone" : "no key"], ...[...known].slice(0, MOST_OFFERED).map((one) => [one, ""])];
}

const names = { errors: [], kept: {}, asked: false };

// Ask for the names that are offered: errors, and topics, groups and others that the proxy has met.
async function learn() {
  if (names.asked) return;
  names.asked = true;
  const found = await get("/api/names").catch(() => ({}));
  Object.assign(names, { errors: found.errors ?? [], kept: found.kept ?? {}, asked: false });
  changed();
}

const KNOWN_AS = [[/(^|[._])topics?(_name|_data|_names)?(\.name)?$/, "topics"], [/(^|[._])groups?(_id)?$/, "groups"],
  [/transactional_id$/, "transactional_ids"]];

// Return what may be written for a field of the tree, by its type and its name.
export function offeredFor({ path, name, type, value }) {
  const found = type.includes("NULLABLE") ? [["null", ""]] : [];
  if (typeof value === "boolean" || type === "BOOLEAN" || type === "BOOL") return [["true", ""], ["false", ""]];
  const plain = path.replace(/\[\d+\]/g, "");
  const kind = KNOWN_AS.find(([pattern]) => pattern.test(plain))?.[1];
  if (kind) found.push(...(names.kept[kind] ?? []).slice(0, MOST_OFFERED).map((one) => [one, ""]));
  if (name === "acks") found.push(["-1", "all"], ["1", "the leader"]);
  return found;
}

// Return the records of a frame with their paths, counted over all batches of a partition, and how many more there are.
// Partitions are in the order of the fields that hold their batches.
export function recordsOf(partitions, steps) {
  const fields = steps.filter((step) => step[4] === "value" && step[5].endsWith("RECORDS") && step[6] !== null);
  const found = [];
  let omitted = 0;
  for (const [place, partition] of partitions.entries()) {
    let number = 0;
    for (const batch of partition.batches ?? []) {
      for (const record of batch.records ?? []) {
        found.push({ path: `${fields[place]?.[3]}[${number++}]`, record, place: `${partition.topic}[${partition.partition}]` });
      }
      number += batch.omitted ?? 0;
      omitted += batch.omitted ?? 0;
    }
  }
  return { list: found.slice(0, MOST_RECORDS), rest: Math.max(0, found.length - MOST_RECORDS) + omitted };
}

export function answerHeld(one) {
  let error = "";
  let body = "";
  let told = "";
  learn();
  const leave = keepHolding(one);
  const answer = async (event, lasting = false) => {
    event.preventDefault();
    const row = rowOf(one);
    let given;
    try {
      given = body.trim() ? { body: JSON.parse(body) } : { error: /^-?\d+$/.test(error) ? Number(error) : error };
    } catch (wrong) {
      told = wrong.message;
      return changed();
    }
    try {
      await decide(one, "answer", { ...given, who: me() });
      closeDialog();
      if (lasting) makeRule(row, { kind: "error", parameters: { error: given.error, at: "request" } });
    } catch (refused) {
      told = [refused.message, ...(refused.mistakes ?? []).map((mistake) => `${mistake.where}: ${mistake.message}`)].join("\n");
      changed();
    }
  };
  openDialog(() => html`<form onSubmit=${answer}><${Remaining} of=${one} /><p class="text">The broker never sees the request.</p>
    <p class="text"><label>Error, by name or number <input type="text" autofocus size="34" placeholder="NOT_LEADER_OR_FOLLOWER" list="offered-errors" autocomplete="off"
      onInput=${(event) => { error = event.target.value.trim(); changed(); }} /></label>
      <datalist id="offered-errors">${names.errors.map((one) => html`<option key=${one} value=${one} />`)}</datalist></p>
    <p class="text"><label>or fields of the answer, as JSON; others have their defaults<textarea rows="6" onInput=${(event) => { body = event.target.value; changed(); }}></textarea></label></p>
    ${told && html`<p class="text bad" role="alert">${told}</p>`}
    <p class="foot"><button class="primary" disabled=${!held.list.has(one.id)}>Answer</button>
    ${error && !body.trim() && html`<button type="button" title="it is answered, and a rule is proposed that answers the next ones so" onClick=${(event) => answer(event, true)}>Like this from now on…</button>`}
    <button type="button" class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p></form>`,
  { title: `Answer ${named(one)}`, leave });
}
