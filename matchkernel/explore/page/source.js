// Where results come from: the server, or the data inside a saved page.
import { unpack } from "./bundle.js";
import { similarityMap, viewEncodings } from "./maps.js";

async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer: is matchkernel explore still running?");
  }
  if (answer.ok) return answer;
  const words = await answer.json().catch(() => ({}));
  throw new Error(words.error || `the server answered ${answer.status}`);
}

async function askedBundle(path, fields) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(fields) };
  return unpack(await (await asked(path, options)).arrayBuffer());
}

/** A region of a photo as the server takes it, of row `index` of frames (K, 6). */
export function regionOf(frames, index) {
  const [x, y, xx, xy, yx, yy] = frames.data.subarray(6 * index, 6 * index + 6);
  return { x, y, xx, xy, yx, yy };
}

export class LiveSource {
  live = true;
  #patches = new Map();

  async facts() {
    return (await asked("/api/models")).json();
  }

  async upload(file) {
    const type = file.type.startsWith("image/") ? file.type : "application/octet-stream";
    const answer = await asked("/api/photos", { method: "POST", headers: { "content-type": type }, body: file });
    return { ...(await answer.json()), name: file.name };
  }

  async sample() {
    return (await asked("/api/sample", { method: "POST" })).json();
  }

  picture(photo) {
    return `/api/photos/${photo.id}.jpg`;
  }

  match(fields) {
    return askedBundle("/api/match", fields);
  }

  /** (K, 32, 32) patches of all keypoints of a photo; the last four are kept. */
  patches(photo, keypoints) {
    const key = `${photo.id} ${keypoints}`;
    if (!this.#patches.has(key)) {
      const found = askedBundle("/api/patches", { photo: photo.id, keypoints }).then(({ arrays }) => arrays.patches);
      found.catch(() => this.#patches.delete(key));
      this.#patches.set(key, found);
      if (this.#patches.size > 4) this.#patches.delete(this.#patches.keys().next().value);
    }
    return this.#patches.get(key);
  }

  /** Similarity maps: { n, map(view, p) }, computed here from what each position contributes. */
  async maps(a, b, views) {
    const { arrays } = await askedBundle("/api/encodings", {
      a: a.photo.id, frame_a: a.region, b: b.photo.id, frame_b: b.region,
    });
    const parts = {};
    for (const [name, { shape, data }] of Object.entries(arrays)) {
      const half = data.length / 2;
      parts[name] = [0, 1].map((side) => ({ rows: shape[1], D: shape[2], data: data.subarray(side * half, (side + 1) * half) }));
    }
    const encodings = views.map(({ parts: names }) => viewEncodings(parts, names));
    return { n: Math.sqrt(encodings[0][0].rows), map: (view, p) => similarityMap(encodings[view], p) };
  }

  curve(a, b, along, fixed) {
    return askedBundle("/api/warp", { a: a.photo.id, frame_a: a.region, b: b.photo.id, frame_b: b.region, along, fixed });
  }
}

export class SavedSource {
  live = false;
  #all;

  static async open(text) {
    const packed = await (await fetchedBytes(text)).arrayBuffer();
    const source = new SavedSource();
    source.#all = unpack(packed);
    return source;
  }

  async facts() {
    return this.#all.facts.page;
  }

  picture(photo) {
    const { data } = this.#all.arrays[`jpeg.${photo.side}`];
    return URL.createObjectURL(new Blob([data], { type: "image/jpeg" }));
  }

  async match({ number }) {
    const prefix = `match${number}.`;
    const own = Object.entries(this.#all.arrays).filter(([name]) => name.startsWith(prefix));
    const arrays = Object.fromEntries(own.map(([name, array]) => [name.slice(prefix.length), array]));
    return { facts: this.#all.facts.matches[number], arrays };
  }

  async patches(photo) {
    return this.#all.arrays[`patches.${photo.side}`];
  }

  /** As LiveSource's, from bytes: the maps of every p of a match, each from its least to its most. */
  async maps(a, b, views, match, number) {
    const stored = views.map((_, view) => this.#all.arrays[`maps${number}.${view}`]);
    const cells = stored[0].shape[1];
    const map = (view, p) => stored[view].data.subarray((match * cells + p) * cells, (match * cells + p + 1) * cells);
    return { n: Math.sqrt(cells), map };
  }

  get report() {
    return this.#all.facts.report;
  }
}

function fetchedBytes(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

/** The source of this page: its own data if it was saved, the server otherwise. */
export async function openSource() {
  const saved = document.getElementById("saved");
  return saved ? SavedSource.open(saved.textContent.trim()) : new LiveSource();
}
