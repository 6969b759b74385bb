// What can be taken away of an exchange: its frames, its details, a filter that finds the like of it.

import { download, saveAs } from "./api.mjs";
import { copyText } from "./clipboard.mjs";
import { detailOf } from "./detail.mjs";
import { html } from "./dom.mjs";
import { exactly, hex2 } from "./format.mjs";
import { closeDialog, command, complain, openDialog } from "./registry.mjs";
import { state } from "./state.mjs";

// Return a filter for exchanges like this one: of the same API, about the same thing, from the same client.
export function filterFor(row) {
  const parts = [`api == ${row.api}`];
  if (row.topic) parts.push(`topic ~ ${exactly(row.topic)}`);
  else if (row.group) parts.push(`group ~ ${exactly(row.group)}`);
  if (row.client) parts.push(`client_id ~ ${exactly(row.client)}`);
  if (row.errors.length) parts.push(`error == ${row.errors[0]}`);
  return parts.join(" and ");
}

// Return a copy of the details that is JSON: bytes as hex, and nothing that the page has worked out.
function plain(data) {
  return JSON.stringify(data, (name, value) => {
    if (["owner", "nodes", "differences"].includes(name)) return undefined;
    return value instanceof Uint8Array ? Array.from(value, hex2).join("") : value;
  }, 2);
}

function ask({ row }) {
  const { id } = row;
  const data = detailOf(id)?.data;
  const name = `exchange-${id}`;
  const frame = (of, side) => {
    const asked = new URLSearchParams({ of, side, source: state.source });
    return download(`/api/exchanges/${encodeURIComponent(id)}/frame?${asked}`, `${name}-${of}-${side}.bin`);
  };
  const frames = ["request", "response"].flatMap((of) => ["client", "broker"].filter((side) => data?.[of]?.[side])
    .map((side) => [`${of}, the ${side}'s side, as bytes`, () => frame(of, side)]));
  const capture = () => download(`/api/exchanges/${encodeURIComponent(id)}/capture?${new URLSearchParams({ source: state.source })}`, `${name}.pcapng`);
  const choices = [...frames,
    ["both frames, as a capture (.pcapng)", capture, !data],
    ["details, as JSON", () => saveAs(new Blob([plain(data)], { type: "application/json" }), `${name}.json`), !data],
    ["event, as JSON", () => saveAs(new Blob([JSON.stringify(data.event)], { type: "application/json" }), `${name}-event.json`), !data],
    ["copy the bytes as hex", () => copyText(Array.from((data[state.tab] ?? data.request).client.data, hex2).join("")), !data?.request?.client],
    ["copy a filter for its like", () => copyText(filterFor(row))]];
  openDialog(() => html`<ul class="choices">${choices.filter(([, , missing]) => !missing).map(([words, act], index) => html`<li key=${words}>
      <button autofocus=${index === 0} onClick=${async () => { closeDialog(); try { await act(); } catch (error) { complain(error); } }}>${words}</button></li>`)}</ul>
    <p class="foot"><button class="last" onClick=${closeDialog}>Cancel<kbd>esc</kbd></button></p>`, { title: `Save of exchange ${id}` });
}

command({ key: "w", title: "Save…", help: "save its bytes or details, copy a filter for its like", group: "exchange", view: "exchanges",
  place: "exchange", order: 40, when: ({ row }) => row !== null, act: ask });
