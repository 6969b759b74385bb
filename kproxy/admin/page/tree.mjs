// The fields of a frame as a tree: made of the steps of its trace, which name each value with its path and place.

import { Component, changed, html, Lines } from "./dom.mjs";
import { cut, fine, fromBase64, hex2 } from "./format.mjs";
import { copyText } from "./clipboard.mjs";

const LINE = 17;
const LONG = 200;
const MOST_SHOWN = 65536;
const FOLDED_FROM = 60; // elements of an array, from which on it is folded at first

const LAST_TIME = 8.64e15; // milliseconds: the last time that a Date can have
const FEW = 3; // records of a batch that are unfolded at first

const PART = /\[\d+\]|[^.[\]]+/g;

// Return the nodes of a frame: {name, path, depth, start, end, type, value, kind, word, step, children, parent, at}, in
// order. Steps are [start, end, depth, path, kind, type, value, a word for the value]. Those of packed records mark the
// bytes of their batch.
export function nodesOf(steps) {
  const nodes = [];
  const byPath = new Map();
  const make = (path, parts) => {
    const parent = parts.length > 1 ? byPath.get(joined(parts.slice(0, -1))) ?? make(joined(parts.slice(0, -1)), parts.slice(0, -1)) : null;
    const made = { name: parts[parts.length - 1], path, depth: parts.length - 1, start: null, end: null, type: "",
      value: undefined, kind: "", word: "", step: null, children: 0, parent, at: nodes.length };
    nodes.push(made);
    byPath.set(path, made);
    if (parent) parent.children++;
    return made;
  };
  let batch = null;
  steps.forEach(([start, end, , path, kind, type, value, word], index) => {
    if (kind === "tags" && !value) return;
    const parts = path.match(PART) ?? [path || "frame"];
    const known = byPath.get(path);
    const node = known && known.step === null ? known : make(known ? `${path} (${kind})` : path || "frame", parts);
    Object.assign(node, { start, end, type: type ?? "", value, kind, word: word ?? "", step: index });
    if (kind === "batch") batch = index;
    node.marks = isPacked(value) ? batch : index;
  });
  return nodes;
}

// Return whether a value is one of a packed record, which has no place of its own in the frame.
export function isPacked(value) {
  return Boolean(value?.packed);
}

function joined(parts) {
  return parts.map((part, index) => (index && part[0] !== "[" ? `.${part}` : part)).join("");
}

// Return a value as it stands in the tree: strings in quotes, bytes as text where they are text, else as hex.
// `data`: the frame's bytes.
export function valueText({ value, kind, type, end, step }, data) {
  if (step === null || value === undefined) return "";
  if (kind === "count") return value === -1 || value === null ? "null" : `${value} element${value === 1 ? "" : "s"}`;
  if (kind === "present") return value ? "" : "null";
  if (kind === "tags") return `${value} tagged field${value === 1 ? "" : "s"}`;
  if (kind === "tag") return `tag ${value}`;
  if (kind === "batch") return batchText(value);
  if (kind === "record") return `offset ${value.offset}${value.time >= 0 && value.time < LAST_TIME ? `, ${fine(value.time / 1000)}` : ""}`;
  if (kind === "header") return `${JSON.stringify(value.name)}: ${value.bytes === null ? "null" : bytesIn(value, end, data)}`;
  if (value === null) return "null";
  if (typeof value === "string") return JSON.stringify(value);
  if (type.endsWith("RECORDS")) return `${value.bytes} bytes`;
  if (typeof value.bytes === "number") return bytesIn(value, end, data);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// Return bytes of the frame, or those that came with a packed value.
function bytesIn(value, end, data) {
  if (!isPacked(value)) return bytesText(value.bytes, end, data);
  const found = typeof value.data === "string" ? fromBase64(value.data) : null;
  return bytesText(value.bytes, value.bytes, found);
}

function bytesText(count, end, data) {
  if (!data || end > data.length) return `${count} bytes`;
  const found = data.subarray(end - count, Math.min(end, end - count + MOST_SHOWN));
  if (found.every((one) => one >= 32 && one < 127)) return JSON.stringify(String.fromCharCode(...found.subarray(0, 20000)));
  return `${count} bytes: ${Array.from(found.subarray(0, 400), hex2).join(" ")}`;
}

function batchText({ cut: left, count, offset, last_offset: last, codec, producer_id: producer, producer_epoch: epoch,
  base_sequence: sequence, transactional, control }) {
  if (left !== undefined) return `cut after ${left} bytes`;
  const words = [count === undefined ? "" : `${count} record${count === 1 ? "" : "s"}`,
    last === undefined ? `offset ${offset}` : `offsets ${offset}–${last}`, codec === "none" ? "no codec" : codec];
  if (producer >= 0) words.push(`producer ${producer}, epoch ${epoch}, sequence ${sequence}`);
  if (transactional) words.push("in a transaction");
  if (control) words.push("control");
  return words.filter(Boolean).join(", ");
}

// Tree with the keys of a tree: up and down, left folds, right unfolds, home and end.
export class Tree extends Component {
  constructor(props) {
    super();
    this.folded = new Set();
    this.whole = new Set();
    this.take(props.steps);
    this.key = (event) => this.pressed(event);
    this.over = (event) => {
      const at = event.target.closest("[data-node]")?.dataset.node;
      if (at !== undefined) this.props.mark(this.nodes[at].marks ?? null);
    };
    this.clicked = (event) => {
      const at = event.target.closest("[data-node]")?.dataset.node;
      if (at === undefined) return;
      this.props.choose(Number(at));
      if (event.target.closest(".fold")) this.fold(this.nodes[at]);
    };
  }
  take(steps) {
    this.steps = steps;
    this.nodes = nodesOf(steps);
    this.folded.clear();
    for (const node of this.nodes) {
      if (node.children > FOLDED_FROM || (node.kind === "record" && node.parent?.children > FEW)) this.folded.add(node.path);
    }
  }
  // Return the nodes that no folded one hides.
  open() {
    const found = [];
    const hidden = new Set();
    for (const node of this.nodes) {
      if (node.parent && (hidden.has(node.parent) || this.folded.has(node.parent.path))) hidden.add(node);
      else found.push(node);
    }
    return found;
  }
  fold(node) {
    if (!this.folded.delete(node.path)) this.folded.add(node.path);
    changed();
    this.forceUpdate();
  }
  pressed(event) {
    const open = this.open();
    const now = open.findIndex((node) => node.at === this.props.chosen);
    const node = open[now];
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: open.length - 1, "]": now + 1, "[": now - 1 }[event.key];
    if (to !== undefined) {
      const next = open[Math.min(open.length - 1, Math.max(0, to))];
      if (next) this.props.choose(next.at);
    } else if (event.key === "ArrowLeft" && node) {
      if (node.children && !this.folded.has(node.path)) this.fold(node);
      else if (node.parent) this.props.choose(node.parent.at);
    } else if (event.key === "ArrowRight" && node?.children) {
      if (this.folded.has(node.path)) this.fold(node);
    } else if (event.key === "Enter" && node) {
      if (valueText(node, this.props.data).length > LONG) { this.whole.add(node.path); this.forceUpdate(); }
      else if (node.children) this.fold(node);
    } else if (event.key === "y" && node) copyText(valueText(node, this.props.data));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  render({ steps, label, chosen, others, marked }) {
    if (steps !== this.steps) this.take(steps);
    const open = this.open();
    const line = (index) => this.line(open[index], index, chosen, marked, others);
    return html`<${Lines} class="tree" role="tree" tabindex="0" aria-label=${label} count=${open.length} height=${LINE}
      look=${open.findIndex((node) => node.at === chosen)} of=${steps} line=${line} onKeyDown=${this.key} onMouseOver=${this.over}
      onClick=${this.clicked} aria-activedescendant=${chosen === null ? null : `node${chosen}`} />`;
  }
  line(node, index, chosen, marked, others) {
    const text = valueText(node, this.props.data);
    const other = others.get(node.path);
    const classes = ["field", node.at === chosen || (marked !== null && node.step === marked && !isPacked(node.value)) ? "on" : "", other !== undefined ? "changed" : ""].join(" ");
    const long = text.length > LONG && !this.whole.has(node.path);
    const shown = long ? cut(text, LONG) : text.slice(0, MOST_SHOWN);
    const kind = typeof node.value === "string" || node.value?.bytes !== undefined ? "string" : node.value === null ? "null" : "number";
    return html`<div key=${index} role="treeitem" id=${`node${node.at}`} data-node=${node.at} class=${classes} aria-level=${node.depth + 1}
      aria-selected=${node.at === chosen ? "true" : "false"} aria-expanded=${node.children ? String(!this.folded.has(node.path)) : null}
      style=${{ "--depth": String(node.depth) }}><span><i class="fold" aria-hidden="true">${node.children ? (this.folded.has(node.path) ? "▸" : "▾") : ""}</i>
      <span class="name">${node.name}</span> <span class=${kind}>${shown}</span>${node.word && html` <span class="dim">${node.word}</span>`}
      ${long && html` <span class="more">enter shows all ${text.length}</span>`}
      ${other !== undefined && html`<span class="to" aria-label="at the broker"> → </span><span class="new">${other}</span>`}</span>
      <span class="type" title=${node.type}>${node.type}</span><span class="o">${isPacked(node.value) ? "packed" : place(node)}</span></div>`;
  }
}

function place({ start, end }) {
  if (start === null) return "";
  return end - start > 1 ? `${start}–${end - 1}` : String(start);
}
