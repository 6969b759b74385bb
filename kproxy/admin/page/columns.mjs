// The choice of columns and of their order.

import { changed, html } from "./dom.mjs";
import { COLUMNS, showColumns, shownColumns } from "./list.mjs";
import { closeDialog, openDialog } from "./registry.mjs";

export function askColumns() {
  let names = shownColumns();
  const set = (next) => {
    names = next;
    showColumns(names);
  };
  const turn = (name) => set(names.includes(name) ? names.filter((one) => one !== name) : [...names, name]);
  const earlier = (name) => {
    const at = names.indexOf(name);
    if (at > 0) set([...names.slice(0, at - 1), name, names[at - 1], ...names.slice(at + 1)]);
  };
  openDialog(() => html`<ul class="columns">${[...names, ...Object.keys(COLUMNS).filter((name) => !names.includes(name))].map((name) => html`
    <li key=${name}><label><input type="checkbox" checked=${names.includes(name)} onChange=${() => turn(name)} />${name === "waterfall" ? "waterfall" : COLUMNS[name].title}</label>
    ${names.indexOf(name) > 0 && html`<button aria-label=${`${name} further to the left`} onClick=${() => earlier(name)}>↑</button>`}</li>`)}</ul>
    <p class="foot"><button onClick=${() => { showColumns(null); names = shownColumns(); changed(); }}>As they were</button>
    <button class="last" onClick=${closeDialog}>Close<kbd>esc</kbd></button></p>`, { title: "Columns" });
}
