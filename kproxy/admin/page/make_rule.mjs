// A rule made of an exchange: a form that writes YAML. Who changes the YAML says more than the form can show, so the
// form is grey from then on.

import { access, get } from "./api.mjs";
import { copyText } from "./clipboard.mjs";
import { Component, changed, html } from "./dom.mjs";
import { closeDialog, command, complain, openDialog, say } from "./registry.mjs";
import { Draft, Editor, download } from "./rule_editor.mjs";
import { document_of, injection } from "./yaml.mjs";

const FIRST = ["error", "delay", "drop", "disconnect", "set", "intercept", "throttle_time"];
const SHOWN = 6;
const TTL = "10m";
const SELECTORS = [["topic", "topic"], ["partition", "partition"], ["group", "group"], ["transactional_id", "transactional_id"],
  ["client_id", "client"], ["principal", "principal"], ["client_address", "address"]];
const CHOSEN = new Set(["topic", "partition", "group", "transactional_id"]);

let kinds = null;

// Return all kinds of rules, asked for once.
export async function allKinds() {
  kinds ??= (await get("/api/kinds")).kinds;
  return kinds;
}

// Return a selector for this text and nothing else: patterns have letters of their own.
export function exact(value) {
  if (typeof value !== "string" || !/[*?[\]/\\!]/.test(value)) return value;
  return `/${value.replace(/[^\w\u0080-\uffff]/g, "\\$&")}/`;
}

// Return what can be selected by of a row: [selector, value] pairs, the API first.
export function selectable(row) {
  const found = [["api", row.api]];
  for (const [name, column] of SELECTORS) {
    let value = row[column];
    if (value === null || value === undefined || value === "") continue;
    if (name === "client_address") value = String(value).replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
    found.push([name, exact(value)]);
  }
  return found;
}

// Return the kinds that can act on an API, the usual ones first, then all others; those that cannot act on it last.
export function inOrder(all, api) {
  const rank = (kind) => {
    const usual = FIRST.indexOf(kind.kind);
    const acts = kind.apis?.includes(api);
    return (acts ? 0 : kind.apis === null ? 200 : 400) + (usual < 0 ? 100 : usual);
  };
  return all.filter((kind) => !kind.from_files_only).sort((one, other) => rank(one) - rank(other) || one.kind.localeCompare(other.kind));
}

// Form for one rule. `edit`: what happened to the exchange, to do the same from now on: {kind, parameters}.
export class RuleForm {
  constructor(row, all, edit) {
    this.row = row;
    this.kinds = inOrder(all, row.api);
    this.kind = this.kinds.find((one) => one.kind === edit?.kind) ?? this.kinds[0];
    this.parameters = edit?.parameters ?? null;
    this.match = new Set(["api", ...selectable(row).map(([name]) => name).filter((name) => CHOSEN.has(name))]);
    if (edit && this.match.size === 1) this.match.add("client_id"); // what was done to one is not done to all
    this.times = "";
    this.ttl = TTL;
    this.dryRun = false;
    this.all = false;
    this.draft = new Draft(this.text);
  }
  get rule() {
    const found = Object.fromEntries(selectable(this.row).filter(([name]) => this.match.has(name)));
    const about = found.topic ?? found.group ?? found.client_id ?? "all";
    return {
      name: `${this.kind.kind} for ${this.row.api} of ${about}`.slice(0, 200),
      kind: this.kind.kind,
      ...(Object.keys(found).length ? { match: found } : {}),
      ...(this.times ? { when: { times: Number(this.times) } } : {}),
      ...(this.parameters ?? this.kind.parameters),
    };
  }
  get text() {
    return document_of([this.rule]);
  }
  // Whether the text is still what the form would write.
  get mine() {
    return this.draft.text === this.written;
  }
  write() {
    this.written = this.text;
    this.draft.write(this.written);
    changed();
  }
  set(changes) {
    Object.assign(this, changes);
    this.write();
  }
}

export class MakeRule extends Component {
  render({ form }) {
    const { draft } = form;
    const grey = !form.mine;
    const shown = form.all ? form.kinds : form.kinds.slice(0, SHOWN);
    if (!shown.includes(form.kind)) shown.push(form.kind);
    const add = async (dryRun) => {
      await draft.add(form.ttl, dryRun);
      closeDialog();
      say(dryRun ? "the dry run is in force" : "the rule is in force");
    };
    return html`<div class="make"><div class="form"><fieldset disabled=${grey}><legend>What happens</legend>
        <div class="kinds">${shown.map((kind) => html`<label key=${kind.kind}><input type="radio" name="kind" checked=${kind === form.kind}
          onChange=${() => form.set({ kind, parameters: null })} /> ${kind.kind} <span class="dim">${kind.text}</span></label>`)}</div>
        ${!form.all && html`<button onClick=${() => { form.all = true; changed(); }}>${form.kinds.length - shown.length} more kinds…</button>`}</fieldset>
      <fieldset disabled=${grey}><legend>To what</legend>${selectable(form.row).map(([name, value]) => html`<label key=${name}><input type="checkbox" checked=${form.match.has(name)}
        onChange=${() => { form.match.has(name) ? form.match.delete(name) : form.match.add(name); form.write(); }} /> ${name} <code>${String(value)}</code></label>`)}</fieldset>
      <fieldset><legend>When, and for how long</legend><label>acts <input size="4" inputmode="numeric" disabled=${grey} value=${form.times} placeholder="any"
        onInput=${(event) => { if (/^\d*$/.test(event.target.value)) form.set({ times: event.target.value }); }} /> times at most</label>
        <label>gone after <input size="5" value=${form.ttl} onInput=${(event) => { form.ttl = event.target.value.trim(); changed(); }} /></label></fieldset>
      ${grey && html`<p class="dim">The text says more than the form can show. <button onClick=${() => form.write()}>Use the form again</button></p>`}</div>
      <${Editor} draft=${draft} name="The rule" /></div>
      <p class="foot">${access.mayWrite && html`<button class="primary" disabled=${!draft.fine || draft.sending} onClick=${() => add(false).catch(() => {})}>Add</button>
      <button disabled=${!draft.fine || draft.sending} onClick=${() => add(true).catch(() => {})}>Add as dry run</button>`}
      <button onClick=${() => download(draft.text, "rule.yaml")}>Download</button>
      <button disabled=${grey} title=${grey ? "the form writes it, and the text is another one" : injection(form.rule)} onClick=${() => copyText(injection(form.rule))}>Copy for pytest</button>
      <button class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`;
  }
}

// Open the dialog for a rule about exchanges like this row. `edit`: see RuleForm.
export async function makeRule(row, edit = null) {
  try {
    const form = new RuleForm(row, await allKinds(), edit);
    form.written = form.draft.text;
    openDialog(() => html`<${MakeRule} form=${form} />`, { title: `A rule of exchange ${row.id}`, wide: true });
  } catch (error) {
    complain(error);
  }
}

command({ key: "m", title: "Make a rule…", help: "a rule about exchanges like this", short: "make a rule", group: "exchange",
  place: "exchange", order: 10, when: ({ row }) => row !== null, act: ({ row }) => makeRule(row) });
