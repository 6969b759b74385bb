// The view of exchanges: filter bar, strip, list above details; and the keys of the list.

import { changed, html } from "./dom.mjs";
import { Details, detailOf, watchSelection } from "./detail.mjs";
import { FilterBar, focusFilter } from "./filterbar.mjs";
import { copyText } from "./clipboard.mjs";
import { aboutWhat } from "./keys.mjs";
import { COLUMNS, List, SCALES, bring, follow, move, shownColumns, sortBy } from "./list.mjs";
import { begin, clear, rows } from "./live.mjs";
import { closeDialog, command, on, openDialog, say, view } from "./registry.mjs";
import { search, Search } from "./search.mjs";
import { keepAddress, select, state } from "./state.mjs";
import { Splitter } from "./splitter.mjs";
import { Strip } from "./strip.mjs";
import { askColumns } from "./columns.mjs";

view({ name: "exchanges", title: "Exchanges", order: 10, draw, enter });

function enter(parameters) {
  const filter = parameters.get("f"), id = parameters.get("x");
  if (filter !== null && filter !== state.filter) {
    state.filter = filter;
    begin();
  }
  if (id !== null && id !== state.selected) select(id);
  keepAddress(); // a link without parameters leads back to what was shown
}

function draw() {
  return html`<${FilterBar} /><${Strip} />
    <main aria-label="Exchanges"><div class="above"><${List} rows=${rows} /><${Search} /></div>
    ${state.selected === null ? null : html`<${Splitter} /><${Details} key="details" />`}</main>`;
}

function context() {
  const place = state.selected === null ? -1 : rows.find(state.selected);
  return { row: place < 0 ? (detailOf(state.selected)?.row ?? null) : rows.row(place), detail: detailOf(state.selected)?.data ?? null };
}
aboutWhat(context);

const list = { group: "list", view: "exchanges" };
command({ ...list, key: "j down", title: "Down", help: "down", short: "move", act: () => move(1) });
command({ ...list, key: "k up", title: "Up", help: "up", act: () => move(-1) });
command({ ...list, key: "space pagedown", title: "A page down", help: "a page down", act: () => move(20) });
command({ ...list, key: "pageup", title: "A page up", help: "a page up", act: () => move(-20) });
command({ ...list, key: "g home", title: "The first row", help: "the first row", act: () => move(-Infinity) });
command({ ...list, key: "G end", title: "The last row", help: "the last row", act: () => move(Infinity) });
command({ ...list, key: "F", title: "Follow", help: "keep the newest row in sight", place: "head", order: 10,
  pressed: () => state.follow, act: () => follow() });
command({ ...list, key: "z", title: "Clear", help: "forget the rows that are here", act: clear });
command({ ...list, key: "<", title: "Shorter scale", help: "a shorter scale of the waterfall", act: () => scale(-1) });
command({ ...list, key: ">", title: "Longer scale", help: "a longer scale of the waterfall", act: () => scale(1) });
command({ ...list, key: "C", title: "Columns", help: "choose columns and their order", act: askColumns });
command({ ...list, key: "s", title: "Sort…", help: "sort by a column, or by time", act: askSort });
command({ ...list, key: "y", title: "Copy row", help: "copy the chosen row as JSON", group: "exchange", when: ({ row }) => row !== null,
  act: ({ row }) => copyText(rowJson(row)) });
command({ ...list, key: "enter l", title: "Details", help: "details", act: openDetails });
command({ ...list, key: "esc h q", title: "Close the details", help: "close the details", when: () => state.selected !== null, act: () => {
  select(null);
  document.querySelector(".list")?.focus();
} });
command({ ...list, key: "f", title: "Filter", group: "filter", help: "filter", act: focusFilter });
command({ ...list, key: "/", title: "Search", group: "filter", help: "search", act: () => search.ask() });
command({ ...list, key: "n", title: "Next match", group: "filter", help: "next match", act: () => search.go(1) });
command({ ...list, key: "N", title: "Match before", help: "match before", group: "filter", act: () => search.go(-1) });

// Return a row as JSON, without its place in the page.
export function rowJson(row) {
  const { place: _, ...rest } = row;
  return JSON.stringify(rest, null, 2);
}

// Ask for the column to sort by, latency first.
function askSort() {
  const names = ["latency", ...shownColumns().filter((name) => name !== "latency" && name !== "waterfall")];
  const sort = (name) => () => { closeDialog(); sortBy(name); };
  openDialog(() => html`<ul class="choices"><li><button autofocus onClick=${sort(names[0])}>latency</button></li><li><button onClick=${sort(null)}>time, as rows come</button></li>
    ${names.slice(1).filter((name) => name !== "time").map((name) => html`<li key=${name}><button onClick=${sort(name)}>${COLUMNS[name].title}</button></li>`)}</ul>
    <p class="foot"><button class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`, { title: "Sort by" });
}

function openDetails() {
  if (state.selected === null) move(Infinity);
  requestAnimationFrame(() => document.querySelector(".details [role=tab][aria-selected=true]")?.focus());
}

function scale(step) {
  const now = SCALES.indexOf(state.scale ?? 2);
  state.scale = SCALES[Math.min(SCALES.length - 1, Math.max(0, now + step))];
  say(`${state.scale} s across`);
}

on("select", watchSelection);
on("filter", () => {
  watchSelection(state.selected);
  const place = state.selected === null ? -1 : rows.find(state.selected);
  if (place >= 0 && !state.follow) bring(place);
  changed();
});
