// What the parts of the page bring with them. A part is a module that calls these functions when it is loaded, and one
// line in parts.mjs that loads it; nothing else of the page knows it.
//
//   view({name: "rules", title: "Rules", order: 40, draw: () => html`…`,
//         badge: () => 7, urgent: () => false, enter(parameters) {}, leave() {}})
//       a page of its own at #/rules, with its link in the head. `badge`: a number or words beside the title, null for
//       none. `enter` is called when it is opened, and again when the fragment's parameters are others; `leave` when
//       another view is opened. `hidden`: true while it has no link in the head. `proxy`: it is about a proxy that
//       runs, so it is left out where files are all there is.
//   section({name: "held", order: 10, when: () => true, draw: () => html`<h2>…</h2>…`})
//       a part of the rail on the right; `draw` gives its content, which begins with a heading of its own.
//   command({key: "m", title: "Make a rule…", group: "rules", act: (context) => {…},
//            place: "exchange", writes: true, when: (context) => true, order: 10, pressed: () => false})
//       what a key does, and a button where `place` is "exchange" (head of the details), "head" or "filter".
//       `context` is {row, detail}: the selected row as an object by column (null: none), and its details (null: they
//       are not here yet). `writes`: it changes something, so it is left out where nobody may. `view`: the only view
//       that it is for. `focus`: a CSS selector; its keys act only while the focus is inside such an element. A key
//       may be several with blanks between: any of them. A key pressed in the list of exchanges never changes
//       anything by itself: what writes asks first (confirm.mjs), or has a `focus` of its own.
//   on("held", (data) => {…})
//       an event of the stream: hello, rows, left, gap, tick, held, rules, captures; or of the page: "resumed" (the
//       stream was taken up), "filter" (another filter is in force), "select" (another row).
//   openDialog(() => html`…`, {title: "…", wide: true, leave() {}}); closeDialog()
//       a dialog over the page. Escape closes it; focus goes back to where it was. `leave` is called when it closes.
//   say("3 resumed"), complain(error)
//       a line at the foot of the page, which screen readers say; an ApiError with its mistakes.

import { changed } from "./dom.mjs";

export const views = new Map();
export const sections = [];
export const commands = [];
export const dialogs = [];
export const notice = { text: "", bad: false, until: 0 };

const handlers = new Map();
const byOrder = (a, b) => (a.order ?? 50) - (b.order ?? 50);

export function view(one) {
  views.set(one.name, one);
}

export function section(one) {
  sections.push(one);
  sections.sort(byOrder);
}

export function command(one) {
  commands.push({ keys: (one.key ?? "").split(" ").filter(Boolean), group: "page", ...one });
  commands.sort(byOrder);
}

export function on(event, handle) {
  if (!handlers.has(event)) handlers.set(event, []);
  handlers.get(event).push(handle);
}

// Tell all who asked for `event`, and draw.
export function emit(event, data) {
  for (const handle of handlers.get(event) ?? []) handle(data);
  changed();
}

export function openDialog(draw, { title = "", wide = false, leave = null } = {}) {
  dialogs.push({ draw, title, wide, leave, number: openDialog.number++, before: document.activeElement });
  changed();
}
openDialog.number = 0;

export function closeDialog() {
  const dialog = dialogs.pop();
  dialog?.leave?.();
  changed();
  if (dialog?.before?.isConnected) dialog.before.focus({ preventScroll: true });
}

// Show a line at the foot of the page for some seconds.
export function say(text, bad = false) {
  Object.assign(notice, { text, bad, until: Date.now() + (bad ? 15000 : 6000) });
  changed();
  setTimeout(changed, bad ? 15100 : 6100);
}

export function complain(error) {
  const more = (error.mistakes ?? []).map((one) => `${one.where}: ${one.message}`.replace(/^: /, ""));
  say([error.message, ...more].join(" · "), true);
}
