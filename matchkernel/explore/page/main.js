// The page: tabs, photos, panels.
import { element, showDetails } from "./details.js";
import { InsidePage } from "./inside.js";
import { Panel } from "./panel.js";
import { openSource } from "./source.js";

const find = (id) => document.getElementById(id);
const TABS = ["match", "inside", "results"];

function say(text) {
  const message = find("message");
  message.hidden = !text;
  message.querySelector("span").textContent = text;
}

/** Do some work; say what goes wrong. */
async function attempt(work) {
  try {
    await work();
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
    this.inside = new InsidePage(source, facts, say);
    find("message").querySelector("button").addEventListener("click", () => say(""));
    TABS.forEach((name, k) => {
      find(`tab-${name}`).addEventListener("click", () => this.open(name));
      find(`tab-${name}`).addEventListener("keydown", (event) => {
        const by = { ArrowLeft: TABS.length - 1, ArrowRight: 1 }[event.key];
        if (by) this.open(TABS[(k + by) % TABS.length], true);
      });
    });
    document.body.classList.toggle("saved", !source.live);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.panels.forEach((panel) => panel.draw()));
  }

  open(name, focus = false) {
    for (const tab of TABS) {
      const isOpen = tab === name;
      find(`tab-${tab}`).setAttribute("aria-selected", isOpen);
      find(`tab-${tab}`).tabIndex = isOpen ? 0 : -1;
      find(`page-${tab}`).hidden = !isOpen;
    }
    if (focus) find(`tab-${name}`).focus();
    if (name === "inside") this.lookInside();
    if (name === "results") this.showResults();
    if (name === "match") this.panels.forEach((panel) => panel.draw());
  }

  // Photos

  prepareChooser() {
    for (const [side, letter] of ["a", "b"].entries()) {
      const box = find(`photo-${letter}`);
      const input = box.querySelector("input");
      input.addEventListener("change", () => input.files.length && this.upload(side, input.files[0]));
      box.addEventListener("dragover", (event) => { event.preventDefault(); box.classList.add("dropping"); });
      box.addEventListener("dragleave", () => box.classList.remove("dropping"));
      box.addEventListener("drop", (event) => {
        event.preventDefault();
        box.classList.remove("dropping");
        const files = [...event.dataTransfer.files];
        if (files.length > 1) files.slice(0, 2).forEach((file, k) => this.upload(k, file));
        else if (files.length) this.upload(side, files[0]);
      });
    }
    for (const event of ["dragover", "drop"]) addEventListener(event, (happened) => happened.preventDefault());
    find("chooser").addEventListener("submit", (event) => event.preventDefault());
    find("sample").addEventListener("click", () => this.sample());
    find("filter").replaceChildren(...this.facts.filters.map((name) => element("option", { value: name, textContent: name })));
    find("filter").value = "ratio";
    find("filter").addEventListener("change", () => this.matchAll());
    Object.assign(find("keypoints"), { value: this.facts.keypoints, max: this.facts.max_keypoints });
    find("keypoints").addEventListener("change", () => this.matchAll());
    find("side-by-side").addEventListener("change", (event) => this.setPanels(event.target.checked ? 2 : 1));
  }

  async upload(side, file) {
    const box = find(side ? "photo-b" : "photo-a");
    if (file.size > this.facts.upload_bytes) return say(`${file.name}: larger than ${this.facts.upload_bytes / 2 ** 20} MiB, which is the limit`);
    box.querySelector(".name").textContent = `${file.name} …`;
    try {
      const photo = await this.source.upload(file);
      say("");
      this.setPhotos(this.photos.map((old, k) => (k === side ? photo : old)));
    } catch (error) {
      say(error.message.replace("this file", file.name));
      this.nameBoxes();
    }
  }

  sample() {
    return attempt(async () => this.setPhotos(await this.source.sample()));
  }

  nameBoxes() {
    this.photos.forEach((photo, side) => {
      find(side ? "photo-b" : "photo-a").querySelector(".name").textContent = photo ? `${photo.name}, ${photo.width} × ${photo.height}` : "choose or drop a photo";
    });
  }

  setPhotos(photos) {
    this.photos = photos;
    this.last = null;
    find("details").replaceChildren();
    this.nameBoxes();
    if (!photos.every(Boolean)) return;
    this.urls = photos.map((photo) => this.source.picture(photo));
    this.panels.forEach((panel) => panel.setPhotos(photos, this.urls));
    this.matchAll();
  }

  // Panels

  setPanels(count) {
    const models = this.facts.models;
    const others = ["rootsift", ...models].filter((name) => name !== this.facts.model && models.includes(name));
    const starts = this.facts.starts ?? [this.facts.model, others[0]];
    while (this.panels.length > count) this.panels.pop().root.remove();
    while (this.panels.length < count) {
      const panel = new Panel({
        models, model: starts[this.panels.length], live: this.source.live,
        ask: () => this.match(panel), choose: (own, match) => this.choose(own, match), look: () => this.open("inside", true),
      });
      panel.number = this.panels.length;
      this.panels.push(panel);
      find("panels").append(panel.root);
      if (this.photos.every(Boolean)) {
        panel.setPhotos(this.photos, this.urls);
        this.match(panel);
      }
    }
    find("panels").classList.toggle("two", count > 1);
  }

  matchAll() {
    if (this.photos.every(Boolean)) this.panels.forEach((panel) => this.match(panel));
  }

  async match(panel) {
    if (!this.photos.every(Boolean)) return;
    const number = ++panel.asked;
    panel.wait(`${panel.model.value}: matching …`);
    const [a, b] = this.photos.map(({ id }) => id);
    const fields = { a, b, model: panel.model.value, keypoints: Number(find("keypoints").value), filter: find("filter").value };
    try {
      const found = await this.source.match(this.source.live ? fields : { number: panel.number });
      if (panel.asked !== number) return;
      found.facts.photos = this.photos;
      panel.show(found);
      say("");
      if (this.last?.panel === panel) this.last = null;
    } catch (error) {
      if (panel.asked !== number) return;
      panel.fail("no matches");
      say(error.message);
    }
  }

  patches(found) {
    return Promise.all(this.photos.map((photo) => this.source.patches(photo, found.facts.keypoints)));
  }

  choose(panel, match) {
    const found = panel.found;
    const last = this.last = { panel, match };
    return attempt(async () => {
      const patches = await this.patches(found);
      if (this.last !== last || panel.found !== found) return;
      const position = `${panel.shown.indexOf(match) + 1} of ${panel.shown.length}`;
      showDetails(find("details"), found, match, patches, {
        inside: () => this.open("inside", true), step: (by) => panel.step(by),
        position: this.panels.length > 1 ? `${position} of ${found.facts.model}` : position,
      });
    });
  }

  lookInside() {
    const panel = this.last?.panel ?? this.panels[0];
    const match = this.last?.match ?? panel?.shown[0];
    const isMatched = panel?.found && match !== undefined;
    const missing = this.facts.views.length ? "" : "Looking inside descriptors needs torch: pip install 'matchkernel[torch]'";
    find("inside-words").textContent = isMatched ? missing : "match two photos first";
    if (!isMatched || missing) return;
    if (this.opened?.found === panel.found && this.opened.match === match) return this.inside.draw();
    this.opened = { found: panel.found, match };
    attempt(async () => this.inside.open(panel.found, await this.patches(panel.found), panel.shown, match));
  }

  showResults() {
    const place = find("results");
    if (place.children.length) return;
    if (!this.facts.report) {
      place.append(element("p", {}, "No results were given. ", element("code", { textContent: "matchkernel evaluate … -o results/" }), " scores descriptors; ",
        element("code", { textContent: "matchkernel explore --results results/" }), " shows them here."));
      return;
    }
    const frame = element("iframe", { title: "Report of the results" });
    frame.setAttribute("sandbox", "allow-same-origin");
    if (this.source.live) frame.src = "/results";
    else frame.srcdoc = this.source.report;
    place.append(frame);
  }
}

async function begin() {
  const source = await openSource();
  const facts = await source.facts();
  const page = new Page(source, facts);
  if (source.live) page.prepareChooser();
  else {
    find("saved-note").hidden = false;
    find("saved-note").textContent = facts.note;
    find("live-only").hidden = false;
  }
  page.setPanels(facts.starts?.length ?? 1);
  if (facts.pair) page.setPhotos(facts.pair);
  else if (source.live) await page.sample();
  window.matchkernel = page;  // for tests and the console
}

attempt(begin);
