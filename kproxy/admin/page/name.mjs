// The name of whoever looks, which others see beside what is decided here. It proves nothing.

import { me, nameMe } from "./api.mjs";
import { html } from "./dom.mjs";
import { closeDialog, command, openDialog, say } from "./registry.mjs";

const LONGEST = 60; // characters that kproxy keeps

function ask() {
  const keep = (event) => {
    event.preventDefault();
    nameMe(event.target.querySelector("input").value.trim());
    closeDialog();
    say(me() ? `others see you as ${me()}` : "others see no name of yours");
  };
  openDialog(() => html`<form onSubmit=${keep}><p class="text"><label>Name <input autofocus maxlength=${LONGEST} autocomplete="nickname" value=${me()} /></label></p>
    <p class="text dim">Other users see it with your decisions on held frames, and kproxy logs it with your changes. It is stored in this browser.</p>
    <p class="foot"><button class="primary" type="submit">Keep</button><button type="button" class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p></form>`,
  { title: "Your name" });
}

command({ key: "W", title: () => (me() ? `as ${me()}` : "Your name…"), help: "your name, which others see beside what you decide", group: "held",
  place: "held", order: 60, writes: true, act: ask });
