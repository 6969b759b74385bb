// Search in the rows that are here, as text; "in all kept" asks the proxy, records included.

import { Component, changed, drawNow, html } from "./dom.mjs";
import { number, quoted } from "./format.mjs";
import { bring, shown } from "./list.mjs";
import { begin, rows } from "./live.mjs";
import { say } from "./registry.mjs";
import { select, state } from "./state.mjs";

export const search = {
  open: false,
  text: "",
  ask() {
    search.open = true;
    drawNow();
    document.querySelector(".search input")?.focus();
  },
  // Choose the next row that has the text, or the one before.
  go(step) {
    if (!search.text) return search.ask();
    const { count, at, index } = shown();
    const fits = rows.finder(search.text);
    const now = index(rows.find(state.selected));
    for (let far = 1; far <= count; far++) {
      const next = (((now < 0 ? (step > 0 ? -1 : count) : now) + step * far) % count + count) % count;
      if (rows.isNote(at(next)) || !fits(at(next))) continue;
      bring(at(next));
      return select(rows.id(at(next)));
    }
    say(`no row here has "${search.text}"`);
  },
};

// Return a filter for this text in all that a filter can look at.
function everywhere(text) {
  const value = quoted(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return ["topic", "group", "client_id", "transactional_id", "key", "value", "header"]
    .map((field) => `${field} ~ ${value}`).join(" or ");
}

export class Search extends Component {
  constructor() {
    super();
    this.typed = (event) => { search.text = event.target.value; changed(); };
    this.key = (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        search.go(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        event.preventDefault();
        search.open = false;
        document.querySelector(".list")?.focus();
        changed();
      }
    };
    this.all = () => {
      state.crumbs.push({ title: `"${search.text}" anywhere`, text: everywhere(search.text) });
      search.open = false;
      begin();
    };
  }
  render() {
    if (!search.open) return null;
    let found = 0;
    if (search.text) {
      const fits = rows.finder(search.text);
      for (let place = rows.first; place < rows.next; place++) if (fits(place)) found++;
    }
    return html`<div class="search" role="search" aria-label="Search the rows"><label>Search
      <input value=${search.text} onInput=${this.typed} onKeyDown=${this.key} spellcheck="false" /></label>
      <span class="dim" role="status">${search.text ? `${number(found)} of ${number(rows.count)} rows here` : ""}</span>
      <button disabled=${!search.text} onClick=${this.all}>In all kept</button></div>`;
  }
}
