// The stream of the page: server-sent events, read by fetch so that a token can be sent, and taken up after a break.

import { ApiError } from "./api.mjs";

const SILENCE = 25000; // a comment comes every 10 s
const FIRST_REST = 500;
const LONGEST_REST = 10000;

// Return a function that takes pieces of text and calls `tell(event, data, id)` for each whole event.
export function reader(tell) {
  let rest = "";
  let event = "message", data = [], id = null;
  return (piece) => {
    rest += piece;
    let from = 0;
    for (;;) {
      const end = rest.indexOf("\n", from);
      if (end < 0) break;
      const line = rest.slice(from, end).replace(/\r$/, "");
      from = end + 1;
      if (line === "") {
        if (data.length) tell(event, data.join("\n"), id);
        event = "message";
        data = [];
        continue;
      }
      if (line[0] === ":") continue;
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") event = value;
      else if (field === "data") data.push(value);
      else if (field === "id") id = value;
    }
    rest = rest.slice(from);
  };
}

// A stream that is opened again until it is closed. `open(headers, signal)` makes the request, `tell(event, data)` is
// called for each event, `turned(state, error)` when it is connecting, live, lost, refused or closed.
// `ready()`: resolves when the page can take more: until then nothing is read, and the proxy counts.
export class Stream {
  constructor({ open, tell, turned = () => {}, ready = async () => {}, rest = FIRST_REST }) {
    Object.assign(this, { open, tell, turned, ready, firstRest: rest });
    this.place = null; // id of the last event
    this.closed = true;
    this.run = 0;
  }
  // Open it anew; `from`: the id of an event to go on behind.
  start(from = null) {
    this.close();
    this.closed = false;
    this.place = from;
    this.keep(++this.run);
  }
  close() {
    if (this.closed) return;
    this.closed = true;
    this.abort?.abort();
    this.turned("closed");
  }
  async keep(run) {
    let rest = this.firstRest;
    const live = () => !this.closed && this.run === run;
    while (live()) {
      this.turned("connecting");
      let error = null;
      try {
        await this.once(() => { rest = this.firstRest; }, live);
      } catch (raised) {
        error = raised;
      }
      if (!live()) return;
      if (error instanceof ApiError && [403, 404, 422].includes(error.status)) {
        this.closed = true;
        this.turned("refused", error);
        return;
      }
      this.turned("lost", error);
      await new Promise((go) => setTimeout(go, rest));
      rest = Math.min(LONGEST_REST, rest * 2);
    }
  }
  async once(began, live) {
    const abort = this.abort = new AbortController();
    const headers = { Accept: "text/event-stream" };
    if (this.place !== null) headers["Last-Event-ID"] = this.place;
    const response = await this.open(headers, abort.signal);
    if (!live()) return abort.abort();
    const body = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const take = reader((event, data, id) => {
      if (!live()) return;
      if (id !== null) this.place = id;
      this.tell(event, JSON.parse(data));
    });
    this.turned("live");
    let silence;
    try {
      for (;;) {
        clearTimeout(silence);
        await this.ready();
        if (!live()) return;
        silence = setTimeout(() => abort.abort(), SILENCE);
        const { value, done } = await body.read();
        if (done) return;
        began();
        take(value);
      }
    } finally {
      clearTimeout(silence);
      abort.abort();
    }
  }
}
