// The page: head, the view that the address names, the rail, the foot, dialogs.

import { access, get, giveToken, send } from "./api.mjs";
import { askFirst } from "./confirm.mjs";
import { Component, changed, html, mount } from "./dom.mjs";
import { number } from "./format.mjs";
import { buttons, help, inFocus, listen, mayUse } from "./keys.mjs";
import { begin, leftOut, live, pause } from "./live.mjs";
import { closeDialog, command, commands, dialogs, notice, on, say, sections, views } from "./registry.mjs";
import { go, hasView, readAddress, showTheme, state, turnTheme } from "./state.mjs";
import "./parts.mjs";

const WORDS = { connecting: "connecting", live: "live", lost: "lost, trying again", refused: "refused", closed: "resting",
  source: "a file" };

command({ key: "p", title: () => (live.paused ? "Resume" : "Pause"), help: "pause or resume the list", place: "head",
  order: 20, pressed: () => live.paused, act: () => pause() });
command({ key: "?", title: "Keys", help: "this list", short: "all keys", act: help });
command({ key: "D", title: "◐", help: "dark or light", act: turnTheme });
command({ key: "R", title: "Rail", help: "the rail on the right, where there is no room for it", act: () => {
  state.drawer = !state.drawer;
  changed();
} });
command({ key: "K", title: "Disable faults…", group: "rules", writes: true, warns: true, place: "head", order: 30,
  help: "disable all faults, or enable them again", act: askAboutFaults });

async function askAboutFaults() {
  const { disabled } = await get("/api/faults");
  const act = async () => {
    const done = await send("POST", `/api/faults/${disabled ? "enable" : "disable"}`);
    say(`${disabled ? "in force again" : "off"}: ${done.faults.map((one) => one.name).join(", ") || "no rule"}`);
  };
  const title = disabled ? "Enable faults" : "Disable faults";
  askFirst(title, disabled ? "Faults are disabled. Enabling them puts every fault rule in force again."
    : "All fault rules are turned off, and stay off whatever is loaded later. Names, access rules and quotas stay.", [[title, act]]);
}

[...views.values()].filter((one) => !one.hidden).sort((a, b) => (a.order ?? 50) - (b.order ?? 50)).forEach((one, index) => {
  if (index < 9) command({ key: String(index + 1), title: one.title, help: one.title, when: () => hasView(one), act: () => go(one.name) });
});

function Head() {
  const tick = live.last ?? {};
  const { workers } = live.hello ?? {};
  const version = state.version?.kproxy;
  const names = [...views.values()].sort((a, b) => (a.order ?? 50) - (b.order ?? 50));
  return html`<header>
    <h1>kproxy<span>${[location.host, version, workers > 1 ? `${workers} workers` : ""].filter(Boolean).join(" · ")}</span></h1>
    <nav aria-label="Views">${names.filter((one) => one.name === state.view || (hasView(one) && !one.hidden?.())).map((one) => {
      const badge = one.badge?.();
      return html`<a key=${one.name} href=${`#/${one.name}`} aria-current=${one.name === state.view ? "page" : null}>${one.title}
        ${badge !== null && badge !== undefined && html`<i class=${one.urgent?.() ? "urgent" : ""}>${badge}</i>`}</a>`;
    })}</nav>
    <div class="now">
      <span class=${`stream ${live.state}`} title=${live.error?.message ?? ""}>${WORDS[live.state]}</span>
      ${live.hello && html`<span><b>${rate(tick.passed, tick)}</b>/s</span>
      <span class="less"><b>${rate(tick.matched, tick)}</b>/s match</span>
      <span class="less"><b>${number(live.shown)}</b>/s shown</span>
      <span class="less" title=${reasons()}>skipped <b>${number(leftOut())}</b></span>`}
      ${live.paused && html`<span class="waits">${number(live.waiting.length)} new</span>`}
      ${buttons("head")}
      <button aria-label="Dark or light" onClick=${turnTheme}>◐</button>
    </div></header>`;
}

function rate(count, tick) {
  return count === undefined ? "–" : number(count / (tick.seconds || 1));
}

function reasons() {
  const { not_looked_at, too_many, too_slow, unknown } = live.left;
  return [`${number(not_looked_at)} skipped by the CPU limit of live views (4 %)`,
    `${number(too_many)} more than are shown a second`, `${number(too_slow)} while this page did not read`,
    `${number(unknown)} not to be judged by the filter${live.why ? ` (${live.why})` : ""}`].join("\n");
}

function Rail() {
  return html`<aside aria-label="Beside" class=${state.drawer ? "open" : ""}>${sections
    .filter((one) => one.when?.() ?? true)
    .map((one) => html`<section key=${one.name}>${one.draw()}</section>`)}</aside>`;
}

const FOOT = ["j", "enter", "f", "/", "i", "a", "e", "m", "?"]; // keys that the foot names while they are of use

function Foot() {
  const shown = Date.now() < notice.until ? notice : null;
  const found = FOOT.map((key) => commands.find((one) => one.keys[0] === key && mayUse(one) && inFocus(one))).filter(Boolean);
  return html`<footer>
    <span role="status" aria-live="polite" class=${shown ? (shown.bad ? "notice bad" : "notice") : ""}>${shown?.text ?? ""}</span>
    ${!shown && found.map((one) => html`<span class="hint"><kbd>${one.keys[0]}</kbd>${one.short ?? one.help ?? one.title}</span>`)}
    ${state.view === "exchanges" && html`<span class="legend"><span><i class="b"></i>broker</span><span><i class="w"></i>long poll</span>
    <span><i class="h"></i>held by kproxy</span><span><i class="k"></i>answered by kproxy</span></span>`}</footer>`;
}

// A <dialog> of the page; what is behind it cannot be reached while it is open.
class Dialog extends Component {
  constructor() {
    super();
    this.keep = (element) => { this.element = element; };
  }
  componentDidMount() {
    this.element.showModal();
    this.element.querySelector("[autofocus]")?.focus();
  }
  render({ one }) {
    const name = `dialog-${one.number}`;
    return html`<dialog ref=${this.keep} class=${one.wide ? "wide" : ""} aria-labelledby=${name}
      onCancel=${(event) => { event.preventDefault(); closeDialog(); }}>
      <h2 id=${name}>${typeof one.title === "function" ? one.title() : one.title}</h2>${one.draw()}</dialog>`;
  }
}

// The question for a token, which stays in this tab and is never in an address.
class Login extends Component {
  constructor() {
    super();
    this.keep = (element) => { this.element = element; };
    this.give = (event) => {
      event.preventDefault();
      const field = this.element.querySelector("input");
      if (field.value.trim()) giveToken(field.value);
    };
  }
  componentDidMount() {
    this.element.showModal();
  }
  render() {
    return html`<dialog ref=${this.keep} class="login" aria-labelledby="login" onCancel=${(event) => event.preventDefault()}>
      <h2 id="login">A token is needed</h2>
      <form onSubmit=${this.give}><p class="text"><label>The token of kproxy's admin address
      <input type="password" autocomplete="off" autofocus aria-invalid=${access.wrong ? "true" : null}
        aria-describedby=${access.wrong ? "wrong" : null} /></label></p>
      ${access.wrong && html`<p class="text bad" id="wrong">The token before was not taken.</p>`}
      <p class="text dim">It stays in this tab, and is sent to this address only.</p>
      <p class="foot"><button class="primary" type="submit">Log in</button></p></form></dialog>`;
  }
}

function Page() {
  const shown = views.get(state.view);
  return html`<div id="page" class=${`view-${state.view}`}>
    <${Head} />
    ${shown.draw()}
    <${Rail} />
    <${Foot} />
    ${dialogs.map((one) => html`<${Dialog} key=${one.number} one=${one} />`)}
    ${access.asked && html`<${Login} key="login" />`}</div>`;
}

async function start() {
  try {
    state.version = await get("/api/version");
  } catch (error) {
    say(error.message, true);
  }
  await begin();
}

on("hello", (data) => { access.mayWrite = Boolean(data.may_write); });
on("tick", (data) => { live.last = data; });
addEventListener("hashchange", readAddress);
state.parameters = new URLSearchParams(location.hash.split("?")[1] ?? "");
state.filter = state.parameters.get("f") ?? "";
state.selected = state.parameters.get("x");
readAddress();
showTheme();
listen();
mount(() => html`<${Page} />`, document.body);
start();
