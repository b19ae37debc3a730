// Inside a pair of patches: similarity maps of a position, and what moving the second patch does.
import { drawCurve, lineColour } from "./curve.js";
import { drawPatch } from "./drawing.js";
import { element } from "./details.js";
import { drawMap, mapOf } from "./maps.js";
import { regionOf } from "./source.js";

const CHANGES = { turn: ["turn", "°"], right: ["shift right", " px"], down: ["shift down", " px"], octaves: ["scale", " octaves"] };
const STILL = { turn: 0, right: 0, down: 0, octaves: 0 };
const STRIDE = 4;

/** The region that is cut instead of `region` when patch B is moved; as PatchChange.apply of inside.py. */
function movedRegion(region, { turn, right, down, octaves }) {
  const [angle, scale, pixel] = [(turn * Math.PI) / 180, 2 ** octaves, 2 / 32];
  const [c, s] = [scale * Math.cos(angle), scale * Math.sin(angle)];
  const { x, y, xx, xy, yx, yy } = region;
  return {
    x: x + (xx * right + xy * down) * pixel, y: y + (yx * right + yy * down) * pixel,
    xx: xx * c + xy * s, xy: xy * c - xx * s, yx: yx * c + yy * s, yy: yy * c - yx * s,
  };
}

function colourMark(number) {
  const mark = element("i");
  mark.style.background = lineColour(number);
  return mark;
}

export class InsidePage {
  #found = null;
  #patches = null;
  #maps = null;
  #position = null;
  #moved = { ...STILL };
  #along = "turn";
  #loadedCurve = null;
  #asked = 0;
  #timer = 0;

  constructor(source, facts, fail) {
    Object.assign(this, { source, facts, fail });
    const find = (id) => document.getElementById(id);
    [this.chooseA, this.chooseB] = [find("inside-a"), find("inside-b")];
    [this.patchA, this.patchB] = [find("inside-patch-a"), find("inside-patch-b")];
    this.chooseA.addEventListener("change", () => this.#changed());
    this.chooseB.addEventListener("change", () => this.#changed());
    this.chooseB.disabled = !source.live;  // a saved page has the maps of its matches only
    this.patchA.addEventListener("pointerdown", (event) => this.#pointed(event));
    this.patchA.addEventListener("pointermove", (event) => event.buttons && this.#pointed(event));
    this.patchA.addEventListener("keydown", (event) => this.#key(event));
    this.maps = facts.views.map((name, number) => {
      const canvas = element("canvas", { width: 128, height: 128, role: "img", ariaLabel: `Similarity map of ${name}` });
      find("maps").append(element("figure", {}, canvas, element("figcaption", {}, colourMark(number), name)));
      return canvas;
    });
    this.sliders = Object.entries(facts.ranges).map(([name, most]) => {
      const input = element("input", { type: "range", min: -most, max: most, step: most / 20, value: 0 });
      const output = element("output");
      input.addEventListener("input", () => this.#slid(name, Number(input.value)));
      find("sliders").append(element("label", { className: "slider" }, element("span", { textContent: CHANGES[name][0] }), input, output));
      return { name, input, output };
    });
    find("sliders").append(element("button", { type: "button", textContent: "Back to the match", onclick: () => this.#still() }));
    new ResizeObserver(() => this.#drawCurve()).observe(find("curve"));
  }

  /** Matches to choose from: those shown, nearest first; one of them is opened. */
  open(found, patches, shown, match) {
    [this.#found, this.#patches, this.#loadedCurve] = [found, patches, null];
    const listed = shown.slice(0, 1000).includes(match) ? shown.slice(0, 1000) : [match, ...shown.slice(0, 999)];
    const options = () => listed.map((i, k) => element("option", { value: i, textContent: `of match ${shown.indexOf(i) < 0 ? k : shown.indexOf(i) + 1}` }));
    const same = element("option", { value: "same", textContent: "the same patch (A)" });
    this.chooseA.replaceChildren(...options());
    this.chooseB.replaceChildren(same, ...options());
    this.chooseA.value = this.chooseB.value = match;
    return this.#changed();
  }

  #end(side) {
    const { frames_a, frames_b, pairs } = this.#found.arrays;
    const choice = side && this.chooseB.value !== "same" ? this.chooseB.value : this.chooseA.value;
    const isA = !side || this.chooseB.value === "same";
    const index = pairs.data[2 * Number(choice) + (isA ? 0 : 1)];
    return { photo: this.#found.facts.photos[isA ? 0 : 1], side: isA ? 0 : 1, index, region: regionOf(isA ? frames_a : frames_b, index) };
  }

  #ends() {
    return [this.#end(0), this.#end(1)];
  }

  #changed() {
    if (!this.source.live) this.chooseB.value = this.chooseA.value;
    this.#moved = { ...STILL };
    this.#showSliders();
    return Promise.all([this.#load(), this.source.live ? this.#loadCurve() : null]);
  }

  async #load() {
    const number = ++this.#asked;
    const [a, b] = this.#ends();
    try {
      const moved = this.source.live ? { ...b, region: movedRegion(b.region, this.#moved) } : b;
      const maps = await this.source.maps(a, moved, this.facts.views, Number(this.chooseA.value), this.#found.facts.number);
      if (number !== this.#asked) return;
      this.#maps = maps;
      this.fail("");
    } catch (error) {
      if (number === this.#asked) this.fail(error.message);
      return;
    }
    this.#position ??= this.#n() * Math.floor(this.#n() / 2) + Math.floor(this.#n() / 2);
    this.draw();
  }

  /** Positions along a side of the patch. */
  #n() {
    return Math.sqrt(this.#maps.stored[0].shape.at(-1));
  }

  draw() {
    if (!this.#maps) return;
    const [a, b] = this.#ends();
    drawPatch(this.patchA, this.#patches[0], a.index);
    this.#drawPatchB(b);
    this.#drawPosition();
    this.maps.forEach((canvas, k) => drawMap(canvas, mapOf(this.#maps.stored[k], this.#maps.pair, this.#position)));
  }

  #drawPatchB(b) {
    const curve = this.#curve();
    const isMoved = Object.values(this.#moved).some((value) => value !== 0);
    if (isMoved && curve) drawPatch(this.patchB, curve.patches, this.#step(curve));
    else if (!isMoved) drawPatch(this.patchB, this.#patches[b.side], b.index);
    document.getElementById("inside-moved").textContent = isMoved ? ", moved" : "";
  }

  #drawPosition() {
    const n = this.#n();
    const [row, column] = [Math.floor(this.#position / n), this.#position % n];
    const pixel = this.patchA.width / (STRIDE * n);
    const half = this.facts.receptive_field / 2;
    const context = this.patchA.getContext("2d");
    const [x, y] = [(STRIDE * column + 0.5) * pixel, (STRIDE * row + 0.5) * pixel];
    for (const [style, width] of [["#000", 4], ["#ffb000", 2]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.strokeRect(x - half * pixel, y - half * pixel, 2 * half * pixel, 2 * half * pixel);
      context.beginPath();
      context.moveTo(x - 6, y);
      context.lineTo(x + 6, y);
      context.moveTo(x, y - 6);
      context.lineTo(x, y + 6);
      context.stroke();
    }
    document.getElementById("inside-position").textContent = `p = row ${row + 1}, column ${column + 1} of ${n} × ${n}; the box is what it sees`;
  }

  #pointed(event) {
    if (!this.#maps) return;
    const box = this.patchA.getBoundingClientRect();
    const n = this.#n();
    const cell = (share) => Math.min(Math.max(Math.round((share * STRIDE * n - 0.5) / STRIDE), 0), n - 1);
    this.#position = n * cell((event.clientY - box.top) / box.height) + cell((event.clientX - box.left) / box.width);
    this.draw();
  }

  #key(event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!moves[event.key] || !this.#maps) return;
    event.preventDefault();
    const n = this.#n();
    const [row, column] = [Math.floor(this.#position / n) + moves[event.key][0], (this.#position % n) + moves[event.key][1]];
    if (row < 0 || column < 0 || row >= n || column >= n) return;
    this.#position = n * row + column;
    this.draw();
  }

  // Moving patch B: the curve along a slider is asked for once, with the other sliders where they are.

  #curveKey() {
    const [a, b] = this.#ends();
    return JSON.stringify([this.#found.facts.photos.map(({ id }) => id), a.side, a.index, b.side, b.index, this.#along, this.#fixed()]);
  }

  #fixed() {
    return { ...this.#moved, [this.#along]: 0 };
  }

  #curve() {
    return this.#found && this.#loadedCurve?.key === this.#curveKey() ? this.#loadedCurve : null;
  }

  async #loadCurve() {
    const key = this.#curveKey();
    if (!this.#curve()) {
      const [a, b] = this.#ends();
      try {
        const { facts, arrays } = await this.source.curve(a, b, this.#along, this.#fixed());
        const cosines = Object.fromEntries(facts.views.map((name) => [name, arrays[name].data]));
        if (key !== this.#curveKey()) return;
        this.#loadedCurve = { key, values: arrays.values.data, cosines, patches: arrays.patches, unit: CHANGES[this.#along][1] };
      } catch (error) {
        this.fail(error.message);
        return;
      }
    }
    this.#drawCurve();
    if (this.#maps) this.#drawPatchB(this.#end(1));
  }

  #step(curve) {
    const value = this.#moved[this.#along];
    return curve.values.reduce((best, v, k) => (Math.abs(v - value) < Math.abs(curve.values[best] - value) ? k : best), 0);
  }

  #drawCurve() {
    const curve = this.#curve();
    const canvas = document.getElementById("curve");
    if (!curve || !canvas.clientWidth) return;
    drawCurve(canvas, curve, this.#moved[this.#along]);
    const step = this.#step(curve);
    const rows = Object.entries(curve.cosines).map(([name, line], number) =>
      element("tr", {}, element("th", {}, colourMark(number), name), element("td", { textContent: Number.isFinite(line[step]) ? line[step].toFixed(3) : "–" })));
    document.getElementById("curve-values").replaceChildren(element("caption", { textContent: "similarity (cosine) now" }), ...rows);
    document.getElementById("curve-words").textContent = `cosine of patch A and the moved patch B, along “${CHANGES[this.#along][0]}”`;
  }

  #slid(name, value) {
    this.#along = name;
    this.#moved = { ...this.#moved, [name]: Math.abs(value) < 1e-9 ? 0 : value };
    this.#showSliders();
    if (!this.#found) return;
    this.#drawCurve();
    if (this.#maps) this.#drawPatchB(this.#end(1));
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => Promise.all([this.#loadCurve(), this.#load()]), 60);
  }

  #still() {
    this.#moved = { ...STILL };
    this.#slid(this.#along, 0);
  }

  #showSliders() {
    for (const { name, input, output } of this.sliders) {
      input.value = this.#moved[name];
      output.textContent = `${Number(this.#moved[name].toFixed(2))}${CHANGES[name][1]}`;
    }
  }
}
