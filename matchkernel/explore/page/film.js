// A strip of all matches, each by its two patches: a list box of which only the part in view is made.
import { drawPatch } from "./drawing.js";
import { element, kindButtons } from "./details.js";
import { SAID, fitOf } from "./words.js";

const STEP = 84;  // pixels from one match to the next
const SIDE = 32;

export class FilmStrip {
  #matches = [];
  #at = 0;

  constructor(root, chosen) {
    Object.assign(this, { root, chosen });
    this.track = element("div", { role: "presentation" });
    root.append(this.track);
    root.addEventListener("scroll", () => this.#draw());
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("click", (event) => {
      const frame = event.target.closest("[role=option]");
      if (frame) this.#choose(Number(frame.dataset.at));
    });
    new ResizeObserver(() => this.#draw()).observe(root);
  }

  show(found, patches, matches, match) {
    Object.assign(this, { found, patches });
    this.#matches = matches;
    this.#at = Math.max(0, matches.indexOf(match));
    this.track.style.width = `${STEP * matches.length}px`;
    this.track.replaceChildren();
    this.#reveal();
  }

  get buttons() {
    return kindButtons(this.found, this.#matches, () => this.#matches[this.#at], (match) => this.#choose(this.#matches.indexOf(match)));
  }

  #choose(at) {
    if (at < 0 || at >= this.#matches.length || at === this.#at) return;
    this.#at = at;
    this.#reveal();
    this.chosen(this.#matches[at]);
  }

  #reveal() {
    const middle = STEP * (this.#at + 0.5) - this.root.clientWidth / 2;
    const [left, right] = [STEP * this.#at, STEP * (this.#at + 1) - this.root.clientWidth];
    if (this.root.scrollLeft > left || this.root.scrollLeft < right) this.root.scrollLeft = middle;
    this.#draw();
  }

  #draw() {
    const { scrollLeft, clientWidth } = this.root;
    if (!clientWidth || !this.#matches.length) return;
    const first = Math.max(0, Math.floor(scrollLeft / STEP) - 2);
    const last = Math.min(this.#matches.length - 1, Math.ceil((scrollLeft + clientWidth) / STEP) + 2);
    const made = new Map([...this.track.children].map((frame) => [Number(frame.dataset.at), frame]));
    for (const [at, frame] of made) if (at < first || at > last) frame.remove();
    for (let at = first; at <= last; at++) if (!made.has(at)) this.track.append(this.#frame(at));
    for (const frame of this.track.children) frame.ariaSelected = Number(frame.dataset.at) === this.#at;
    this.root.setAttribute("aria-activedescendant", `film-${this.#at}`);
  }

  #frame(at) {
    const match = this.#matches[at];
    const { pairs } = this.found.arrays;
    const { kind } = fitOf(this.found, match);
    const frame = element("div", { role: "option", id: `film-${at}`, className: kind, ariaLabel: `Match ${at + 1}${kind && `, ${SAID[kind]}`}` },
      ...[0, 1].map((side) => {
        const canvas = element("canvas", { width: SIDE, height: SIDE });
        drawPatch(canvas, this.patches[side], pairs.data[2 * match + side]);
        return canvas;
      }), element("span", {}, at + 1));
    frame.dataset.at = at;
    frame.ariaSetSize = this.#matches.length;
    frame.ariaPosInSet = at + 1;
    frame.style.left = `${STEP * at}px`;
    return frame;
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.root.clientWidth / STEP) - 1);
    const last = this.#matches.length - 1;
    const to = { ArrowLeft: this.#at - 1, ArrowRight: this.#at + 1, PageUp: Math.max(0, this.#at - page), PageDown: Math.min(last, this.#at + page), Home: 0, End: last }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#choose(to);
  }
}
