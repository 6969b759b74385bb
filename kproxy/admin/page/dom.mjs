// Drawing: `html` makes elements of templates, `changed()` draws the page again, once a frame at most.
//
// There are no hooks and no signals. State is plain objects; whoever changes one calls `changed()`.

import { Component, Fragment, createElement, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";
import { printable } from "./printable.mjs";

const SHOWN = ["title", "aria-label", "placeholder"]; // attributes that are read; values of fields stay as they are

const shown = (child) => (typeof child === "string" ? printable(child) : Array.isArray(child) ? child.map(shown) : child);

// Make an element in whose texts nothing is unseen.
function element(type, properties, ...children) {
  if (typeof type === "string" && properties) {
    for (const name of SHOWN) if (typeof properties[name] === "string") properties[name] = printable(properties[name]);
  }
  return createElement(type, properties, ...children.map(shown));
}

export const html = htm.bind(element);
export { Component, Fragment };

let draw = null;
let place = null;
let wanted = false;

// Draw what `root()` returns into `element` from now on.
export function mount(root, element) {
  draw = root;
  place = element;
  changed();
}

// Draw the page again before its next frame.
export function changed() {
  if (wanted || draw === null) return;
  wanted = true;
  requestAnimationFrame(drawNow);
}

// Draw the page at once, so that what a key opened has the focus before the next key.
export function drawNow() {
  wanted = false;
  render(draw(), place);
}

// Lines of which only those in sight are elements. `count` lines of `height` pixels; `line(number)` draws one.
// `look`: number of a line to bring into sight when it changes; `wide`: a class for the lines.
export class Lines extends Component {
  constructor() {
    super();
    this.state = { top: 0, room: 400 };
    this.element = null;
    this.keep = (element) => { this.element = element; };
    this.scrolled = () => this.setState({ top: this.element.scrollTop });
  }
  componentDidMount() {
    this.watch = new ResizeObserver(() => this.element && this.setState({ room: this.element.clientHeight }));
    this.watch.observe(this.element);
    this.bring();
  }
  componentDidUpdate(before) {
    if (before.look !== this.props.look || before.of !== this.props.of) this.bring();
  }
  componentWillUnmount() {
    this.watch.disconnect();
  }
  bring() {
    const { look, height, head = 0 } = this.props;
    const element = this.element;
    if (look === undefined || look === null || look < 0) return;
    const room = element.clientHeight - head;
    if (look * height < element.scrollTop) element.scrollTop = look * height;
    else if ((look + 1) * height > element.scrollTop + room) element.scrollTop = (look + 1) * height - room;
  }
  render({ count, height, line, children, head = 0, ...rest }) {
    delete rest.look;
    delete rest.of;
    const first = Math.max(0, Math.floor(this.state.top / height) - 4);
    const last = Math.min(count, Math.ceil((this.state.top + this.state.room) / height) + 4);
    const lines = [];
    for (let number = first; number < last; number++) lines.push(line(number));
    return html`<div ref=${this.keep} onScroll=${this.scrolled} ...${rest}>
      ${children}
      <div role="presentation" style=${{ height: `${count * height}px`, position: "relative" }}>
        <div role="presentation" class="lines" style=${{ transform: `translateY(${first * height}px)` }}>${lines}</div>
      </div>
    </div>`;
  }
}
