// The list of exchanges: only rows in sight are elements, whatever the number of rows.
//
// While it follows, the newest row is at the bottom. Else nothing moves: rows that go at the top, since there are too
// many, are taken off what is scrolled.

import { Component, changed, html } from "./dom.mjs";
import { bytes, duration, family, fine, ms, number } from "./format.mjs";
import { live, rows } from "./live.mjs";
import { marks } from "./marks.mjs";
import { select, state } from "./state.mjs";
import { now } from "./timeline.mjs";

export const HEIGHT = 19;
const HEAD = 20;
const SLOW = 200;
const SORT_EVERY = 1000; // milliseconds
export const SCALES = [0.5, 1, 2, 5, 10, 30, 60];

const right = (place, name, show) => html`<span role="gridcell" class="r">${show(rows.number(place, name))}</span>`;
const plain = (name) => (place) => html`<span role="gridcell">${rows.text(place, name)}</span>`;

// Columns by name: title, width in CSS, and how a cell is drawn. Widths are those of a wide window.
export const COLUMNS = {
  id: { title: "#", width: "58px", cell: (place) => html`<span role="gridcell" class="o" title=${again(place)}>${again(place) && "↻ "}${shortId(place)}</span>` },
  time: { title: "time", width: "52px", head: () => hour(), cell: (place) => html`<span role="gridcell" class="o" title=${fine(rows.number(place, "time"))}>${fine(rows.number(place, "time"), true)}</span>` },
  connection: { title: "conn", width: "46px", cell: (place) => html`<span role="gridcell"><i class=${dot(rows.number(place, "connection"))}></i>${number(rows.number(place, "connection"))}</span>` },
  client: { title: "client", width: "84px", cell: plain("client") },
  api: { title: "API", width: "158px", cell: (place) => html`<span role="gridcell" class="api"><i class=${`m ${family(rows.text(place, "api"))}`}></i>${rows.text(place, "api")} <span class="o">v${rows.number(place, "version")}</span></span>` },
  about: { title: "subject", width: "minmax(96px,1fr)", cell: (place) => html`<span role="gridcell" title=${rows.text(place, "about")}>${rows.text(place, "about")}</span>` },
  records: { title: "records", width: "54px", right: true, cell: (place) => right(place, "records", number) },
  request: { title: "request", width: "58px", right: true, cell: (place) => right(place, "request", bytes) },
  response: { title: "response", width: "62px", right: true, cell: (place) => right(place, "response", bytes) },
  latency: { title: "latency", width: "62px", right: true, cell: latency },
  throttle: { title: "throttle", width: "56px", right: true, cell: (place) => right(place, "throttle", (value) => (value ? ms(value) : "")) },
  outcome: { title: "outcome", width: "minmax(120px,190px)", cell: outcome },
  rules: { title: "rules", width: "130px", cell: rulesOf },
  waterfall: { title: "time", width: "168px", cell: waterfall },
  principal: { title: "principal", width: "80px", cell: plain("principal") },
  address: { title: "address", width: "130px", cell: plain("address") },
  software: { title: "software", width: "130px", cell: plain("software") },
  listener: { title: "listener", width: "70px", cell: plain("listener") },
  node: { title: "node", width: "44px", cell: plain("node") },
  group: { title: "group", width: "90px", cell: plain("group") },
  member: { title: "member", width: "110px", cell: plain("member") },
  codec: { title: "codec", width: "50px", cell: plain("codec") },
  producer_id: { title: "producer", width: "60px", right: true, cell: (place) => right(place, "producer_id", (value) => (Number.isNaN(value) ? "" : String(value))) },
  depth: { title: "depth", width: "56px", cell: plain("depth") },
  again_of: { title: "again of", width: "64px", cell: plain("again_of") },
};
const SHOWN = ["id", "time", "connection", "client", "api", "about", "records", "request", "response", "latency",
  "throttle", "outcome", "rules", "waterfall"];
const LEFT_OUT_WHEN_NARROW = new Set(["throttle", "rules"]);

// What others say of a row: functions of its place that return {class, outcome} or null, as for one that is held now.
export const decorators = [];

export function shownColumns() {
  const kept = (localStorage.getItem("kproxy-columns") ?? "").split(" ").filter((name) => name in COLUMNS);
  const names = kept.length ? kept : SHOWN;
  return kept.length || innerWidth > 1500 ? names : names.filter((name) => !LEFT_OUT_WHEN_NARROW.has(name));
}

export function showColumns(names) {
  if (names === null) localStorage.removeItem("kproxy-columns");
  else localStorage.setItem("kproxy-columns", names.join(" "));
  changed();
}

export const dot = (connection) => `c c${Number.isNaN(connection) || connection === null ? 0 : connection % 6}`;

function shortId(place) {
  const process = rows.columns.process[place % rows.size];
  if (process < 0) return rows.id(place);
  const text = number(rows.number(place, "number"));
  return (live.hello?.workers ?? 1) > 1 ? `${process}·${text}` : text;
}

const again = (place) => (rows.text(place, "again_of") ? `sent again from ${rows.text(place, "again_of")}` : null);

function hour() {
  const last = rows.count ? rows.number(rows.next - 1, "time") : now();
  return fine(last).slice(0, 5);
}

export const longPoll = (place) => {
  const wait = rows.number(place, "max_wait"), broker = rows.number(place, "broker_ms");
  return wait > 0 && broker >= 10 && broker <= wait * 1.2 + 50;
};

function latency(place) {
  const value = rows.number(place, "latency");
  if (rows.text(place, "outcome") === null) {
    const since = now() - rows.number(place, "time");
    return html`<span role="gridcell" class="r dim">${since > 0.95 ? duration(since) : ""}</span>`;
  }
  const slow = value >= SLOW && !longPoll(place);
  return html`<span role="gridcell" class=${slow ? "r slow" : "r"}>${ms(value)}</span>`;
}

const OUTCOMES = { answered: "", no_answer_due: "acks 0", unanswered: "no answer", closed: "closed by kproxy" };

function outcome(place) {
  const told = decorated(place)?.outcome;
  if (told) return html`<span role="gridcell" class="held">${told}</span>`;
  const errors = rows.list(place, "errors");
  if (errors.length) return html`<span role="gridcell" class="bad" title=${errors.join(", ")}>${errors.join(", ")}</span>`;
  const how = rows.text(place, "outcome");
  if (how === null) {
    const long = now() - rows.number(place, "time") > 3 && !(rows.number(place, "max_wait") > 0);
    return html`<span role="gridcell" class=${long ? "bad" : "dim"}>${long ? "no answer so far" : "under way"}</span>`;
  }
  const bad = how === "unanswered" || how === "closed";
  if (!OUTCOMES[how] && !bad && again(place)) return html`<span role="gridcell" class="dim">sent again</span>`;
  return html`<span role="gridcell" class=${bad ? "bad" : "dim"}>${OUTCOMES[how] ?? how}</span>`;
}

const CHANGED = "other bytes at the broker";

function rulesOf(place) {
  const names = rows.list(place, "rules");
  const changed = rows.number(place, "changed") === 1;
  return html`<span role="gridcell" title=${[...names, ...(changed ? [CHANGED] : [])].join(", ")}>${names.map((name) => html`<em key=${name}>${name}</em>`)}
    ${changed && html`<em class="changed"><span aria-hidden="true">⇄</span><span class="sr">${CHANGED}</span></em>`}</span>`;
}

// Parts of a row's time from its beginning, in milliseconds: [class, from, to].
export function parts(place) {
  const whole = rows.number(place, "latency");
  const begun = rows.number(place, "time") * 1000;
  const held = rows.number(place, "rule_ms") || 0;
  if (rows.text(place, "outcome") === null) {
    const since = now() * 1000 - begun;
    return [[decorated(place) ? "h" : rows.number(place, "max_wait") > 0 ? "w" : "b", 0, Math.max(since, 1)]];
  }
  if (Number.isNaN(whole)) return [[rows.text(place, "responder") === "kproxy" ? "k" : "b", 0, 0]];
  if (rows.text(place, "responder") === "kproxy") return held ? [["h", 0, held], ["k", held, whole]] : [["k", 0, whole]];
  const rest = [longPoll(place) ? "w" : "b", held, whole];
  return held > 0.05 ? [["h", 0, held], rest] : [rest];
}

const frame = { from: 0, span: 2 }; // what the waterfall shows, seconds since 1970

function waterfall(place) {
  const begun = rows.number(place, "time");
  return html`<span role="gridcell" class="wf" aria-hidden="true">${parts(place).map(([kind, from, to]) => {
    const left = Math.min(99, Math.max(0, ((begun - frame.from + from / 1000) / frame.span) * 100));
    const end = Math.min(100, Math.max(left, ((begun - frame.from + to / 1000) / frame.span) * 100));
    return html`<s class=${kind} style=${{ left: `${left.toFixed(2)}%`, width: `${(end - left).toFixed(2)}%` }}></s>`;
  })}</span>`;
}

// Set the scale of the waterfall, the same for all rows in sight.
function setFrame(places) {
  let from = Infinity, to = -Infinity;
  for (const place of places) {
    const begun = rows.number(place, "time");
    if (rows.isNote(place) || Number.isNaN(begun)) continue;
    from = Math.min(from, begun);
    to = Math.max(to, begun + Math.min(60, (rows.number(place, "latency") || 0) / 1000));
  }
  if (from === Infinity) return;
  frame.from = from;
  frame.span = state.scale ?? SCALES.find((scale) => scale >= to - from) ?? 60;
}

function decorated(place) {
  for (const tell of decorators) {
    const found = tell(place);
    if (found) return found;
  }
  return null;
}

function rowClass(place) {
  const names = ["row"];
  const how = rows.text(place, "outcome");
  const told = decorated(place);
  if (told) names.push(told.class);
  else if (rows.columns.errors[place % rows.size] || how === "unanswered" || how === "closed") names.push("failed");
  if (rows.text(place, "responder") === "kproxy") names.push("by-kproxy");
  if (how === "no_answer_due") names.push("no-answer");
  const id = rows.id(place);
  if (id === state.selected) names.push("selected");
  if (marks.has(id)) names.push(`mark${marks.get(id)}`);
  return names.join(" ");
}

// Values by which a column is sorted; columns that are not here are sorted by their texts.
const SORTED_BY = { id: (place) => place, time: number_of("time"), connection: number_of("connection"), records: number_of("records"),
  request: number_of("request"), response: number_of("response"), latency: number_of("latency"), throttle: number_of("throttle"),
  producer_id: number_of("producer_id"), waterfall: number_of("time"), rules: (place) => rows.text(place, "rules"),
  outcome: (place) => rows.text(place, "errors") ?? rows.text(place, "outcome") };
const FIRST_DOWN = new Set(["latency", "throttle", "records", "request", "response"]); // the largest first

function number_of(name) {
  return (place) => rows.number(place, name);
}

// Sort by a column; again: the other way; once more: by time again.
export function sortBy(column) {
  const first = FIRST_DOWN.has(column), now = state.sort;
  if (column === null || (now?.column === column && now.down !== first)) state.sort = null;
  else state.sort = { column, down: now?.column === column ? !first : first };
  if (state.sort) state.follow = false;
  changed();
}

// Return places in the order of the sorted column; rows without a value last, equal ones by time.
export function sorted(places, { column, down }) {
  const value = SORTED_BY[column] ?? ((place) => rows.text(place, column));
  const missing = (one) => one === null || one === undefined || Number.isNaN(one);
  const list = places.map((place) => [value(place), place]);
  const sign = down ? -1 : 1;
  list.sort(([a, one], [b, other]) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b) || one - other;
    return sign * (a < b ? -1 : a > b ? 1 : 0) || one - other;
  });
  return list.map(([, place]) => place);
}

const listOf = (places) => ({ count: places.length, at: (index) => places[index], index: (place) => places.indexOf(place) });

// Return what the list shows: all rows, or those of the chosen time, or held ones. `at(index)` is the place of a row.
shown.timer = null;
export function shown() {
  if (state.heldOnly) {
    const places = [...rows.open.values()].filter((place) => rows.has(place) && decorated(place)).sort((one, other) => one - other);
    return listOf(state.sort ? sorted(places, state.sort) : places);
  }
  if (state.range === null && state.sort === null) {
    return { count: rows.count, at: (index) => rows.first + index, index: (place) => place - rows.first };
  }
  const key = `${rows.first} ${rows.next} ${rows.cleared} ${state.range} ${state.sort?.column} ${state.sort?.down}`;
  const what = `${rows.cleared} ${state.range} ${state.sort?.column} ${state.sort?.down}`;
  // A sort takes some time, so new rows are sorted in once a second.
  const rest = state.sort && shown.what === what ? shown.when + SORT_EVERY - Date.now() : 0;
  if (shown.key !== key && rest > 0) {
    shown.timer ??= setTimeout(() => { shown.timer = null; changed(); }, rest);
  } else if (shown.key !== key) {
    Object.assign(shown, { key, what, when: Date.now(), places: [] });
    const [from, to] = state.range ?? [-Infinity, Infinity];
    for (let place = rows.first; place < rows.next; place++) {
      const time = rows.number(place, "time");
      if (time >= from && time <= to && !(state.sort && rows.isNote(place))) shown.places.push(place);
    }
    if (state.sort) shown.places = sorted(shown.places, state.sort);
  }
  if (shown.first !== rows.first) {
    shown.first = rows.first;
    shown.places = shown.places.filter((place) => rows.has(place));
  }
  return listOf(shown.places);
}

// Choose the row that is `step` rows from the chosen one, or the first or the last one.
export function move(step) {
  const { count, at, index } = shown();
  if (!count) return;
  const now = index(rows.find(state.selected));
  let next = now < 0 || !Number.isFinite(step) ? (step > 0 ? count - 1 : 0) : Math.min(count - 1, Math.max(0, now + step));
  if (now < 0 && Number.isFinite(step)) next = count - 1;
  const down = step > 0 ? 1 : -1;
  while (next > 0 && next < count - 1 && rows.isNote(at(next))) next += down;
  if (rows.isNote(at(next))) return;
  state.follow = false;
  bring.place = at(next);
  select(rows.id(at(next)));
  changed();
}

// Bring a row into sight when the list is drawn next.
export function bring(place) {
  state.follow = false;
  bring.place = place;
  changed();
}
bring.place = null;

export function follow(wanted = !state.follow) {
  state.follow = wanted;
  if (wanted) state.sort = null;
  changed();
}

export class List extends Component {
  constructor() {
    super();
    this.room = 400;
    this.top = 0;
    this.keep = (element) => { this.element = element; };
    this.scrolled = () => {
      const top = this.element.scrollTop;
      if (state.follow && top < this.top - 2) state.follow = false;
      this.top = top;
      changed();
    };
    this.clicked = (event) => {
      const place = Number(event.target.closest("[data-place]")?.dataset.place ?? -1);
      if (!rows.has(place) || rows.isNote(place)) return;
      state.follow = false;
      select(rows.id(place));
      changed();
    };
  }
  componentDidMount() {
    this.watch = new ResizeObserver(() => {
      if (!state.follow && this.chosenInSight()) bring.place = rows.find(state.selected); // details have been opened
      this.room = this.element.clientHeight;
      changed();
    });
    this.watch.observe(this.element);
    this.settle();
  }
  componentDidUpdate() {
    this.settle();
  }
  componentWillUnmount() {
    this.watch.disconnect();
  }
  chosenInSight() {
    const place = state.selected === null ? -1 : rows.find(state.selected);
    const at = place < 0 ? -1 : shown().index(place) * HEIGHT;
    return at >= this.top - HEIGHT && at <= this.top + this.room;
  }
  // Scroll to where this list has to be, behind each drawing.
  settle() {
    const element = this.element;
    if (state.follow) {
      element.scrollTop = element.scrollHeight;
    } else if (rows.gone > this.gone && state.range === null && state.sort === null) {
      element.scrollTop -= (rows.gone - this.gone) * HEIGHT;
    }
    this.gone = rows.gone;
    if (bring.place !== null) {
      const at = shown().index(bring.place) * HEIGHT;
      bring.place = null;
      if (at >= 0 && at < element.scrollTop) element.scrollTop = at;
      else if (at + HEIGHT > element.scrollTop + this.room - HEAD) element.scrollTop = at + HEIGHT - this.room + HEAD;
    }
    this.top = element.scrollTop;
  }
  render() {
    const { count, at } = shown();
    const most = Math.ceil(this.room / HEIGHT) + 1;
    const end = Math.max(0, count * HEIGHT + HEAD - this.room);
    const gone = state.sort === null ? rows.gone - (this.gone ?? 0) : 0;
    const top = state.follow ? end : Math.min(end, Math.max(0, this.top - gone * HEIGHT));
    const first = Math.max(0, Math.floor(top / HEIGHT) - 1);
    const places = [];
    for (let index = first; index < Math.min(count, first + most + 1); index++) places.push(at(index));
    setFrame(places);
    const names = shownColumns();
    const columns = { "--columns": names.map((name) => COLUMNS[name].width).join(" ") };
    return html`<div class="list" ref=${this.keep} onScroll=${this.scrolled} onClick=${this.clicked} style=${columns}
      role="grid" aria-label="Exchanges" aria-rowcount=${count + 1} tabindex="0"
      aria-activedescendant=${state.selected && places.includes(rows.find(state.selected)) ? "chosen" : null}>
      <div role="row" class="row head" aria-rowindex="1">${names.map((name) => head(name))}</div>
      <div role="presentation" class="rows" style=${{ height: `${count * HEIGHT}px` }}>
        <div role="presentation" style=${{ transform: `translateY(${first * HEIGHT}px)` }}>
        ${places.map((place, index) => line(place, first + index, names))}</div></div>
      ${!count && html`<div role="row" class="empty"><p role="gridcell">${empty()}</p></div>`}</div>`;
  }
}

function head(name) {
  if (name !== "waterfall") {
    const { title, right: toRight, head: own } = COLUMNS[name];
    const down = state.sort?.column === name ? state.sort.down : null;
    return html`<span role="columnheader" key=${name} class=${toRight ? "r" : ""} aria-sort=${down === null ? null : down ? "descending" : "ascending"}>
      <button tabindex="-1" title=${`sort by ${title}`} onClick=${() => sortBy(name)}>${own ? own() : title}${down !== null && html`<i aria-hidden="true">${down ? "▾" : "▴"}</i>`}</button></span>`;
  }
  const step = frame.span / 4;
  const marksAt = [0, 1, 2, 3].map((part) => html`<span>${fine(frame.from + part * step, true).slice(0, step % 1 ? 4 : 2)}</span>`);
  return html`<span role="columnheader" key=${name} class="scale" aria-label="time">${marksAt}</span>`;
}

function line(place, index, names) {
  if (rows.isNote(place)) {
    return html`<div role="row" key=${place} class="row note" aria-rowindex=${index + 2}><span role="gridcell">⋯ ${rows.text(place, "about")}</span></div>`;
  }
  const chosen = rows.id(place) === state.selected;
  return html`<div role="row" key=${place} data-place=${place} class=${rowClass(place)} aria-rowindex=${index + 2}
    aria-selected=${chosen ? "true" : "false"} id=${chosen ? "chosen" : null}>${names.map((name) => COLUMNS[name].cell(place))}</div>`;
}

function empty() {
  if (live.state === "refused") return live.error?.message ?? "The stream was refused.";
  if (live.state === "lost") return "kproxy cannot be reached. The page tries again by itself.";
  const filtered = state.filter || state.chips.size || state.crumbs.length;
  if (state.heldOnly) return "Nothing that the filter holds for is held now.";
  if (state.range) return "Nothing here is of the chosen time.";
  return filtered ? "The filter is at work, and nothing has fitted so far." : "Nothing has passed so far.";
}
