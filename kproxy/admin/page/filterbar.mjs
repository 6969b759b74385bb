// The filter: a line with colours and completion, chips that are joined to it, and named ones that are kept here.
//
// The proxy judges what is typed. Until it is right, the filter before stays in force.

import { get } from "./api.mjs";
import { Component, changed, html } from "./dom.mjs";
import { number, quoted } from "./format.mjs";
import { buttons } from "./keys.mjs";
import { begin, live, rows } from "./live.mjs";
import { closeDialog, command, on, openDialog } from "./registry.mjs";
import { CHIPS, keepAddress, state } from "./state.mjs";

const KEPT = "kproxy-filters";
const TOKENS = /("(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?)|(~[A-Za-z_]+)|\b(and|or|not|in)\b|(==|!=|<=|>=|!~|=~|[<>~=!&|()])|([^\s"'~<>=!&|()]+)|(\s+)/g;
const KINDS = ["", "of-string", "of-field", "of-word", "of-operator", "of-string", ""];
const MOST_OFFERED = 12;

const names = { fields: [], values: {}, asked: false };

// Ask for the names that can be completed; what is not there is not offered.
async function learn() {
  if (names.asked) return;
  names.asked = true;
  const found = await get("/api/names").catch(() => ({}));
  names.fields = found.fields ?? [];
  const kept = found.kept ?? {};
  names.values = { topic: kept.topics, t: kept.topics, group: kept.groups, g: kept.groups, client_id: kept.client_ids,
    cl: kept.client_ids, principal: kept.principals, transactional_id: kept.transactional_ids, x: kept.transactional_ids,
    api: found.apis, k: found.apis, error: found.errors, e: found.errors };
  setTimeout(() => { names.asked = false; }, 10000);
}

export function focusFilter() {
  document.querySelector(".filter input")?.focus();
}

export function useFilter(text) {
  state.filter = text;
  keepAddress();
  begin();
}

// Return the words that could stand where the caret is, with the place where each begins.
export function offers(text, caret, known) {
  const before = text.slice(0, caret);
  const word = /[^\s"'()<>=!&|]*$/.exec(before)[0];
  const from = caret - word.length;
  const rest = before.slice(0, from).trimEnd();
  const field = /(?:~([A-Za-z_]+)|([A-Za-z_]+)\s*(?:==|!=|~|=~|=))\s*$/.exec(rest);
  const fits = (one) => one.toLowerCase().startsWith(word.toLowerCase()) && one !== word;
  const values = field ? known.values[field[1] ?? field[2]] : null;
  if (values) return { from, list: values.filter(fits).slice(0, MOST_OFFERED).map((one) => ({ text: quoted(one), note: "" })) };
  if (!word) return { from, list: [] };
  const fields = (known.fields ?? []).flatMap((one) => [
    { text: one.name, note: one.meaning }, ...(one.short ? [{ text: `~${one.short}`, note: one.meaning }] : []),
  ]);
  return { from, list: fields.filter((one) => fits(one.text)).slice(0, MOST_OFFERED) };
}

function ink(text) {
  return [...text.matchAll(TOKENS)].map((match) => {
    const kind = match.findIndex((part, index) => index > 0 && part !== undefined);
    return html`<span class=${KINDS[kind] ?? ""}>${match[0]}</span>`;
  });
}

export class FilterBar extends Component {
  constructor() {
    super();
    this.text = null; // what is being typed; null: what is in force
    this.judged = { long: "", message: "", column: null };
    this.offered = { from: 0, list: [] };
    this.chosen = -1;
    this.keepInput = (element) => { this.input = element; };
    this.keepInk = (element) => { this.ink = element; };
    this.typed = () => {
      this.text = this.input.value;
      this.chosen = -1;
      this.offered = offers(this.text, this.input.selectionStart, names);
      this.judge();
      changed();
    };
    this.scrolled = () => { this.ink.scrollLeft = this.input.scrollLeft; };
    this.came = async () => {
      await learn();
      if (this.text !== null) this.typed();
    };
    this.left = () => { this.offered = { from: 0, list: [] }; changed(); };
    this.key = (event) => this.pressed(event);
  }
  componentDidUpdate() {
    this.scrolled();
  }
  judge() {
    clearTimeout(this.waits);
    this.waits = setTimeout(() => this.ask(), 150);
  }
  // Return true if the proxy takes the text that is there now.
  async ask() {
    const text = this.text ?? state.filter;
    let judged = { long: "", message: "", column: null };
    if (text.trim()) {
      try {
        const found = await get(`/api/filter?${new URLSearchParams({ text })}`);
        judged = { long: found.filter ?? "", message: found.message ?? "", column: found.column };
      } catch (error) {
        judged.message = error.status === 404 ? "" : error.message;
      }
    }
    if (text !== (this.text ?? state.filter)) return false;
    this.judged = judged;
    changed();
    return !judged.message;
  }
  pressed(event) {
    const list = this.offered.list;
    if (list.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      this.chosen = (this.chosen + (event.key === "ArrowDown" ? 1 : list.length)) % list.length;
      if (this.chosen < 0) this.chosen = 0;
      changed();
    } else if (list.length && (event.key === "Tab" || event.key === "Enter") && this.chosen >= 0) {
      event.preventDefault();
      this.complete(list[this.chosen]);
    } else if (event.key === "Tab" && list.length && !event.shiftKey) {
      event.preventDefault();
      this.complete(list[0]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.take();
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (list.length) return this.left();
      this.text = null;
      this.judged = { long: "", message: "", column: null };
      document.querySelector(".list")?.focus();
      changed();
    }
  }
  async take() {
    const text = this.text ?? state.filter;
    clearTimeout(this.waits);
    this.input.readOnly = true; // the next key is for the list already
    const fine = await this.ask();
    this.input.readOnly = false;
    if (!fine) return;
    this.text = null;
    this.left();
    useFilter(text);
    document.querySelector(".list")?.focus();
  }
  complete({ text }) {
    const typed = this.input.value, caret = this.input.selectionStart;
    this.text = `${typed.slice(0, this.offered.from)}${text} ${typed.slice(caret)}`;
    const place = this.offered.from + text.length + 1;
    this.left();
    this.judge();
    requestAnimationFrame(() => { this.input.setSelectionRange(place, place); });
  }
  render() {
    const text = this.text ?? state.filter;
    const { message, column, long } = this.judged;
    const list = this.offered.list;
    return html`<div class="filterbar" role="search" aria-label="Filter">
      ${state.crumbs.map((crumb) => html`<button class="chip crumb" aria-label=${`Remove ${crumb.title}`} onClick=${() => drop(crumb)}>${crumb.title} ×</button>`)}
      <div class=${message ? "filter wrong" : "filter"}><span aria-hidden="true">⌕</span>
        <span class="typing"><span class="ink" aria-hidden="true" ref=${this.keepInk}>${ink(text)}</span>
        <input ref=${this.keepInput} value=${text} onInput=${this.typed} onKeyDown=${this.key} onScroll=${this.scrolled}
          onFocus=${this.came} onBlur=${this.left} spellcheck="false" autocomplete="off" role="combobox" aria-label="Filter"
          aria-expanded=${list.length ? "true" : "false"} aria-controls="offers" aria-autocomplete="list"
          aria-activedescendant=${this.chosen >= 0 ? `offer${this.chosen}` : null} placeholder="all exchanges"
          aria-invalid=${message ? "true" : null} aria-describedby="judged" title=${long} /></span>
        <span class="judged" id="judged">${message ? html`<span class="bad">${column !== null ? `${column}: ` : ""}${message}</span>` : said(text)}</span>
        <ul class="offers" id="offers" role="listbox" aria-label="Words that fit" hidden=${!list.length}>${list.map((one, index) => html`
          <li role="option" id=${`offer${index}`} aria-selected=${index === this.chosen ? "true" : "false"}
            onPointerDown=${(event) => { event.preventDefault(); this.complete(one); }}><b>${one.text}</b><span>${one.note}</span></li>`)}</ul>
      </div>
      ${Object.keys(CHIPS).map((name) => html`<button class="chip" key=${name} aria-pressed=${String(state.chips.has(name))} onClick=${() => turn(name)}>${name}</button>`)}
      <button class="chip" aria-pressed=${String(state.heldOnly)} onClick=${turnHeld}>held</button>
      ${state.range && html`<button class="chip crumb" onClick=${allTimes}>chosen time ×</button>`}
      <button onClick=${askForName}>Filters…</button>${buttons("filter")}</div>`;
  }
}

// Say how many of the rows that passed are here.
function said(typed) {
  if (typed !== state.filter) return "enter puts it in force";
  return `${typed.trim() ? "judged by the proxy · " : ""}${number(rows.count)} here`;
}

function turn(name) {
  if (!state.chips.delete(name)) state.chips.add(name);
  begin();
}

// What is held is known here: no filter of the proxy's can tell it, since it changes while a row stays the same.
function turnHeld() {
  state.heldOnly = !state.heldOnly;
  changed();
}

function drop(crumb) {
  state.crumbs = state.crumbs.filter((one) => one !== crumb);
  begin();
}

function allTimes() {
  state.range = null;
  state.follow = live.state !== "source";
  changed();
}

function kept() {
  return JSON.parse(localStorage.getItem(KEPT) ?? "{}");
}

// Show the named filters, with a field to name the one in force.
function askForName() {
  const save = (event) => {
    event.preventDefault();
    const name = event.target.querySelector("input").value.trim();
    if (name) localStorage.setItem(KEPT, JSON.stringify({ ...kept(), [name]: state.filter }));
    changed();
  };
  const forget = (name) => {
    const { [name]: _, ...rest } = kept();
    localStorage.setItem(KEPT, JSON.stringify(rest));
    changed();
  };
  openDialog(() => html`<ul class="named">${Object.entries(kept()).map(([name, text]) => html`<li key=${name}>
      <button onClick=${() => { closeDialog(); useFilter(text); }}><b>${name}</b> <code>${text || "all exchanges"}</code></button>
      <button aria-label=${`Forget ${name}`} onClick=${() => forget(name)}>×</button></li>`)}</ul>
    <form onSubmit=${save}><p class="text"><label>Keep the filter in force as <input autofocus required /></label> <button type="submit">Keep</button></p></form>
    <p class="foot"><button class="last" onClick=${closeDialog}>Close<kbd>esc</kbd></button></p>`, { title: "Named filters" });
}

command({ key: "E", title: "Errors", group: "filter", help: "only errors and unanswered ones, or all", view: "exchanges", act: () => turn("errors") });
command({ key: "H", title: "Held", group: "filter", help: "only rows that are held now, or all", view: "exchanges", act: turnHeld });
command({ key: "S", title: "Slow", group: "filter", help: "only slow ones, or all", view: "exchanges", act: () => turn("slow > 200 ms") });
on("hello", () => { names.asked = false; });
