// The records of an exchange, as text, JSON or hex. Null is not the same as "".

import { Component, changed, html } from "./dom.mjs";
import { bytes, count, cut, fine, fromBase64, hex2, number } from "./format.mjs";

const FORMS = ["decoded", "text", "JSON", "hex"];
const LONG = 2000;
const AT_ONCE = 200;
const view = { form: "decoded", most: AT_ONCE };

// Return a key or a value with a schema: its name and id, and the decoded value or the reason why there is none.
export function decodedAs(shown) {
  const value = shown.format ? JSON.stringify(shown.value, null, 2) : shown.pending ? "schema is pending, select the exchange again" : shown.why;
  return `${shown.schema ?? "schema"}#${shown.schema_id} ${value}`;
}

// Return a key or a value, which comes in base64, in the form that is chosen; "null" for null.
export function shownAs(value, form) {
  if (value === null || value === undefined) return "null";
  const found = fromBase64(value);
  if (form === "hex") return Array.from(found, hex2).join(" ");
  const text = new TextDecoder().decode(found);
  if (form === "text" || (form === "decoded" && !/^[[{]/.test(text))) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Return the records of all partitions, each with its place, as far as they are shown.
export function flat(partitions) {
  return partitions.flatMap((part) => (part.batches ?? []).flatMap((batch) => (batch.records ?? [])
    .map((record) => ({ ...record, place: part.topic === null ? "" : `${part.topic}[${part.partition}]` }))));
}

// Say of each batch what stands above its records: the producer, the codec, the checksum, what is missing.
function batchLine(part, batch) {
  const words = [`${part.topic}[${part.partition}]`];
  if (batch.cut !== undefined) return [...words, `cut after ${bytes(batch.cut)}`];
  words.push(`offsets ${batch.offset}${batch.last_offset !== undefined ? `–${batch.last_offset}` : ""}`, `codec ${batch.codec}`, `${batch.bytes < 1000 ? `${batch.bytes} bytes` : bytes(batch.bytes)}`);
  if (batch.producer_id >= 0) words.push(`producer ${batch.producer_id}, epoch ${batch.producer_epoch}, sequence ${batch.base_sequence}`);
  if (batch.transactional) words.push("in a transaction");
  if (batch.control) words.push("control batch");
  if (batch.crc && batch.crc !== "right") words.push(`checksum: ${batch.crc}`);
  if (batch.omitted === null) words.push("more records omitted");
  else if (batch.omitted) words.push(`${count(batch.omitted, "record")} omitted`);
  if (batch.why) words.push(batch.why);
  return words;
}

export class Records extends Component {
  render({ records: partitions, event }) {
    const list = flat(partitions);
    const why = partitions.map((part) => part.why).filter(Boolean);
    if (!partitions.length) return html`<p class="nothing">${event?.total_records ? "Its records were not kept." : "It has no records."}</p>`;
    const cell = (value, size, decoded) => {
      const text = decoded && view.form === "decoded" ? decodedAs(decoded) : shownAs(value, view.form);
      return html`<td class=${value === null || value === undefined ? "null" : ""} title=${size > LONG ? `${number(size)} bytes` : null}>${cut(text, LONG)}</td>`;
    };
    const lines = partitions.flatMap((part) => (part.batches ?? []).map((batch) => batchLine(part, batch).join(" · ")));
    return html`<div class="records"><p><span class="batches dim">${lines.slice(0, 3).join("; ")}${lines.length > 3 ? ` and ${lines.length - 3} batches more` : ""}</span>
      ${event?.transactional_id && html`<span>transactional id <b>${event.transactional_id}</b></span>`}
      <label>as <select value=${view.form} onChange=${(change) => { view.form = change.target.value; changed(); }}>${FORMS.map((form) => html`<option key=${form}>${form}</option>`)}</select></label></p>
      ${why.length > 0 && html`<p class="bad">${why.join("; ")}</p>`}
      <div class="scroll" tabindex="0" role="region" aria-label="Records"><table><thead><tr><th scope="col">place</th><th scope="col">offset</th><th scope="col">time</th><th scope="col">key</th><th scope="col">value</th><th scope="col">headers</th></tr></thead>
      <tbody>${list.slice(0, view.most).map((one, index) => html`<tr key=${index}><td>${one.place}</td>
        <td class="r">${one.offset}</td><td class="o">${one.time === null || one.time === undefined ? "" : fine(one.time / 1000)}</td>${cell(one.key, one.key_bytes, one.decoded?.key)}${cell(one.value, one.value_bytes, one.decoded?.value)}
        <td>${(one.headers ?? []).map(([name, value], at) => html`${at ? ", " : ""}<b>${name}</b>=${cut(shownAs(value, view.form), LONG)}`)}</td></tr>`)}</tbody></table>
      ${list.length > view.most && html`<button onClick=${() => { view.most += AT_ONCE; changed(); }}>${number(list.length - view.most)} more</button>`}</div></div>`;
  }
}
