// The question before something is changed.

import { changed, html } from "./dom.mjs";
import { closeDialog, complain, openDialog } from "./registry.mjs";

// Open a dialog with one button for each of `choices`, [label, function] pairs. The focus is on Cancel, so that Enter
// changes nothing. With `word`, the buttons are disabled until that text is typed.
export function askFirst(title, words, choices, { word = null, label = "" } = {}) {
  const given = { text: "" };
  const run = (act) => async () => {
    closeDialog();
    try {
      await act();
    } catch (error) {
      complain(error);
    }
  };
  openDialog(() => html`<p class="text">${words}</p>
    ${word !== null && html`<p class="text"><label>${label}<input autocomplete="off" spellcheck="false" size="24"
      onInput=${(event) => { given.text = event.target.value.trim(); changed(); }} /></label></p>`}
    <p class="foot">${choices.map(([name, act]) => html`<button key=${name} class="warns" disabled=${word !== null && given.text !== word}
      onClick=${run(act)}>${name}</button>`)}
    <button class="last" autofocus onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`, { title });
}
