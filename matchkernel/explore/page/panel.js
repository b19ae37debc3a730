// One model's matches over the photos, with its sliders; two of them stand side by side.
import { countAgreeing, passing, ruleOf } from "./filter.js";
import { drawMatches, endsOf, layoutOf, matchAt, themeColours } from "./drawing.js";
import { asCsv, asJson, asPng, offer } from "./downloads.js";
import { element } from "./details.js";
import { Viewport } from "./viewport.js";

const NARROW = 560;

/** A slider without steps, which would round the limits of a model. */
function slider(name, most, change) {
  const input = element("input", { type: "range", min: 0, max: most, step: "any", value: most, oninput: change });
  const output = element("output");
  const label = element("label", { className: "slider" }, element("span", { textContent: name }), input, output);
  return { label, input, output };
}

function shownLimit(value, most) {
  return value >= most ? "any" : String(Number(value.toFixed(4)));
}

export class Panel {
  found = null;
  shown = [];
  chosen = null;
  asked = 0;  // requests so far; only the answer to the last one is shown
  #hovered = null;
  #images = [null, null];
  #photos = null;
  #layout = null;
  #drawing = 0;
  #width = 0;  // of the canvas when the photos were last fitted into it

  /** models: names to choose from; ask(): called when another is chosen; choose(panel, match) when a match is clicked. */
  constructor({ models, model, live, ask, choose, look }) {
    this.choose = choose;
    this.look = look;
    this.model = element("select", { onchange: ask }, ...models.map((name) => element("option", { value: name, textContent: name })));
    this.model.value = model;
    this.model.disabled = !live;
    this.words = element("p", { className: "words", ariaLive: "polite" });
    const label = "The photos and their matches. Arrow keys go from match to match.";
    this.canvas = element("canvas", { tabIndex: 0, role: "application", ariaLabel: label });
    this.ratio = slider("ratio below", 1, () => this.refilter());
    this.distance = slider("distance at most", 2, () => this.refilter());
    this.join = element("select", { onchange: () => this.refilter() }, element("option", { value: "both", textContent: "both" }), element("option", { value: "either", textContent: "either" }));
    this.onlyAgreeing = element("input", { type: "checkbox", onchange: () => this.refilter() });
    const files = { JSON: () => asJson(this.found, this.shown), CSV: () => asCsv(this.found, this.shown), PNG: () => asPng(this.#drawn()) };
    const buttons = Object.entries(files).map(([name, make]) => element("button", {
      type: "button", textContent: name, title: `Download as ${name}`,
      onclick: async () => this.found && offer(`matches-${this.found.facts.model}.${name.toLowerCase()}`, await make()),
    }));
    this.root = element("div", { className: "panel" },
      element("div", { className: "bar" }, element("label", {}, "model ", this.model), this.words),
      this.canvas,
      element("div", { className: "bar sliders" }, this.ratio.label, this.distance.label, element("label", {}, "tests ", this.join),
        element("label", { className: "check" }, this.onlyAgreeing, " inliers only"), element("span", { className: "files" }, "save ", ...buttons)));
    this.view = new Viewport(this.canvas, {
      change: () => this.draw(),
      hover: (place) => this.#hover(place),
      click: (place) => this.#click(place),
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#resized()).observe(this.canvas);
  }

  async setPhotos(photos, urls) {
    this.#photos = photos;
    this.#width = 0;
    this.found = null;
    this.shown = [];
    this.chosen = null;
    this.#images = [null, null];
    this.#resized();
    await Promise.all(urls.map(async (url, side) => {
      const image = element("img", { src: url });
      await image.decode();
      if (this.#photos === photos) this.#images[side] = image;
    }));
    this.draw();
  }

  wait(words) {
    this.words.textContent = words;
    this.root.dataset.state = "waiting";
  }

  show(found) {
    this.root.dataset.state = "shown";
    this.found = found;
    this.chosen = null;
    const rule = ruleOf(found.facts.limits);
    [this.ratio.input.value, this.distance.input.value, this.join.value] = [rule.ratio, rule.distance, rule.join];
    this.refilter();
  }

  fail(words) {
    this.root.dataset.state = "failed";
    this.words.textContent = words;
  }

  refilter() {
    const [ratio, distance] = [Number(this.ratio.input.value), Number(this.distance.input.value)];
    this.ratio.output.textContent = shownLimit(ratio, 1);
    this.distance.output.textContent = shownLimit(distance, 2);
    if (!this.found) return;
    this.shown = passing(this.found, { ratio, distance, join: this.join.value, onlyAgreeing: this.onlyAgreeing.checked });
    const { facts, arrays } = this.found;
    const counts = `${this.shown.length.toLocaleString("en")} of ${arrays.distances.data.length.toLocaleString("en")} matches`;
    const agree = `${countAgreeing(this.found, this.shown).toLocaleString("en")} inliers`;
    const geometry = facts.geometry ? `${agree} of a ${facts.geometry === "homography" ? "homography" : "fundamental matrix"}` : facts.reason;
    this.words.textContent = `${counts}, ${geometry} · ${facts.label}, ${facts.seconds.toFixed(2)} s`;
    this.words.title = facts.reason;
    this.draw();
  }

  /** Choose the next (1) or previous (-1) of the shown matches, nearest descriptors first. */
  step(by) {
    if (!this.shown.length) return;
    const at = this.shown.indexOf(this.chosen);
    const next = at < 0 ? (by > 0 ? 0 : this.shown.length - 1) : (at + by + this.shown.length) % this.shown.length;
    this.mark(this.shown[next]);
    this.choose(this, this.chosen);
  }

  mark(match) {
    this.chosen = match;
    if (match !== null) endsOf(this.#layout, this.found, match).forEach((end) => this.view.reveal(end));
    this.draw();
  }

  draw() {
    if (this.#drawing) return;
    this.#drawing = requestAnimationFrame(() => {
      this.#drawing = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, clientWidth, clientHeight);
    if (this.#layout) drawMatches(context, { ...this.#drawn(), marked: this.#hovered ?? this.chosen, view: this.view });
  }

  #drawn() {
    return { layout: this.#layout, images: this.#images, photos: this.#photos, found: this.found, shown: this.shown, colours: themeColours() };
  }

  #resized() {
    const width = this.canvas.clientWidth;
    if (!this.#photos || !width) return;
    this.canvas.classList.toggle("stacked", width < NARROW);
    if (width !== this.#width) {
      this.#width = width;
      this.#layout = layoutOf(this.#photos, width < NARROW);
      this.fit();
    }
    this.draw();
  }

  fit() {
    if (this.#layout) this.view.fit(this.#layout.width, this.#layout.height);
  }

  #hover(place) {
    const old = this.#hovered;
    this.#hovered = place && this.found ? matchAt(place, this.#layout, this.found, this.shown, this.view) : null;
    this.canvas.classList.toggle("over", this.#hovered !== null);
    if (this.#hovered === old) return;
    this.draw();
    const showing = this.#hovered ?? this.chosen;
    if (showing !== null) this.choose(this, showing);
  }

  #click(place) {
    const match = this.found ? matchAt(place, this.#layout, this.found, this.shown, this.view) : null;
    this.chosen = match;
    this.draw();
    if (match !== null) this.choose(this, match);
  }

  #key(event) {
    const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    const actions = { "+": () => this.view.zoom(1.25), "=": () => this.view.zoom(1.25), "-": () => this.view.zoom(0.8), 0: () => this.fit(), Enter: () => this.chosen !== null && this.look() };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.shiftKey && moves[event.key]) this.view.move(...moves[event.key]);
    else if (steps[event.key]) this.step(steps[event.key]);
    else if (actions[event.key]) actions[event.key]();
    else return;
    event.preventDefault();
  }
}
