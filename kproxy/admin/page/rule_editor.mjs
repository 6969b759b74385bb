// A rule document that is being written: text with numbers of lines, and what the proxy says of it.
//
// A moment after the last key the proxy is asked what is wrong with it, and how many of the exchanges that it has kept
// the rules would be about. What is said stands below, and beside its line.

import { request, saveAs } from "./api.mjs";
import { Component, changed, html } from "./dom.mjs";
import { count, number } from "./format.mjs";

const PAUSE = 300;
const YAML = { "Content-Type": "application/yaml" };

// Text of rules, and what was said of it last. `replace`: rules of the same names are meant to be replaced; `quiet`:
// it is only looked at, and nothing is asked.
export class Draft {
  constructor(text, { replace = false, quiet = false } = {}) {
    Object.assign(this, { text, replace, quiet, said: null, asked: null, timer: null, sending: false, refused: "" });
    if (!quiet) this.ask();
  }
  get fine() {
    return this.said !== null && this.asked === this.text && this.said.mistakes.length === 0 && this.said.rules > 0;
  }
  write(text) {
    if (text === this.text) return;
    this.text = text;
    this.refused = "";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), PAUSE);
    changed();
  }
  // Ask the proxy what is to be said of the text; an answer that comes too late is forgotten.
  async ask() {
    const { text } = this;
    try {
      const said = await (await request(`/api/check?replace=${this.replace}`, { method: "POST", body: text, headers: YAML })).json();
      if (text !== this.text) return;
      this.said = said;
      this.asked = text;
    } catch (error) {
      if (text === this.text) this.refused = error.message;
    }
    changed();
  }
  // Put the rules into force. `dryRun`: the rules are dry runs. Returns what the proxy has then; raises ApiError.
  async add(ttl, dryRun = false) {
    this.sending = true;
    changed();
    try {
      const query = new URLSearchParams({ replace: String(this.replace), ...(ttl ? { ttl } : {}) });
      const body = dryRun ? asDryRun(this.text) : this.text;
      return await (await request(`/api/rules?${query}`, { method: "POST", body, headers: YAML })).json();
    } catch (error) {
      this.refused = [error.message, ...(error.mistakes ?? []).map((one) => `${one.where}: ${one.message}`)].join("\n");
      throw error;
    } finally {
      this.sending = false;
      changed();
    }
  }
  close() {
    clearTimeout(this.timer);
  }
}

// Return a document whose rules are dry runs: each has the line `mode: dry_run`.
export function asDryRun(text) {
  const lines = text.split("\n").filter((line) => !/^\s*mode:\s*\S+\s*$/.test(line));
  const out = [];
  for (const line of lines) {
    out.push(line);
    const found = /^(\s*-\s+|\s+)kind:\s/.exec(line);
    if (found) out.push(`${" ".repeat(found[1].length)}mode: dry_run`);
  }
  return out.join("\n");
}

export class Editor extends Component {
  constructor() {
    super();
    this.keep = (element) => { this.area = element; };
    this.keepNumbers = (element) => { this.numbers = element; };
    this.scrolled = () => { this.numbers.scrollTop = this.area.scrollTop; };
  }
  // Put the caret where a mistake is.
  show(one) {
    if (one.line === null) return;
    const lines = this.area.value.split("\n");
    const at = lines.slice(0, one.line - 1).reduce((sum, line) => sum + line.length + 1, 0) + one.column - 1;
    this.area.focus();
    this.area.setSelectionRange(at, at + 1);
    this.area.scrollTop = (one.line - 4) * 17;
  }
  render({ draft, rows = 14, name = "The rules", readonly = false }) {
    const said = draft.said ?? { mistakes: [], warnings: [], matches: null };
    const bad = new Set(said.mistakes.map((one) => one.line));
    const warned = new Set(said.warnings.map((one) => one.line));
    const count = draft.text.split("\n").length;
    const lines = Array.from({ length: count }, (_, index) => index + 1);
    return html`<div class="editor"><div class="code"><pre class="numbers" aria-hidden="true" ref=${this.keepNumbers}>${lines.map((line) => html`<i
        key=${line} class=${bad.has(line) ? "bad" : warned.has(line) ? "slow" : ""}>${line}</i>`)}</pre>
      <textarea ref=${this.keep} rows=${rows} spellcheck=${false} autocapitalize="off" wrap="off" aria-label=${name} readonly=${readonly}
        aria-invalid=${said.mistakes.length ? "true" : null} aria-describedby="said" value=${draft.text}
        onInput=${(event) => draft.write(event.target.value)} onScroll=${this.scrolled} /></div>
      <ul class="said" id="said" aria-live="polite">${draft.refused && html`<li class="bad">${draft.refused}</li>`}
        ${said.mistakes.map((one) => this.line(one, "bad", draft))}${said.warnings.map((one) => this.line(one, "slow", draft))}
        <li class="dim">${judgement(draft)}</li></ul></div>`;
  }
  line(one, name, draft) {
    const place = one.line === null ? one.where : `${one.line}:${one.column}`;
    const meant = one.line === null ? null : correction(one, draft.text);
    return html`<li class=${name}>${one.line === null ? place : html`<button class="place" onClick=${() => this.show(one)}>${place}</button>`} ${one.message}
      ${meant !== null && html` <button onClick=${() => draft.write(meant)}>Take it</button>`}</li>`;
  }
}

// Return the text with the word that a mistake asks for, null where it asks for none.
export function correction(one, text) {
  const found = /"([^"]+)".*(?:did you mean|renamed to) "([^"]+)"/.exec(one.message);
  if (!found) return null;
  const lines = text.split("\n");
  const line = lines[one.line - 1] ?? "";
  const at = line.indexOf(found[1], Math.max(0, one.column - 2));
  if (at < 0) return null;
  lines[one.line - 1] = line.slice(0, at) + found[2] + line.slice(at + found[1].length);
  return lines.join("\n");
}

// Return what the last check said of the exchanges, in a sentence.
export function judgement(draft) {
  if (draft.quiet) return "";
  if (draft.asked !== draft.text) return "one moment …";
  const { mistakes, rules, matches } = draft.said;
  if (mistakes.length) return `${mistakes.length} mistake${mistakes.length === 1 ? "" : "s"}`;
  if (!rules) return "there is no rule in it";
  if (!matches) return count(rules, "rule");
  if (!matches.of) return "no exchanges are kept to try it on";
  const rest = matches.kept - matches.of - matches.unfit;
  return `Of the ${number(matches.of)} exchanges here ${number(matches.matched)} would match, ${number(matches.fired)} would fire.${
    matches.unfit ? ` ${number(matches.unfit)} ${matches.unfit === 1 ? "was" : "were"} not kept whole.` : ""}${rest > 0 ? ` There was no time for ${number(rest)} more.` : ""}`;
}

// Save the text as a file.
export function download(text, name) {
  saveAs(new Blob([text], { type: "application/yaml" }), name);
}
