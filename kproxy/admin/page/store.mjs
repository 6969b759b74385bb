// The rows that the page has: at most 50,000, in columns, with texts that are kept once.
//
// A row has a place that never changes, counted from 0 since the page was opened; `first` and `next` say which are
// here. Oldest go first. Numbers are in arrays of eight bytes (NaN: unknown), texts in arrays of indexes into a table,
// lists as texts with `LIST` between. A row that was under way comes again with its id, and takes its old place.

export const MOST_ROWS = 50000;
const LIST = "\u001f";
const NUMBERS = ["time", "connection", "version", "records", "request", "response", "latency", "broker_ms", "rule_ms",
  "kproxy_ms", "throttle", "max_wait", "producer_id", "partition", "correlation"];
const TEXTS = ["client", "api", "about", "outcome", "responder", "listener", "address", "principal", "software",
  "node", "group", "member", "transactional_id", "codec", "topic", "depth", "again_of"];
const LISTS = ["errors", "rules"];
const FLAGS = ["kept", "changed"];
const LONGEST = 400;

// Table of texts by index; 0 is null.
export class Texts {
  constructor() {
    this.all = [null];
    this.numbers = new Map();
  }
  number(text) {
    if (text === null || text === undefined || text === "") return 0;
    const cut = String(text).slice(0, LONGEST);
    let found = this.numbers.get(cut);
    if (found === undefined) {
      found = this.all.push(cut) - 1;
      this.numbers.set(cut, found);
    }
    return found;
  }
}

export class Rows {
  constructor(most = MOST_ROWS) {
    this.most = most;
    this.size = Math.min(most, 4096);
    this.texts = new Texts();
    this.make();
    this.clear();
  }
  make() {
    const old = this.columns;
    this.columns = {};
    for (const name of NUMBERS) this.columns[name] = new Float64Array(this.size);
    for (const name of [...TEXTS, ...LISTS]) this.columns[name] = new Uint32Array(this.size);
    this.columns.number = new Float64Array(this.size);
    this.columns.process = new Int32Array(this.size); // -1: the id is a text, in `named`; -2: a note in place of a row
    for (const name of FLAGS) this.columns[name] = new Uint8Array(this.size);
    return old;
  }
  clear() {
    this.first = this.next = 0;
    this.gone = 0; // rows that went since they were too many
    this.open = new Map(); // ids of rows without an end: their places
    this.named = new Map(); // ids that are not PROCESS-NUMBER, by place
    this.cleared = (this.cleared ?? 0) + 1;
    this.texts = new Texts();
  }
  get count() {
    return this.next - this.first;
  }
  // Arrays grow to twice their size until they hold all rows that there may be.
  grow() {
    const before = this.size;
    this.size = Math.min(this.most, this.size * 2);
    const old = this.make();
    for (const name in old) {
      for (let place = this.first; place < this.next; place++) this.columns[name][place % this.size] = old[name][place % before];
    }
  }
  // Give up texts that no row has any more.
  compact() {
    const fresh = new Texts();
    const moved = new Map([[0, 0]]);
    for (const name of [...TEXTS, ...LISTS]) {
      const column = this.columns[name];
      for (let place = this.first; place < this.next; place++) {
        const old = column[place % this.size];
        let now = moved.get(old);
        if (now === undefined) moved.set(old, now = fresh.number(this.texts.all[old]));
        column[place % this.size] = now;
      }
    }
    this.texts = fresh;
    this.crowded = 2 * fresh.all.length + 50000;
  }
  slot() {
    if (this.next - this.first === this.size) {
      if (this.size < this.most) this.grow();
      else this.drop();
    }
    if (this.texts.all.length > (this.crowded ?? 100000)) this.compact();
    return this.next++;
  }
  drop() {
    this.named.delete(this.first);
    this.first++;
    this.gone++;
    if (this.open.size > 2000) for (const [id, place] of this.open) if (place < this.first) this.open.delete(id);
  }
  // Add a row, a list in the order of `names`, or put it in the place of the one with its id. Return its place.
  add(row, names) {
    const at = this.names === names ? this.at : this.learn(names);
    const id = String(row[at.id]);
    const over = row[at.outcome] !== null && row[at.outcome] !== undefined;
    let place = this.open.get(id);
    if (place === undefined || place < this.first) place = this.slot();
    if (over) this.open.delete(id);
    else this.open.set(id, place);
    const slot = place % this.size;
    const columns = this.columns;
    for (const name of NUMBERS) {
      const value = at[name] === undefined ? null : row[at[name]];
      columns[name][slot] = typeof value === "number" ? value : NaN;
    }
    for (const name of TEXTS) columns[name][slot] = at[name] === undefined ? 0 : this.texts.number(row[at[name]]);
    for (const name of LISTS) {
      const list = at[name] === undefined ? null : row[at[name]];
      columns[name][slot] = list?.length ? this.texts.number(list.join(LIST)) : 0;
    }
    for (const name of FLAGS) columns[name][slot] = row[at[name]] ? 1 : 0;
    const match = /^(\d{1,5})-(\d{1,15})$/.exec(id);
    columns.process[slot] = match ? Number(match[1]) : -1;
    columns.number[slot] = match ? Number(match[2]) : NaN;
    if (!match) this.named.set(place, id);
    return place;
  }
  learn(names) {
    this.names = names;
    this.at = Object.fromEntries(names.map((name, index) => [name, index]));
    return this.at;
  }
  // Add a line of words in place of rows that are missing.
  note(text, time) {
    const place = this.slot();
    const slot = place % this.size;
    for (const name in this.columns) this.columns[name][slot] = 0;
    for (const name of NUMBERS) this.columns[name][slot] = NaN;
    this.columns.time[slot] = time;
    this.columns.process[slot] = -2;
    this.columns.about[slot] = this.texts.number(text);
    return place;
  }
  has(place) {
    return place >= this.first && place < this.next;
  }
  id(place) {
    const process = this.columns.process[place % this.size];
    if (process === -2) return `note-${place}`;
    return process === -1 ? this.named.get(place) : `${process}-${this.columns.number[place % this.size]}`;
  }
  isNote(place) {
    return this.columns.process[place % this.size] === -2;
  }
  number(place, name) {
    return this.columns[name][place % this.size];
  }
  text(place, name) {
    return this.texts.all[this.columns[name][place % this.size]];
  }
  list(place, name) {
    return this.text(place, name)?.split(LIST) ?? [];
  }
  // Return a row as an object by column, null for what is unknown.
  row(place) {
    const found = { id: this.id(place), place };
    for (const name of FLAGS) found[name] = this.columns[name][place % this.size] === 1;
    for (const name of NUMBERS) {
      const value = this.number(place, name);
      found[name] = Number.isNaN(value) ? null : value;
    }
    for (const name of TEXTS) found[name] = this.text(place, name);
    for (const name of LISTS) found[name] = this.list(place, name);
    return found;
  }
  // Return the place of a row, -1 if it is not here.
  find(id) {
    const match = /^(\d{1,5})-(\d{1,15})$/.exec(id ?? "");
    if (match) {
      const process = Number(match[1]), number = Number(match[2]);
      for (let place = this.next - 1; place >= this.first; place--) {
        const slot = place % this.size;
        if (this.columns.number[slot] === number && this.columns.process[slot] === process) return place;
      }
    } else for (const [place, name] of this.named) if (name === id) return place;
    return -1;
  }
  // Return a function that says whether a row has this text in any column. Texts are looked at once, not once a row.
  finder(text) {
    const wanted = text.toLowerCase();
    const fits = new Uint8Array(this.texts.all.length);
    this.texts.all.forEach((one, index) => { if (one?.toLowerCase().includes(wanted)) fits[index] = 1; });
    return (place) => {
      const slot = place % this.size;
      for (const name of [...TEXTS, ...LISTS]) if (fits[this.columns[name][slot]]) return true;
      return this.id(place) === text;
    };
  }
}
