// State of the page that is no traffic: which view, which filter, which row; and what the address says of it.
//
// Fragments are meant to be sent to colleagues: `#/exchanges?f=~k%20produce&x=0-812`. A token is never in one.

import { changed } from "./dom.mjs";
import { emit, views } from "./registry.mjs";

export const state = {
  view: "exchanges",
  parameters: new URLSearchParams(),
  filter: "", // what is in force, without chips
  chips: new Set(), // names of the chips that are pressed
  crumbs: [], // filters added by "follow": {title, text}
  range: null, // [from, to] in seconds since 1970, chosen in the strip
  heldOnly: false, // only rows that are held now
  selected: null, // id of the selected row
  source: "live",
  filesOnly: false, // there is no proxy, as with `kproxy view --web`
  follow: true,
  sort: null, // {column, down} of a sorted list; null: by time, as the rows come
  tab: "request",
  bytesOf: "both", // client, broker, both
  pane: "fields", // fields, client, broker: what a narrow window shows of a frame
  sideBySide: false, // request and response instead of client and broker
  drawer: false, // the rail, where there is no room for it
  version: null, // of kproxy, as GET /api/version says
  theme: localStorage.getItem("kproxy-theme"), // light, dark; null: as the system
  scale: null, // seconds across the waterfall; null: as the rows need
};

// Return whether a view has something to show here.
export function hasView(one) {
  return !(one.proxy && state.filesOnly);
}

// Open a view. `parameters`: those of its fragment.
export function go(name, parameters = {}) {
  const text = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  location.hash = `#/${name}${text ? `?${text}` : ""}`;
}

// Say in the address what is shown, without a step in the browser's history.
export function keepAddress() {
  if (state.view !== "exchanges") return;
  const kept = { f: state.filter, x: state.selected ?? "" };
  const text = new URLSearchParams(Object.entries(kept).filter(([, value]) => value)).toString();
  history.replaceState(null, "", `#/exchanges${text ? `?${text}` : ""}`);
}

// Take over what the address says.
export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const before = state.view;
  state.view = views.has(path) && hasView(views.get(path)) ? path : "exchanges";
  state.parameters = new URLSearchParams(query);
  if (before !== state.view) views.get(before)?.leave?.();
  views.get(state.view)?.enter?.(state.parameters);
  changed();
}

export function select(id) {
  if (state.selected === id) return;
  state.selected = id;
  keepAddress();
  emit("select", id);
}

// Return the filter in force with its chips and crumbs, as the proxy is asked it.
export function wholeFilter() {
  const parts = [...state.crumbs.map((crumb) => crumb.text), ...[...state.chips].map((name) => CHIPS[name])];
  if (state.filter.trim()) parts.unshift(state.filter.trim());
  return parts.length > 1 ? parts.map((part) => `(${part})`).join(" and ") : (parts[0] ?? "");
}

export const CHIPS = {
  errors: "error or pending",
  "slow > 200 ms": "latency > 200ms and (not api == Fetch or latency > 1s or ruled)", // a Fetch waits for records
  throttled: "throttle",
  "by rules": "ruled or injected",
};

// Turn to the other theme, or to the system's where that is the same.
export function turnTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = state.theme ?? (dark ? "dark" : "light");
  state.theme = now === "dark" ? "light" : "dark";
  if ((state.theme === "dark") === dark) {
    state.theme = null;
    localStorage.removeItem("kproxy-theme");
  } else localStorage.setItem("kproxy-theme", state.theme);
  showTheme();
}

export function showTheme() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
  emit("theme", state.theme);
}
