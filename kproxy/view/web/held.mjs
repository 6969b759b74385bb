// Frames that rules hold: the list of them, what is left of their time, and what may be decided about one.

import { access, get, send } from "./api.mjs";
import { changed, html } from "./dom.mjs";
import { duration, number } from "./format.mjs";
import { answerHeld, editHeld } from "./held_edit.mjs";
import { buttons, use } from "./keys.mjs";
import { interceptThese, toggleIntercepts } from "./intercept.mjs";
import { decorators, dot } from "./list.mjs";
import { rows } from "./live.mjs";
import { closeDialog, command, complain, on, openDialog, say, section, view } from "./registry.mjs";

const LOOK = 2000; // milliseconds between two looks while something is held, should an event be lost
const WENT = { resumed: "resumed", edited: "edited", answered: "answered", dropped: "dropped", closed: "closed",
  timed_out: "went on by itself", client_left: "gone with its client", rule_gone: "let go with its rule" };

// `rows`: the same frames, by what their rows have of them.
export const held = { list: new Map(), rows: new Map(), most: 0, passedOver: 0, chosen: null, asked: 0, told: 0 };

// Take over one frame, with the moment at which its time is over.
function put(one) {
  const before = held.list.get(one.id);
  const ends = one.ends_in === null || one.ends_in === undefined ? null : Date.now() + one.ends_in * 1000;
  const made = { ...one, ends, whole: Math.max(before?.whole ?? 0, one.ends_in ?? 0) };
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
    held.most = found.most;
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
    if (one && (who || how === "timed_out" || how === "client_left")) say(`${named(one)}: ${WENT[how] ?? how}${who ? ` by ${who}` : ""}`);
  }
  if (added.length && held.list.size > before) say(`${held.list.size} held`);
});
on("tick", () => { if (held.list.size && Date.now() - held.asked > LOOK) look(); });

// The frame that keys are about: the chosen one, else the oldest.
export function chosenHeld() {
  return held.list.get(held.chosen) ?? held.list.values().next().value ?? null;
}

export function named(one) {
  return `${one.exchange.api} v${one.exchange.version}, connection ${one.exchange.connection}`;
}

// Decide about a held frame. Who comes too late is told by whom it was decided.
export async function decide(one, action, body = {}) {
  try {
    const shown = await send("POST", `/api/held/${one.id}/${action}`, { revision: one.revision, ...body });
    if (shown.gone) drop(one.id);
    else put(shown);
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
  const act = async (how) => {
    closeDialog();
    await decide(one, "close", { how }).catch(complain);
  };
  openDialog(() => html`<p class="text">The connection of ${one.exchange.client ?? "this client"} is closed, and what is in flight on it is lost.</p>
    <p class="foot"><button class="warns" autofocus onClick=${() => act("fin")}>Close</button><button onClick=${() => act("rst")}>Reset</button>
    <button class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`, { title: `Close ${named(one)}` });
}

function askToDrop(one) {
  const act = async (then) => {
    closeDialog();
    await decide(one, "drop", { then }).catch(complain);
  };
  openDialog(() => html`<p class="text">The ${one.at} goes nowhere. What becomes of its connection?</p>
    <p class="foot"><button autofocus onClick=${() => act("stall")}>Nothing more is sent</button><button onClick=${() => act("close")}>It is closed</button>
    <button onClick=${() => act("continue")}>It goes on</button><button class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`,
  { title: `Drop ${named(one)}` });
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
  command({ key, title: help, help, short: title.replace("…", "").toLowerCase(), group: "held", writes: true, act: () => act(chosenHeld()),
    when: () => chosenHeld() !== null && (may?.(chosenHeld()) ?? true) });
}
command({ key: "A", title: "Resume all", help: "let all that is held go on", group: "held", place: "held", writes: true,
  when: () => held.list.size > 0, act: resumeAll });
command({ key: "i", title: "Intercept these…", short: "intercept", help: "hold what the filter in the bar holds for", group: "held", place: "filter",
  writes: true, act: interceptThese });
command({ key: "I", title: "Intercepts on or off", help: "switch all rules that hold frames", group: "held", writes: true,
  act: toggleIntercepts });

function left(one) {
  if (one.ends === null) return "until it is let go";
  const then = one.then === "pass" ? "then passes" : one.then === "close" ? "then is closed" : `then ${one.then}`;
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
  const words = [one.at, `connection ${exchange.connection}`, exchange.client, one.rule, one.behind ? `${number(one.behind)} behind it` : "",
    one.client_ended ? "its client sends no more" : ""];
  return html`<div key=${one.id} class=${`held-frame${chosen ? " on" : ""}`} onClick=${() => { held.chosen = one.id; changed(); }}>
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
