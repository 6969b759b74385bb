// Keys: each command's, wherever the focus is but in a field that takes text; and the help that lists them.

import { access } from "./api.mjs";
import { html } from "./dom.mjs";
import { closeDialog, commands, complain, dialogs, openDialog, views } from "./registry.mjs";
import { hasView, state } from "./state.mjs";

const NAMES = { " ": "space", ArrowDown: "down", ArrowUp: "up", ArrowLeft: "left", ArrowRight: "right",
  Enter: "enter", Escape: "esc", Tab: "tab", PageDown: "pagedown", PageUp: "pageup", Home: "home", End: "end" };
const OWN = new Set(["enter", "space", "up", "down", "left", "right", "home", "end", "pageup", "pagedown"]);

let context = () => ({ row: null, detail: null });

// Take the function that says what commands are about.
export function aboutWhat(find) {
  context = find;
}

export function mayUse(command) {
  return (!command.writes || access.mayWrite) && (!command.view || command.view === state.view)
    && (command.when?.(context()) ?? true);
}

// Return whether the focus, or `target`, is where the keys of a command act.
export function inFocus(command, target = document.activeElement) {
  return !command.focus || Boolean(target?.closest?.(command.focus));
}

// Do what a command does; one that still waits for an answer is not begun again, so that no dialog comes twice.
const underWay = new Set();

export async function use(command) {
  const key = command.keys?.[0] ?? command.act;
  if (underWay.has(key)) return;
  underWay.add(key);
  try {
    await command.act(context());
  } catch (error) {
    complain(error);
  }
  underWay.delete(key);
}

// Use the command of a key, if there is one that may be used now.
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target;
  const key = NAMES[event.key] ?? event.key;
  if (dialogs.length) return;
  if (target.matches?.("input, textarea, select, [contenteditable]")) {
    if (key === "esc") target.blur();
    return;
  }
  if (OWN.has(key) && target.closest?.("button, a, [role=tab], [role=separator], [role=tree], summary, .hx, dialog")) return;
  const fitting = commands.filter((command) => command.keys.includes(key) && mayUse(command) && inFocus(command, target));
  // keys of what has the focus go before those of the view, and these before those of the page
  const found = fitting.find((command) => command.focus) ?? fitting.find((command) => command.view) ?? fitting[0];
  if (!found) return;
  event.preventDefault();
  use(found);
}

export function listen() {
  document.addEventListener("keydown", pressed);
}

// Draw the button of a command, with its key.
export function button(command, extra = {}) {
  if (!mayUse(command)) return null;
  const kind = [command.primary ? "primary" : "", command.warns ? "warns" : ""].join(" ").trim();
  return html`<button key=${command.title} class=${kind} onClick=${() => use(command)}
    aria-pressed=${command.pressed ? String(Boolean(command.pressed())) : null} ...${extra}>
    ${typeof command.title === "function" ? command.title() : command.title}
    ${command.keys[0] && html`<kbd>${command.keys[0]}</kbd>`}</button>`;
}

export function buttons(place) {
  return commands.filter((command) => command.place === place).map((command) => button(command));
}

const GROUPS = { list: "List", filter: "Filter and search", exchange: "The chosen exchange", held: "Held", rules: "Rules",
  page: "The page" };

export function help() {
  const order = Object.keys(GROUPS);
  const groups = new Map(order.map((name) => [name, []]));
  for (const command of commands) {
    if (command.keys.length && (!command.writes || access.mayWrite) && !(views.get(command.view)?.proxy && state.filesOnly)) {
      (groups.get(command.group) ?? groups.get("page")).push(command);
    }
  }
  openDialog(() => html`<div class="keys" tabindex="0" role="region" aria-label="All keys"><div>${[...groups].filter(([, list]) => list.length).map(([name, list]) => html`
    <section><h3>${GROUPS[name]}</h3><dl>${list.map((command) => html`
      <div><dt>${command.keys.map((key) => html`<kbd>${key}</kbd>`)}</dt>
      <dd>${command.help ?? (typeof command.title === "function" ? command.title() : command.title)}</dd></div>`)}</dl></section>`)}</div></div>
    <p class="foot"><span class="dim">Views: ${[...views.values()].filter(hasView).map((one) => one.title).join(", ")}.</span>
    <button class="last" autofocus onClick=${closeDialog}>Close<kbd>esc</kbd></button></p>`, { title: "Keys", wide: true });
}
