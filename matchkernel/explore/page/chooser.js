// Which photos are looked at: chosen, dropped, the sample, or those of before a reload.
import { element, find } from "./details.js";

const KEY = "matchkernel photos";

export class Chooser {
  photos = [null, null];
  #last = Promise.resolve();

  /** changed(photos, urls) is called with new photos, either may be null; say(text) with what goes wrong. */
  constructor(source, facts, { changed, say }) {
    Object.assign(this, { source, facts, changed, say });
    this.boxes = ["a", "b"].map((letter) => find(`photo-${letter}`));
    this.inputs = this.boxes.map((box) => box.querySelector("input"));
    this.sampleButton = find("sample");
    this.sampleButton.onclick = () => this.sample();
    this.inputs.forEach((input, side) => {
      input.accept = "image/*,.heic,.heif,.tif,.tiff,.ppm,.pgm,.bmp";
      input.addEventListener("change", () => {
        if (input.files.length) this.upload(side, input.files[0]);
        input.value = "";  // the same file may be chosen again
      });
    });
    if (source.live) this.#takeDrops();
  }

  pick(side) {
    this.inputs[side].click();
  }

  /** Photos may be dropped anywhere: two are A and B, one belongs to the side it is dropped on. */
  #takeDrops() {
    const mark = (side) => this.boxes.forEach((box, k) => box.classList.toggle("dropping", side === k));
    addEventListener("dragover", (event) => { event.preventDefault(); mark(this.#sideOf(event)); });
    addEventListener("dragleave", (event) => event.relatedTarget || mark(-1));
    addEventListener("drop", (event) => {
      event.preventDefault();
      mark(-1);
      const files = [...event.dataTransfer.files];
      if (files.length > 1) files.slice(0, 2).forEach((file, side) => this.upload(side, file));
      else if (files.length) this.upload(this.#sideOf(event), files[0]);
    });
  }

  #sideOf(event) {
    const box = event.target.closest?.(".photo");
    if (box) return this.boxes.indexOf(box);
    const stage = event.target.closest?.(".stage");
    if (!stage) return this.photos[0] && !this.photos[1] ? 1 : 0;
    const { left, top, width, height } = stage.getBoundingClientRect();
    return Number(stage.classList.contains("stacked") ? event.clientY > top + height / 2 : event.clientX > left + width / 2);
  }

  /** One after the other: a new A empties B, which may have come with it. */
  upload(side, file) {
    return this.#last = this.#last.then(() => this.#upload(side, file));
  }

  async #upload(side, file) {
    const limit = this.facts.upload_bytes;
    if (file.size > limit) return this.say(`${file.name}: larger than ${limit / 2 ** 20} MiB, which is the limit`);
    this.boxes[side].querySelector(".name").textContent = `${file.name} …`;
    try {
      const photo = await this.source.upload(file);
      // Nobody asked for a new A with the old B, or for an own photo with one of the sample.
      const isNew = !side && this.photos[0];
      this.set(this.photos.map((old, k) => (k === side ? photo : isNew || old?.sample ? null : old)));
    } catch (error) {
      this.say(error.message.replace("this file", () => file.name));
      this.#name();
    }
  }

  sample() {
    return this.#last = this.#last.then(async () => this.set(await this.source.sample())).catch(({ message }) => this.say(message));
  }

  /** The photos of before a reload, if the server still has them. */
  async restore() {
    let kept = null;
    try {
      kept = JSON.parse(sessionStorage.getItem(KEY));
    } catch { /* not ours, or no storage */ }
    if (!Array.isArray(kept) || kept.length !== 2 || !kept.some(Boolean)) return false;
    const there = await Promise.all(kept.map((photo) => !photo || this.source.has(photo)));
    if (!there.every(Boolean)) return false;
    this.set(kept);
    return true;
  }

  set(photos) {
    this.photos = photos;
    this.#name();
    try {
      if (this.source.live) sessionStorage.setItem(KEY, JSON.stringify(photos));
    } catch { /* no storage: a reload begins anew */ }
    this.changed(photos, photos.map((photo) => photo && this.source.picture(photo)));
  }

  #name() {
    this.photos.forEach((photo, side) => {
      const name = this.boxes[side].querySelector(".name");
      const shrunk = photo?.shrunk > 1 ? `, shrunk by ${photo.shrunk}` : "";
      name.replaceChildren(photo ? photo.name : "none yet", element("span", {}, photo ? `, ${photo.width} × ${photo.height}${shrunk}` : ""));
    });
    this.sampleButton.hidden = this.photos.every((photo) => photo?.sample);
  }
}
