// Where results come from: the server, or the data inside a saved page.
const ARRAY_TYPES = { U8: Uint8Array, U16: Uint16Array, U32: Uint32Array, F32: Float32Array };

/** { facts, arrays } of an ArrayBuffer in safetensors' format (see page_files.py); each array is { shape, data }. */
function unpack(buffer) {
  const end = 8 + new DataView(buffer).getUint32(0, true);
  const { __metadata__: { facts }, ...table } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, end - 8)));
  const arrays = {};
  for (const [name, { dtype, shape, data_offsets: [start] }] of Object.entries(table)) {
    const count = shape.reduce((product, side) => product * side, 1);
    arrays[name] = { shape, data: new ARRAY_TYPES[dtype](buffer, end + start, count) };
  }
  return { facts: JSON.parse(facts), arrays };
}

async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer: is matchkernel explore still running?");
  }
  if (answer.ok) return answer;
  const content = await answer.json().catch(() => ({}));
  throw new Error(content.error || `the server answered ${answer.status}`);
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

class LiveSource {
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

  /** Similarity maps of a pair of patches, B changed: { view: (M, n * n, n * n) } of a model, and which of the M it is. */
  async maps(a, b, fixed, model) {
    const { arrays } = await askedBundle("/api/maps", { ...pairFields(a, b), fixed, model });
    return { views: arrays, pair: 0 };
  }

  curve(a, b, along, fixed, model) {
    return askedBundle("/api/warp", { ...pairFields(a, b), along, fixed, model });
  }

  /** Whether the server still has a photo. */
  async has(photo) {
    return (await fetch(this.picture(photo), { method: "HEAD" }).catch(() => ({ ok: false }))).ok;
  }
}

function pairFields(a, b) {
  return { a: a.photo.id, frame_a: a.region, b: b.photo.id, frame_b: b.region };
}

class SavedSource {
  live = false;
  #all;

  /** text: the bytes, packed by gzip, in base64. */
  static async open(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const source = new SavedSource();
    source.#all = unpack(await new Response(unpacked).arrayBuffer());
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

  async maps(a, b, fixed, model, pair, number) {
    const { views } = this.#all.facts.page;
    const own = Object.keys(views).filter((view) => views[view] === model);
    return { views: Object.fromEntries(own.map((view) => [view, this.#all.arrays[`maps${number}.${view}`]])), pair };
  }

  get report() {
    return this.#all.facts.report;
  }
}

/** The source of this page: its own data if it was saved, the server otherwise. */
export async function openSource() {
  const saved = document.getElementById("saved");
  return saved ? SavedSource.open(saved.textContent.trim()) : new LiveSource();
}
