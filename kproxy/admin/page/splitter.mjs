// The line between list and details, moved by mouse and by arrow keys.

import { Component, html } from "./dom.mjs";

const KEY = "kproxy-details";
const LEAST = 120;

export function height() {
  return Math.max(LEAST, Math.min(innerHeight - 300, Number(localStorage.getItem(KEY)) || 374));
}

export class Splitter extends Component {
  constructor() {
    super();
    this.keep = (element) => { this.element = element; };
    this.down = (event) => {
      this.element.setPointerCapture(event.pointerId);
      this.from = { y: event.clientY, height: height() };
    };
    this.moved = (event) => {
      if (this.from) this.set(this.from.height + this.from.y - event.clientY);
    };
    this.up = () => { this.from = null; };
    this.key = (event) => {
      const step = { ArrowUp: 20, ArrowDown: -20 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.set(height() + step);
    };
  }
  componentDidMount() {
    this.set(height());
  }
  set(wanted) {
    const set = Math.max(LEAST, Math.min(innerHeight - 300, wanted));
    localStorage.setItem(KEY, String(Math.round(set)));
    this.element.parentElement.style.setProperty("--details", `${set}px`);
    this.element.setAttribute("aria-valuenow", String(Math.round(set)));
  }
  render() {
    return html`<div ref=${this.keep} class="splitter" role="separator" tabindex="0" aria-orientation="horizontal"
      aria-label="Height of the details" aria-valuemin=${LEAST} aria-valuemax="1000" onPointerDown=${this.down}
      onPointerMove=${this.moved} onPointerUp=${this.up} onKeyDown=${this.key}></div>`;
  }
}
