// Frames that rules hold: the list of them, their remaining time, and the decisions about one. Keys decide only while the
// focus is on a frame, so that a key meant for the list of exchanges decides nothing.

import { access, get, send } from "./api.mjs";
import { askFirst } from "./confirm.mjs";
import { changed, drawNow, html } from "./dom.mjs";
import { duration, number } from "./format.mjs";
import { answerHeld, editHeld } from "./held_edit.mjs";
import { buttons, inFocus, use } from "./keys.mjs";
import { interceptThese, toggleIntercepts } from "./intercept.mjs";
import { decorators, dot } from "./list.mjs";
import { needed, rows } from "./live.mjs";
import { command, complain, dialogs, on, say, section, view } from "./registry.mjs";

const FRAMES = ".held-frame"; // where the keys of held frames act
const LOOK = 2000; // milliseconds between two looks while something is held, should an event be lost
const WENT = { resumed: "resumed", edited: "edited", answered: "answered", dropped: "dropped", closed: "closed",
  timed_out: "timed out", client_left: "client disconnected", rule_gone: "rule removed" };

// `rows`: the same frames, by what their rows have of them.
export const held = { list: new Map(), rows: new Map(), most: 0, passedOver: 0, chosen: null, asked: 0, told: 0 };

// Take over one frame, with the moments at which its time is over: as it is, and at the latest.
export function put(one) {
  const before = held.list.get(one.id);
  const after = (seconds) => (seconds === null || seconds === undefined ? null : Date.now() + seconds * 1000);
  const made = { ...one, ends: after(one.ends_in), latest: after(one.longest), whole: Math.max(before?.whole ?? 0, one.ends_in ?? 0) };
  held.list.set(one.id, made);
  held.rows.set(rowOf(one), made);
}

const rowOf = ({ exchange }) => `${exchange.connection} ${exchange.correlation_id}`;

function drop(id) {
  const one = held.list.get(id);
  if (one && held.rows.get(rowOf(one))?.id === id) held.rows.delete(rowOf(one));
  held.list.delete(id);
  if (held.chosen === id) held.chosen = null;
}

async function look() {
  held.asked = Date.now();
  try {
    let found, told;
    do { // an answer that was on its way while something else was told is not the newest
      told = held.told;
      found = await get("/api/held");
    } while (told !== held.told);
    held.most = found.max_frames;
    held.passedOver = found.passed_over;
    const here = new Set(found.held.map((one) => one.id));
    for (const id of [...held.list.keys()]) if (!here.has(id)) drop(id);
    found.held.forEach(put);
  } catch (error) {
    if (error.status !== 404) complain(error);
  }
  changed();
}

on("hello", look);
on("resumed", look);
on("held", ({ added = [], changed: others = [], gone = [] }) => {
  const before = held.list.size;
  held.told += 1;
  added.forEach(put);
  others.filter((one) => held.list.has(one.id)).forEach(put);
  for (const { id, how, who } of gone) {
    const one = held.list.get(id);
    drop(id);
    if (one && !held.rows.has(rowOf(one)) && (who || how === "timed_out" || how === "client_left")) say(`${named(one)}: ${WENT[how] ?? how}${who ? ` by ${who}` : ""}`);
  }
  if (added.length && held.list.size > before) say(`${held.list.size} held`);
});
on("tick", () => { if (held.list.size && Date.now() - held.asked > LOOK) look(); });

needed.push(() => held.list.size > 0);

// Return the frame that keys are about: the chosen one, else the oldest.
export function chosenHeld() {
  return held.list.get(held.chosen) ?? held.list.values().next().value ?? null;
}

export function named(one) {
  return `${one.exchange.api} v${one.exchange.version}, connection ${one.exchange.connection}`;
}

// Move the focus to the chosen frame.
function focusChosen() {
  drawNow();
  if (!dialogs.length) document.querySelector(`${FRAMES}[aria-current]`)?.focus();
}

// Choose the frame that is `step` frames from the chosen one.
function move(step) {
  const all = [...held.list.keys()];
  const at = all.indexOf(held.chosen);
  held.chosen = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))] ?? null;
  focusChosen();
}

// Decide about a held frame. The refusal of a late decision names who decided.
export async function decide(one, action, body = {}) {
  try {
    const shown = await send("POST", `/api/held/${one.id}/${action}`, { revision: one.revision, ...body });
    const focused = inFocus({ focus: FRAMES });
    if (shown.gone) drop(one.id);
    else put(shown);
    if (focused) focusChosen();
    say(`${named(one)}: ${WENT[shown.gone] ?? "as you wish"}`);
    return shown;
  } finally {
    look();
  }
}

const extend = (one) => send("POST", `/api/held/${one.id}/extend`, { by: "60s" }).then(put);

async function resumeAll() {
  const { resumed } = await send("POST", "/api/held/resume", {});
  say(`${number(resumed)} resumed`);
  look();
}

function askToClose(one) {
  const close = (how) => () => decide(one, "close", { close_with: how });
  askFirst(`Close ${named(one)}?`, `The connection of ${one.exchange.client ?? "this client"} is closed, and its requests in flight are lost.`,
    [["Close connection", close("fin")], ["Reset connection", close("rst")]]);
}

function askToDrop(one) {
  const drop = (then) => () => decide(one, "drop", { connection: then });
  askFirst(`Drop ${named(one)}?`, `The ${one.at} is not sent on. What happens to its connection?`,
    [["Nothing more is sent", drop("stall")], ["It is closed", drop("close")], ["It goes on", drop("continue")]]);
}

const ACTIONS = [
  { key: "a", title: "Resume", help: "let the held frame go on", act: (one) => decide(one, "resume"), primary: true },
  { key: "e", title: "Edit…", help: "change its fields or bytes", act: editHeld, may: (one) => one.editable },
  { key: "s", title: "Answer…", help: "answer in the broker's place", act: answerHeld, may: (one) => one.at === "request" },
  { key: "x", title: "Drop…", help: "let it go nowhere", act: askToDrop },
  { key: "X", title: "Close…", help: "close its connection", act: askToClose, warns: true },
  { key: "+", title: "+ 60 s", help: "hold it a minute longer", act: extend, may: (one) => one.ends !== null },
];

for (const { key, title, help, act, may } of ACTIONS) {
  command({ key, title: help, help, short: title.replace("…", "").toLowerCase(), group: "held", writes: true, focus: FRAMES, act: () => act(chosenHeld()),
    when: () => chosenHeld() !== null && (may?.(chosenHeld()) ?? true) });
}
command({ key: "A", title: "Resume all", help: "let all that is held go on", group: "held", place: "held", writes: true, focus: FRAMES,
  when: () => held.list.size > 0, act: resumeAll });
command({ key: "i", title: "Intercept these…", short: "intercept", help: "hold what the filter in the bar holds for", group: "held", place: "filter",
  writes: true, act: interceptThese });
command({ key: "I", title: "Intercepts on or off…", help: "switch all intercept rules", group: "held", writes: true, act: toggleIntercepts });
command({ key: "j down", title: "Next frame", help: "held: the next frame", group: "held", view: "held", act: () => move(1) });
command({ key: "k up", title: "Frame before", help: "held: the frame before", group: "held", view: "held", act: () => move(-1) });

// Return the remaining time of a frame in words.
export function left(one) {
  if (one.ends === null) return "until it is resumed";
  const action = one.on_timeout;
  const then = action === "pass" ? "then forwarded" : action === "close" ? "then closed" : `then ${action}`;
  return `${duration(Math.max(0, (one.ends - Date.now()) / 1000))} left, ${then}`;
}

// Return what its row says that the exchange is about, such as orders[3].
function aboutOf({ exchange }) {
  for (const place of rows.open.values()) {
    if (rows.has(place) && rows.number(place, "connection") === exchange.connection
      && rows.number(place, "correlation") === exchange.correlation_id) return rows.text(place, "about") ?? "";
  }
  return "";
}

function Card({ one, first }) {
  const { exchange } = one;
  const chosen = chosenHeld() === one;
  const about = aboutOf(one);
  const words = [one.at, `connection ${exchange.connection}`, exchange.client, (one.rules ?? [one.rule]).join(", "), one.behind ? `${number(one.behind)} behind it` : "",
    one.client_ended ? "its client sends no more" : ""];
  const choose = () => { if (held.chosen !== one.id) { held.chosen = one.id; changed(); } };
  return html`<div key=${rowOf(one)} class=${`held-frame${chosen ? " on" : ""}`} tabindex="0" role="group" aria-label=${`Held: ${named(one)}`}
      aria-current=${chosen ? "true" : null} onFocusIn=${choose} onClick=${choose}>
    <p><i class=${dot(exchange.connection)}></i><b>${exchange.api} <span class="dim">v${exchange.version}</span></b><span class="about" title=${about}>${about}</span><span class="held">${left(one)}</span></p>
    <p class="dim">${words.filter(Boolean).join(" · ")}</p>
    ${one.ends !== null && html`<progress max=${one.whole || 1} value=${Math.max(0, (one.ends - Date.now()) / 1000)} aria-label="Time left"></progress>`}
    <div class="actions">${access.mayWrite && ACTIONS.filter(({ may }) => may?.(one) ?? true).map(({ key, title, act, primary, warns }) => html`
      <button key=${title} class=${primary && chosen ? "primary" : warns ? "warns" : ""} onClick=${() => use({ act: () => act(one) })}>${title}
      ${first && html`<kbd>${key}</kbd>`}</button>`)}
      ${one.claimed_by && html`<span class="dim">${one.claimed_by} is at it</span>`}
      ${!one.editable && html`<span class="dim">${one.why_not}</span>`}</div></div>`;
}

function List() {
  const all = [...held.list.values()];
  return html`<h2><b>Held</b> ${all.length}<span class="end">${buttons("held")}</span></h2>
    ${all.map((one) => html`<${Card} key=${one.id} one=${one} first=${chosenHeld() === one} />`)}
    ${held.passedOver > 0 && html`<p class="dim">${number(held.passedOver)} passed, as ${number(held.most)} may be held at a time</p>`}`;
}

section({ name: "held", order: 10, when: () => held.list.size > 0, draw: List });
view({ name: "held", proxy: true, title: "Held", order: 70, badge: () => held.list.size || null, urgent: () => held.list.size > 0,
  hidden: () => held.list.size === 0,
  draw: () => html`<main class="page" aria-label="Held"><div class="scroll" tabindex="0" role="region" aria-label="Held frames">${List()}
    ${!held.list.size && html`<p class="dim">Nothing is held. In the list of exchanges <kbd>i</kbd> holds what the filter holds for.</p>`}</div></main>` });

// A row that is under way is held if a frame of its exchange is: connection and correlation id say which one that is.
decorators.push((place) => {
  if (!held.list.size || rows.text(place, "outcome")) return null;
  const one = held.rows.get(`${rows.number(place, "connection")} ${rows.number(place, "correlation")}`);
  return one ? { class: "waiting", outcome: `held · ${one.at}` } : null;
});

let drawing = null;
on("tick", () => {
  if (drawing === null && held.list.size) {
    drawing = setInterval(() => {
      if (held.list.size) return changed();
      clearInterval(drawing);
      drawing = null;
    }, 250);
  }
});
