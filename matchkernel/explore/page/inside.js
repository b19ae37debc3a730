// Inside a pair of patches: similarity maps of a position, and what moving the second patch does.
import { drawCurve, lineMark } from "./curve.js";
import { drawPatch, outlined } from "./drawing.js";
import { button, element, find, slider } from "./details.js";
import { FilmStrip } from "./film.js";
import { agreeing, evenly } from "./filter.js";
import { drawCross, drawMap, drawSystem, mapOf } from "./maps.js";
import { regionOf } from "./source.js";
import { SAID, count, fitOf } from "./words.js";

const CHANGES = { turn: ["turn", "°"], right: ["shift right", " px"], down: ["shift down", " px"], octaves: ["scale", " octaves"] };
const STILL = { turn: 0, right: 0, down: 0, octaves: 0 };
const STRIDE = 4;
const ROOTSIFT = "RootSIFT";
const OTHERS = { match: "its match", next: "the next best in B", same: "patch A itself" };
const MANY = 20;  // matches of a mean
const HALVES = ["dual, polar half", "dual, Cartesian half"];
const ASKS = {  // by the first word of a view's part
  polar: "expects it at the same distance from the centre and the same angle, so a turn matters; gives way along rays, and along rings, more further out",
  Cartesian: "expects it at the same x and y; gives way along the axes, equally everywhere",
  both: "both added over all places, at length 1: the descriptor. It can be below both: what patches share in one half all but cancels the other's",
  fully: "no coordinates: it learned a weight for every place",
};

/** Mean and standard error of those that are finite. */
function meanOf(numbers) {
  const known = numbers.filter(Number.isFinite);
  const mean = known.reduce((sum, number) => sum + number / known.length, 0);
  const squares = known.reduce((sum, number) => sum + (number - mean) ** 2, 0);
  return [known.length ? mean : NaN, Math.sqrt(squares / (known.length - 1) / known.length)];
}

/** So that any first part is spread over the list. */
function mixed(list) {
  return list.map((_, k) => list[((list.length % 7 ? 7 : 5) * k) % list.length]);
}

/** "dual, polar half" -> "polar half" */
function partOf(view) {
  return view.slice(view.lastIndexOf(", ") + 2);
}

export class InsidePage {
  #found = null;
  #patches = null;
  #shown = [];
  #match = null;
  #views = [];  // names, those of the model that matched first
  #figures = new Map();
  #maps = null;  // { views: { name: array }, pair }
  #position = null;
  #moved = { ...STILL };
  #along = "turn";
  #loadedCurve = null;
  #asked = 0;
  #failed = "";
  #timer = 0;

  /** fail(text) says what goes wrong; opened(match) is called when another match is chosen in the strip. */
  constructor(source, facts, fail, opened) {
    Object.assign(this, { source, facts, fail });
    this.film = new FilmStrip(find("film"), (match) => {
      opened(match);
      this.#choose(match);
    });
    this.chooseB = find("inside-b");
    [this.patchA, this.patchB] = [find("inside-patch-a"), find("inside-patch-b")];
    this.chooseB.replaceChildren(...Object.entries(OTHERS).map(([value, text]) => new Option(text, value)));
    this.chooseB.onchange = () => this.#changed();
    this.chooseMean = find("inside-mean");
    this.chooseMean.onchange = () => this.#loadCurve();
    this.patchA.onpointerdown = (event) => this.#pointed(event);
    this.patchA.onpointermove = (event) => event.buttons && this.#pointed(event);
    this.patchA.onkeydown = (event) => this.#key(event);
    this.sliders = Object.entries(facts.ranges).map(([name, most]) => {
      const made = slider(CHANGES[name][0], most, () => this.#slid(name, Number(made.input.value)), { min: -most, step: most / 20, value: 0 });
      find("sliders").append(made.label);
      return { ...made, name };
    });
    find("sliders").append(button("Reset", () => this.#still()));
    new ResizeObserver(() => this.#drawCurve()).observe(find("curve"));
  }

  /** shown: of the strip, most alike first. */
  open(found, patches, shown, match) {
    if (this.#found !== found) this.#makeFigures(found.facts.model);
    [this.#found, this.#patches, this.#shown, this.#loadedCurve] = [found, patches, shown, null];
    this.film.show(found, patches, shown, match);
    find("inside-steps").replaceChildren(...this.film.buttons);
    return this.#choose(match);
  }

  /** A figure for each view, halves as a sum. */
  #makeFigures(matched) {
    const { views, compared } = this.facts;
    const models = [...new Set([matched, ...compared])].filter((model) => Object.values(views).includes(model));
    this.models = models;
    this.#views = [];
    this.#maps = null;
    this.#figures.clear();
    const group = (title, names, sums) => element("div", "group", element("h3", {}, title), element("div", {}, ...names.flatMap((name, k) => {
      const canvas = element("canvas", { width: 160, height: 160, role: "img", ariaLabel: `Similarity map of ${name}` });
      const number = this.#views.push(name) - 1;
      this.#figures.set(name, canvas);
      const figure = element("figure", {}, canvas, element("figcaption", {}, lineMark(number), element("b", {}, name), element("span", {}, ASKS[partOf(name).split(" ")[0]] ?? "")));
      return k && sums ? [element("span", "sign", k === names.length - 1 ? "=" : "+"), figure] : [figure];
    })));
    const viewsOf = (model) => Object.keys(views).filter((name) => views[name] === model);
    const rest = [];
    const groups = models.flatMap((model) => {
      const [names, title] = [viewsOf(model), model === matched ? `${model}, which matched these photos` : model];
      if (names.length > 1 || model === matched) return [group(title, names, true)];
      rest.push(...names);
      return [];
    });
    if (rest.length) groups.push(group("for comparison", rest));
    find("maps").replaceChildren(...groups);
    const words = find("inside-words");
    words.hidden = models.includes(matched);
    words.textContent = `${matched} matched these photos. It has no network to look into; others see this in the same patches.`;
  }

  #choose(match) {
    this.#match = match;
    const { kind } = fitOf(this.#found, match);
    find("inside-title").textContent = `Match ${count(this.#shown.indexOf(match) + 1)} of ${count(this.#shown.length)}${kind && `, ${SAID[kind]} with the others`}`;
    return this.#changed();
  }

  #ends(match = this.#match, chosen = this.chooseB.value) {
    const { frames_a, frames_b, pairs, rivals_b } = this.#found.arrays;
    return ["same", chosen].map((choice) => {
      const side = choice === "same" ? 0 : 1;
      const index = choice === "next" ? rivals_b.data[rivals_b.shape[1] * match] : pairs.data[2 * match + side];
      return { photo: this.#found.facts.photos[side], side, index, region: regionOf(side ? frames_b : frames_a, index) };
    });
  }

  #changed() {
    this.#moved = { ...STILL };
    this.#showSliders();
    return Promise.all([this.#load(), this.source.live ? this.#loadCurve() : null]);
  }

  /** The maps of all models, each drawn as soon as it is there. */
  async #load() {
    const number = ++this.#asked;
    const [a, b] = this.#ends();
    const views = {};
    try {
      const show = async (model) => {
        const maps = await this.source.maps(a, b, this.#moved, model, this.#match, this.#found.facts.number);
        if (number !== this.#asked) return;
        this.#maps = { views: Object.assign(views, maps.views), pair: maps.pair };
        this.#position ??= this.#n() + Math.floor(0.7 * this.#n());  // off the centre, where rings and rays differ from a grid
        this.draw();
      };
      await show(this.models[0]);
      await Promise.all(this.models.slice(1).map(show));
      if (this.#failed && number === this.#asked) this.fail(this.#failed = "");
    } catch (error) {
      if (number === this.#asked) this.fail(this.#failed = error.message);
    }
  }

  /** Positions along a side of the patch. */
  #n() {
    return Math.sqrt(Object.values(this.#maps.views)[0].shape.at(-1));
  }

  draw() {
    if (!this.#maps) return;
    const n = this.#n();
    drawPatch(this.patchA, this.#patches[0], this.#ends()[0].index);
    this.#drawPosition(n);
    this.#drawPatchB();
    for (const [name, stored] of Object.entries(this.#maps.views)) this.#drawMap(name, mapOf(stored, this.#maps.pair, this.#position), n);
  }

  #drawMap(name, map, n) {
    const canvas = this.#figures.get(name);
    const part = partOf(name);
    drawMap(canvas, map);
    if (/^(polar|Cartesian)/.test(part)) drawSystem(canvas, part.startsWith("polar"));
    drawCross(canvas, this.#position, n);
    const best = map.indexOf(Math.max(...map));
    canvas.ariaLabel = `Similarity map of ${name}: brightest at row ${Math.floor(best / n) + 1}, column ${(best % n) + 1}`;
  }

  #drawPatchB() {
    const b = this.#ends()[1];
    const curve = this.#curve();
    const isMoved = this.#isMoved;
    if (isMoved && curve?.patches) drawPatch(this.patchB, curve.patches, this.#step(curve));
    else if (!isMoved) drawPatch(this.patchB, this.#patches[b.side], b.index);
    drawCross(this.patchB, this.#position, this.#n(), "#ffb000");
    find("inside-moved").textContent = isMoved ? ", moved" : "";
  }

  #drawPosition(n) {
    const [row, column] = [Math.floor(this.#position / n), this.#position % n];
    const pixel = this.patchA.width / (STRIDE * n);
    const seen = this.facts.receptive_field * pixel;
    const [x, y] = [(STRIDE * column + 0.5) * pixel, (STRIDE * row + 0.5) * pixel].map((middle) => middle - seen / 2);
    outlined(this.patchA.getContext("2d"), new Path2D(`M${x} ${y}h${seen}v${seen}h${-seen}z`), "#ffb000", 1.5, [4, 4]);
    drawCross(this.patchA, this.#position, n, "#ffb000");
    find("inside-position").textContent = `p = row ${row + 1}, column ${column + 1} of ${n} × ${n}; dashed: what it sees`;
  }

  #pointed(event) {
    if (!this.#maps) return;
    const box = this.patchA.getBoundingClientRect();
    const cell = (share) => share * this.#n() - 0.5 / STRIDE;
    this.#move(cell((event.clientY - box.top) / box.height), cell((event.clientX - box.left) / box.width));
  }

  #key(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || !this.#maps) return;
    event.preventDefault();
    const n = this.#n();
    this.#move(Math.floor(this.#position / n) + step[0], (this.#position % n) + step[1]);
  }

  #move(...place) {
    const n = this.#n();
    const [row, column] = place.map((at) => Math.min(Math.max(Math.round(at), 0), n - 1));
    this.#position = n * row + column;
    this.draw();
  }

  #curveKey() {
    return JSON.stringify([this.#match, this.chooseB.value, this.chooseMean.value, this.#along, this.#fixed()]);
  }

  #fixed() {
    return { ...this.#moved, [this.#along]: 0 };
  }

  #curve() {
    return this.#found && this.#loadedCurve?.key === this.#curveKey() ? this.#loadedCurve : null;
  }

  async #loadCurve() {
    if (!this.#curve()) {
      const matches = this.chooseMean.value ? mixed(evenly(agreeing(this.#found, this.#shown), MANY)) : [this.#match];
      const curve = this.#loadedCurve = { key: this.#curveKey(), of: matches.length, lines: {}, levels: [] };  // lines[view][match]
      try {
        for (const match of new Set([this.#match, ...matches])) {
          const [a, b] = this.#ends(match);
          await Promise.all([...this.models, ROOTSIFT].map(async (model) => {
            const { facts, arrays } = await this.source.curve(a, b, this.#along, this.#fixed(), model);
            if (match === this.#match) Object.assign(curve, { values: arrays.values.data, patches: arrays.patches });
            if (matches.includes(match)) for (const name of facts.views) (curve.lines[name] ??= []).push(arrays[name].data);
            if (this.#curve() === curve) this.#drawCurve();
          }));
          if (this.chooseMean.value && matches.includes(match)) curve.levels.push(await this.#levels(match));
          if (this.#curve() !== curve) return;
        }
      } catch (error) {
        if (this.#loadedCurve === curve) this.#loadedCurve = null;
        this.fail(this.#failed = error.message);
        return;
      }
    }
    this.#drawCurve();
  }

  /** Cosines of HALVES, nothing moved: [of the match, of its next best in B]. */
  #levels(match) {
    return Promise.all(["match", "next"].map(async (choice) => {
      const { arrays } = await this.source.curve(...this.#ends(match, choice), "turn", STILL, "dual");
      return HALVES.map((name) => arrays[name].data[(arrays[name].data.length - 1) / 2]);
    }));
  }

  #step({ values }) {
    return Math.round(((this.#moved[this.#along] / values.at(-1) + 1) / 2) * (values.length - 1));
  }

  #drawCurve() {
    if (this.#maps) this.#drawPatchB();
    const curve = this.#curve();
    const canvas = find("curve");
    if (!curve?.values || !canvas.clientWidth) return;
    const names = [...this.#views, ROOTSIFT];
    const step = this.#step(curve);
    curve.cosines = Object.fromEntries(Object.entries(curve.lines).map(([name, lines]) => [
      name, lines[0].map((_, k) => meanOf(lines.map((line) => line[k]))[0])]));
    drawCurve(canvas, curve, this.#moved[this.#along], names);
    const rows = names.map((name, number) => {
      const cosine = curve.cosines[name]?.[step];
      return element("tr", {}, element("th", {}, lineMark(number), name), element("td", {}, Number.isFinite(cosine) ? cosine.toFixed(3) : "–"));
    });
    find("curve-values").replaceChildren(element("caption", {}, "cosine similarity now"), ...rows);
    find("curve-words").textContent = `Similarity (1: the same) along “${CHANGES[this.#along][0]}”. ${this.chooseMean.value ? this.#lostBy(curve, step) : "One match can mislead: see the mean."}`;
  }

  /** Which half loses more of its lead. */
  #lostBy({ lines, of, levels }, step) {
    if (of < 10) return "A mean needs 10 matches that agree.";
    if (levels.length < of) return `Mean of ${levels.length} of ${of} matches so far.`;
    const [mean, choice] = [`Mean of ${of} matches that agree`, this.chooseB.value];
    if (choice !== "match") return `${mean}, patch A with ${OTHERS[choice]}. “its match” tells which half loses more.`;
    if (!this.#isMoved) return "Move a slider to see which half loses more.";
    const [polar, cartesian] = HALVES.map((name, half) => {
      const leads = levels.map(([own, next]) => own[half] - next[half]);
      const losses = levels.map(([own], k) => own[half] - lines[name][k][step]);
      const lead = meanOf(leads)[0];
      const share = meanOf(losses)[0] / lead;
      return { share, lead, rests: losses.map((loss, k) => (loss - share * leads[k]) / lead) };
    });
    if (!(polar.lead > 0 && cartesian.lead > 0)) return "No lead over the next best to lose.";
    const more = polar.share - cartesian.share;
    const reach = (1.96 + 2.6 / (of - 1)) * meanOf(polar.rests.map((rest, k) => rest - cartesian.rests[k]))[1];
    const verdict = Math.abs(more) > reach ? `${more > 0 ? "polar" : "Cartesian"} loses more` : "no clear difference";
    const [p, c, d, low, high] = [polar.share, cartesian.share, more, more - reach, more + reach].map((part) => (100 * part).toFixed(0));
    return `${mean}, on this pair of photos: of its lead over the next best, polar loses ${p} %, Cartesian ${c} %: ${verdict} (${d} points; 95 % interval ${low} to ${high}).`;
  }

  get #isMoved() {
    return Object.values(this.#moved).some(Boolean);
  }

  #slid(name, value) {
    this.#along = name;
    this.#moved = { ...this.#moved, [name]: Math.abs(value) < 1e-9 ? 0 : value };
    this.#showSliders();
    if (!this.#found) return;
    this.#drawCurve();
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
