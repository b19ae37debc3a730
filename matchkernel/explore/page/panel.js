// One model's answer: the verdict, a legend, the photos with their matches.
import { agreeing, drawnOf, passing } from "./filter.js";
import { cleared, drawMatches, endsOf, layoutFor, matchAt, shadesOf, themeColours } from "./drawing.js";
import { asCsv, asJson, asPng, offer } from "./downloads.js";
import { button, element, kindButtons, slider } from "./details.js";
import { Viewport } from "./viewport.js";
import { CONFUSED, count, verdictOf } from "./words.js";

const FIRST_LINES = 150;

function shownLimit(value, most) {
  return value >= most ? "any" : String(Number(value.toFixed(4)));
}

/** A check box that is also the legend of a colour. */
function key(name, change) {
  const input = element("input", { type: "checkbox", checked: true, onchange: change });
  const number = element("b");
  return { input, number, label: element("label", `key ${name}`, input, element("i"), number, name === "agrees" ? " agree" : " do not") };
}

export class Panel {
  found = null;
  shown = [];  // that pass the limits and are of a kind that is shown, most alike first
  drawn = [];  // those of them with a line
  chosen = null;
  asked = 0;  // requests so far; only the answer to the last one is shown
  #hovered = null;
  #images = [null, null];
  #photos = [null, null];
  #shades = null;
  #layout = null;
  #drawing = 0;
  #fitted = "";  // for what the photos were last fitted
  #amount = FIRST_LINES;

  /** models: names to choose from; ask() when another is chosen, choose(panel, match) when a match is; pick(side) chooses a photo. */
  constructor({ models, model, live, ask, choose, look, pick }) {
    this.choose = choose;
    this.look = look;
    this.model = element("select", { onchange: ask }, ...models.map((name) => new Option(name)));
    this.model.value = model;
    this.model.disabled = !live;
    this.words = element("p", { className: "verdict", role: "status" });
    this.small = element("div", "small");
    this.canvas = element("canvas", { tabIndex: 0, role: "application", ariaLabel: "Photos" });
    this.ratio = slider("ratio below", 1, () => this.refilter());
    this.distance = slider("difference at most", 2, () => this.refilter());
    this.lines = slider("lines", 1, () => this.#setAmount(), { step: 1 });
    this.keys = [key("differs", () => this.refilter()), key("agrees", () => this.refilter())];  // as arrays.agrees has them
    this.dim = element("input", { type: "checkbox", checked: true, onchange: () => this.refilter() });
    this.dimLabel = element("label", "check", this.dim, " dim where none agrees");
    this.legend = element("div", "legend", this.keys[1].label, this.keys[0].label);
    const files = { JSON: () => asJson(this.found, this.shown), CSV: () => asCsv(this.found, this.shown), PNG: () => asPng(this.#picture()) };
    const saving = element("div", "files", "save these matches: ", ...Object.entries(files).map(([name, make]) => button(
      name, async () => this.found && offer(`matches-${this.found.facts.model}.${name.toLowerCase()}`, await make()))));
    this.tools = element("div", "tools", this.lines.label, this.dimLabel, button("whole photos", () => this.fit()), saving);
    this.empty = ["A", "B"].map((name, side) => button(`Choose or drop photo ${name}`, () => pick(side), { className: `empty ${name.toLowerCase()}`, hidden: true }));
    this.stage = element("div", "stage", this.canvas, ...this.empty);
    this.root = element("section", { className: "panel", ariaLabel: `Matches by ${model}` },
      this.words, this.small, this.legend, this.stage, this.tools);
    this.controls = element("div", "bar", element("label", {}, "model ", this.model), this.ratio.label, this.distance.label);
    this.view = new Viewport(this.canvas, {
      change: () => this.draw(),
      hover: (place) => this.#hover(place),
      click: (place) => this.#click(place),
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.resized()).observe(this.stage);
  }

  /** Show photos without matches; either may be missing. */
  async setPhotos(photos, urls) {
    this.asked++;
    this.root.dataset.state = "";
    this.#photos = photos;
    this.#fitted = "";
    this.#clear();
    this.words.replaceChildren();
    this.#images = [null, null];
    this.empty.forEach((one, side) => { one.hidden = Boolean(photos[side]); });
    this.resized();
    await Promise.all(urls.map(async (url, side) => {
      if (!url) return;
      const image = element("img", { src: url });
      await image.decode();
      if (this.#photos === photos) this.#images[side] = image;
      this.draw();
    }));
  }

  #clear() {
    Object.assign(this, { found: null, shown: [], drawn: [], chosen: null });
    this.#hovered = this.#shades = null;
    this.small.replaceChildren();
    this.legend.hidden = this.tools.hidden = true;
    this.draw();
  }

  /** Say what is being done; what was found before stays until the answer. */
  wait(words) {
    this.root.dataset.state = "waiting";
    this.words.replaceChildren(element("strong", {}, `${words} …`), " ", element("progress", { ariaLabel: words }));
  }

  show(found) {
    this.root.dataset.state = "shown";
    this.found = found;
    this.chosen = this.#hovered = null;
    const { limits, photos, model } = found.facts;
    [this.ratio.input.value, this.distance.input.value] = [limits.ratio ?? 1, limits.distance ?? 2];
    this.ratio.label.hidden = limits.ratio === null;
    this.distance.label.hidden = limits.distance === null;
    this.legend.hidden = this.tools.hidden = false;
    this.dimLabel.hidden = !found.facts.geometry;
    this.root.ariaLabel = `Matches by ${model}`;
    this.canvas.ariaLabel = `Photos ${photos.map(({ name }) => name).join(" and ")} with their matches. Arrow keys go from match to match, plus and minus zoom.`;
    this.refilter();
    this.resized();
  }

  /** Nothing was found, for a reason: what was found before goes. */
  fail(words) {
    this.#clear();
    this.root.dataset.state = "failed";
    this.words.replaceChildren(element("strong", {}, "No matches."), ` ${words}`);
  }

  refilter() {
    const [ratio, distance] = [Number(this.ratio.input.value), Number(this.distance.input.value)];
    this.ratio.output.textContent = shownLimit(ratio, 1);
    this.distance.output.textContent = shownLimit(distance, 2);
    if (!this.found) return;
    const { facts, arrays } = this.found;
    const passed = passing(this.found, { ratio, distance, either: facts.limits.kind === "either" });
    const right = agreeing(this.found, passed);
    const counts = facts.passed && passed.length === arrays.kept.data.length ? facts.passed : [passed.length, right.length];
    [counts[0] - counts[1], counts[1]].forEach((number, agrees) => { this.keys[agrees].number.textContent = count(number); });
    this.#say(counts, right);
    this.shown = passed.filter((i) => this.keys[arrays.agrees.data[i]].input.checked);
    if (!this.shown.includes(this.chosen)) this.chosen = null;
    this.choose(this, this.chosen);
    this.#shades = facts.geometry && this.dim.checked ? shadesOf(this.#photos, this.found, right) : null;
    this.lines.input.max = this.shown.length;
    this.#chooseDrawn();
  }

  #say([passed, right], fitting) {
    const { facts, arrays } = this.found;
    const { kind, title, text, sure } = verdictOf(facts, passed, right, facts.geometry === "fundamental" && 3 * fitting.filter((i) => arrays.confusions.data[i] > CONFUSED).length > fitting.length);
    this.words.replaceChildren(element("strong", { className: kind, textContent: title }), ` ${text}`);
    const part = facts.passed && facts.passed[0] > arrays.kept.data.length ? ` · ${count(arrays.kept.data.length)} of them, evenly chosen, are in this file` : "";
    const open = this.small.querySelector("details")?.open ?? false;
    this.small.replaceChildren(element("details", { open }, element("summary", {}, "How sure is this?"), element("p", {}, sure)),
      element("span", {}, `${facts.label} · ${facts.seconds.toFixed(1)} s${part}`));
  }

  #setAmount() {
    this.#amount = Math.max(1, Number(this.lines.input.value));
    this.#chooseDrawn();
  }

  #chooseDrawn() {
    const amount = Math.min(this.#amount, this.shown.length);
    this.drawn = drawnOf(this.found, this.shown, amount);
    this.lines.input.value = amount;
    this.lines.output.textContent = `${count(amount)} of ${count(this.shown.length)}`;
    this.draw();
  }

  /** Choose the next (1) or previous (-1) of the shown matches, most alike first. */
  step(by) {
    if (!this.shown.length) return;
    const at = this.shown.indexOf(this.chosen);
    this.pick(this.shown[at < 0 ? (by > 0 ? 0 : this.shown.length - 1) : (at + by + this.shown.length) % this.shown.length]);
  }

  get buttons() {
    return kindButtons(this.found, this.shown, () => this.chosen, (match) => this.pick(match));
  }

  pick(match) {
    this.chosen = match;
    this.#hovered = null;
    endsOf(this.#layout, this.found, match).forEach((end) => this.view.reveal(end));
    this.draw();
    this.choose(this, match);
  }

  draw() {
    if (this.#drawing) return;
    this.#drawing = requestAnimationFrame(() => {
      this.#drawing = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const context = cleared(this.canvas);
    if (this.#layout) drawMatches(context, { ...this.#picture(), marked: this.#hovered ?? this.chosen, view: this.view });
  }

  #picture() {
    const { found, drawn } = this;
    return { layout: this.#layout, images: this.#images, photos: this.#photos, shades: this.#shades, found, drawn, colours: themeColours() };
  }

  /** Fit the photos again if the room for them has changed. */
  resized() {
    const width = this.stage.clientWidth;
    const room = Math.max(240, Math.round(document.documentElement.clientHeight * 0.7));
    const known = this.#photos.find(Boolean);
    if (!known || !width) return;
    const photos = this.#photos.map((photo) => photo ?? known);
    const fitted = `${width} ${room}`;
    if (fitted !== this.#fitted) {
      this.#fitted = fitted;
      this.#layout = layoutFor(photos, width, room);
      this.canvas.style.height = `${Math.round(Math.min(room, (width * this.#layout.height) / this.#layout.width))}px`;
      this.stage.classList.toggle("stacked", this.#layout.stacked);
      this.fit();
    }
    this.draw();
  }

  fit() {
    if (this.#layout) this.view.fit(this.#layout.width, this.#layout.height);
  }

  #matchAt(place) {
    return this.found ? matchAt(place, this.#layout, this.found, this.drawn, this.view) : null;
  }

  #hover(place) {
    const old = this.#hovered;
    this.#hovered = place && this.#matchAt(place);
    this.canvas.classList.toggle("over", this.#hovered !== null);
    if (this.#hovered === old) return;
    this.draw();
    const showing = this.#hovered ?? this.chosen;
    if (showing !== null) this.choose(this, showing);
  }

  #click(place) {
    this.chosen = this.#matchAt(place);
    this.draw();
    this.choose(this, this.chosen);
  }

  #key(event) {
    const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    const actions = { "+": () => this.view.zoom(1.25), "-": () => this.view.zoom(0.8), 0: () => this.fit(), Enter: () => this.chosen !== null && this.look() };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = moves[event.key];
    if (move) event.shiftKey ? this.view.move(...move) : this.step(move[0] + move[1] < 0 ? 1 : -1);
    else if (actions[event.key]) actions[event.key]();
    else return;
    event.preventDefault();
  }
}
