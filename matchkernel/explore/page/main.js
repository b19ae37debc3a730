// The page: tabs, panels, what is chosen in them.
import { Chooser } from "./chooser.js";
import { element, find, showDetails, showStart } from "./details.js";
import { InsidePage } from "./inside.js";
import { Panel } from "./panel.js";
import { openSource } from "./source.js";
import { count } from "./words.js";

const TABS = ["match", "inside", "results"];
function say(text) {
  const message = find("message");
  message.hidden = !text;
  message.querySelector("span").textContent = text;
}

/** Do some work; say what goes wrong. */
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    say(error.message);
  }
}

class Page {
  photos = [null, null];
  panels = [];
  last = null;  // { panel, match } whose details are shown

  constructor(source, facts) {
    Object.assign(this, { source, facts });
    this.inside = new InsidePage(source, facts, say, (match) => this.panels.find(({ shown }) => shown === this.opened.shown)?.pick(match));
    this.chooser = new Chooser(source, facts, { changed: (photos, urls) => this.setPhotos(photos, urls), say });
    find("message").querySelector("button").onclick = () => say("");
    find("tab-results").hidden = !facts.report;
    find("tab-inside").hidden = !source.live && !Object.keys(facts.views).length;
    for (const name of TABS) {
      const tab = find(`tab-${name}`);
      tab.onclick = () => this.open(name);
      tab.addEventListener("keydown", (event) => {
        const tabs = TABS.filter((one) => !find(`tab-${one}`).hidden);
        const by = { ArrowLeft: tabs.length - 1, ArrowRight: 1 }[event.key];
        if (by) this.open(tabs[(tabs.indexOf(name) + by) % tabs.length], true);
      });
    }
    document.body.classList.toggle("saved", !source.live);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.panels.forEach((panel) => panel.draw()));
    addEventListener("resize", () => this.panels.forEach((panel) => panel.resized()));
    addEventListener("keydown", (event) => this.#key(event));
    if (source.live) this.#prepareSettings();
    find("live-only").hidden = source.live;
  }

  /** ← and → go from match to match wherever they mean nothing else. */
  #key({ key, target }) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (by && !find("page-match").hidden && target.matches("body, button:not([role])")) (this.last?.panel ?? this.panels[0])?.step(by);
  }

  #prepareSettings() {
    find("filter").replaceChildren(...this.facts.filters.map((name) => new Option(name)));
    find("filter").value = "ratio";
    find("filter").onchange = () => this.matchAll();
    const points = find("keypoints");
    Object.assign(points, { value: this.facts.keypoints, max: this.facts.max_keypoints });
    points.onchange = () => {
      const [asked, low, high] = [points.value, points.min, points.max].map(Number);
      points.value = Math.round(Math.min(Math.max(asked, low), high));
      this.matchAll();
      say(Number(points.value) === asked ? "" : `Points per photo: from ${low} to ${count(high)}; ${count(Number(points.value))} are taken.`);
    };
    find("side-by-side").onchange = (event) => this.setPanels(event.target.checked ? 2 : 1);
  }

  open(name, focus = false) {
    for (const tab of TABS) {
      const isOpen = tab === name;
      Object.assign(find(`tab-${tab}`), { ariaSelected: isOpen, tabIndex: isOpen ? 0 : -1 });
      find(`page-${tab}`).hidden = !isOpen;
    }
    if (focus) find(`tab-${name}`).focus();
    if (name === "inside") this.lookInside();
    if (name === "results") this.showResults();
    if (name === "match") this.panels.forEach((panel) => panel.draw());
  }

  setPhotos(photos, urls) {
    Object.assign(this, { photos, urls });
    say("");
    this.#forget();
    this.panels.forEach((panel) => panel.setPhotos(photos, urls));
    this.lookInside();
    this.matchAll();
  }

  #forget() {
    this.last = null;
    find("details").replaceChildren();
  }

  setPanels(number) {
    const models = this.facts.models;
    const others = ["rootsift", ...models].filter((name) => name !== this.facts.model && models.includes(name));
    const starts = this.facts.starts ?? [this.facts.model, others[0]];
    while (this.panels.length > number) {
      const { root, controls } = this.panels.pop();
      root.remove();
      controls.remove();
    }
    if (this.last && !this.panels.includes(this.last.panel)) this.#start();
    while (this.panels.length < number) {
      const panel = new Panel({
        models, model: starts[this.panels.length], live: this.source.live, ask: () => this.match(panel),
        choose: (own, match) => this.choose(own, match), look: () => this.open("inside", true), pick: (side) => this.chooser.pick(side),
      });
      panel.number = this.panels.length;
      this.panels.push(panel);
      find("panels").append(panel.root);
      find("limits").append(panel.controls);
      panel.setPhotos(this.photos, this.urls ?? [null, null]);
      this.match(panel);
    }
    find("work").classList.toggle("two", number > 1);
  }

  matchAll() {
    this.panels.forEach((panel) => this.match(panel));
  }

  /** Find points, then compare them: two waits, each with its words. */
  async match(panel) {
    if (!this.photos.every(Boolean)) return;
    const number = ++panel.asked;
    const { photos } = this;
    const [a, b] = photos.map(({ id }) => id);
    const fields = { a, b, model: panel.model.value, keypoints: Number(find("keypoints").value), filter: find("filter").value };
    try {
      if (this.source.live) await this.#wait(panel, photos, fields.keypoints, () => panel.asked === number);
      if (panel.asked !== number) return;
      const found = await this.source.match(this.source.live ? fields : { number: panel.number });
      if (panel.asked !== number) return;
      found.facts.photos = photos;
      panel.show(found);
    } catch (error) {
      if (panel.asked !== number) return;
      if (!this.last || this.last.panel === panel) this.#forget();
      panel.fail(error.message);
    }
    this.lookInside();
  }

  async #wait(panel, photos, keypoints, isAsked) {
    panel.wait("Finding points");
    const points = await Promise.all(photos.map((photo) => this.source.patches(photo, keypoints)));
    if (isAsked()) panel.wait(`Comparing ${points.map(({ shape }) => count(shape[0])).join(" and ")} points`);
  }

  #start() {
    const panel = this.panels[0];
    this.last = null;
    if (!panel?.found) return;
    showStart(find("details"), panel.buttons, (by) => panel.step(by));
  }

  patches(found) {
    return Promise.all(this.photos.map((photo) => this.source.patches(photo, found.facts.keypoints)));
  }

  /** match: null for none. */
  choose(panel, match) {
    if (match === null) return (this.last?.panel ?? panel) === panel && this.#start();
    const found = panel.found;
    const last = this.last = { panel, match };
    return attempt(async () => {
      const patches = await this.patches(found);
      if (this.last !== last || panel.found !== found) return;
      showDetails(find("details"), found, match, patches, {
        inside: () => this.open("inside", true), step: (by) => panel.step(by), buttons: panel.buttons,
        at: panel.shown.indexOf(match) + 1, of: panel.shown.length, model: this.panels.length > 1 ? `${found.facts.model}, ` : "",
      });
    });
  }

  /** What the tab "Inside" shows, if it is open. */
  lookInside() {
    if (find("page-inside").hidden) return;
    const panel = this.last?.panel ?? this.panels[0];
    const match = this.last?.match ?? panel?.shown[0];
    const isMatched = panel?.found && match !== undefined;
    const missing = Object.keys(this.facts.views).length ? "" : "This needs torch: pip install 'matchkernel[torch]' (in a clone '.[torch]')";
    const words = isMatched ? missing : "There is no match to look into yet.";
    find("inside-all").hidden = Boolean(words);
    if (words) return Object.assign(find("inside-words"), { textContent: words, hidden: false });
    const { found, shown } = panel;
    if (this.opened?.shown === shown && this.opened.match === match) return this.inside.draw();
    this.opened = { shown, match };
    attempt(async () => {
      const patches = await this.patches(found);
      if (panel.found === found) await this.inside.open(found, patches, shown, match);
    });
  }

  showResults() {
    const place = find("results");
    if (place.children.length) return;
    const frame = element("iframe", { title: "Report" });
    frame.setAttribute("sandbox", "allow-same-origin");
    if (this.source.live) frame.src = "/results";
    else frame.srcdoc = this.source.report;
    place.append(frame);
  }
}

async function begin() {
  const source = await openSource();
  const facts = await source.facts();
  const page = window.matchkernel = new Page(source, facts);  // for tests and the console
  find("panels").replaceChildren();
  page.setPanels(facts.starts?.length ?? 1);
  if (source.live && await page.chooser.restore()) return;
  page.chooser.set(facts.pair);
}

attempt(begin);
