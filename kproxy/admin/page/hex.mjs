// The bytes of a frame, twelve a line as `kproxy show` has them, each with the field that it belongs to.

import { Component, html, Lines } from "./dom.mjs";
import { hex2 } from "./format.mjs";
import { isPacked } from "./tree.mjs";

const WIDTH = 12;
const LINE = 16;

// Return for each byte the step that it belongs to, the innermost one; -1: none.
export function owners(steps, length) {
  const found = new Int32Array(length).fill(-1);
  const order = steps.map((step, index) => index).filter((index) => !isPacked(steps[index][6])).sort((a, b) => (steps[b][1] - steps[b][0]) - (steps[a][1] - steps[a][0]));
  for (const index of order) {
    const [start, end] = steps[index];
    if (end <= length) found.fill(index, start, end);
    else if (start < length) found.fill(index, start, length);
  }
  return found;
}

const letter = (value) => (value >= 32 && value < 127 ? String.fromCharCode(value) : "·");

export class Hex extends Component {
  constructor() {
    super();
    this.at = (event) => {
      const step = event.target.closest("[data-step]")?.dataset.step;
      return step === undefined || step === "-1" ? null : Number(step);
    };
    this.over = (event) => {
      const step = this.at(event);
      if (step !== null) this.props.mark(step);
    };
    this.clicked = (event) => {
      const step = this.at(event);
      if (step !== null) this.props.chooseStep(step);
    };
    this.key = (event) => {
      const { marked, frame } = this.props;
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, "]": 1, "[": -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      let next = (marked ?? -1) + step;
      while (next > 0 && next < frame.steps.length && frame.steps[next][1] === frame.steps[next][0]) next += step;
      this.props.chooseStep(Math.min(frame.steps.length - 1, Math.max(0, next)));
    };
  }
  render({ frame, title, note, marked, changedSteps, kind = "" }) {
    const { data, owner } = frame;
    const count = Math.ceil(data.length / WIDTH);
    const look = marked === null || !frame.steps[marked] ? null : Math.floor(frame.steps[marked][0] / WIDTH);
    const run = (from, to, show) => {
      const parts = [];
      for (let at = from; at < to;) {
        let end = at + 1;
        while (end < to && owner[end] === owner[at]) end++;
        const classes = [owner[at] === marked ? "on" : "", changedSteps?.has(owner[at]) ? "changed" : ""].join(" ").trim();
        parts.push(html`<b class=${classes} data-step=${owner[at]}>${show(at, end)}</b>`, show === bytesOf ? " " : "");
        at = end;
      }
      return parts;
    };
    const bytesOf = (from, to) => Array.from(data.subarray(from, to), hex2).join(" ");
    const textOf = (from, to) => Array.from(data.subarray(from, to), letter).join("");
    const line = (index) => {
      const from = index * WIDTH, to = Math.min(data.length, from + WIDTH);
      return html`<div key=${index} class="bytes"><span class="o">${String(from).padStart(5)}</span>  ${run(from, to, bytesOf)}${" ".repeat((WIDTH - (to - from)) * 3)}${run(from, to, textOf)}</div>`;
    };
    return html`<div class=${`hex ${kind}`}><h3>${title} <span>${note}</span></h3>
      <${Lines} class="hx" role="group" tabindex="0" aria-label=${`Bytes: ${title}`} count=${count} height=${LINE} look=${look} of=${frame}
        line=${line} onMouseOver=${this.over} onClick=${this.clicked} onKeyDown=${this.key} /></div>`;
  }
}
