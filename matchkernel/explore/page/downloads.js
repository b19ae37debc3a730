// What is shown, as files.
import { drawMatches } from "./drawing.js";

const MAX_SIDE = 4000;

export function offer(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Keypoint k of a photo, in the pixels of its file: the page turns photos upright, and shrinks large ones. */
function pointOf({ to_file: [[a, b, c], [d, e, f]] }, frames, k) {
  const [x, y] = frames.data.subarray(6 * k, 6 * k + 2);
  return [a * x + b * y + c, d * x + e * y + f];
}

function points(photo, frames) {
  return Array.from({ length: frames.shape[0] }, (_, k) => pointOf(photo, frames, k));
}

/** As `matchkernel match --json`, with the matches that are shown. */
export function asJson({ facts, arrays }, shown) {
  const chosen = [...shown].sort((i, j) => i - j);
  const numbers = (name) => chosen.map((i) => arrays[name].data[i]);
  const content = {
    keypoints0: points(facts.photos[0], arrays.frames_a),
    keypoints1: points(facts.photos[1], arrays.frames_b),
    matches: chosen.map((i) => [arrays.pairs.data[2 * i], arrays.pairs.data[2 * i + 1]]),
    inliers: chosen.map((i) => arrays.agrees.data[i] === 1),
    distances: numbers("distances"),
    ratios: numbers("ratios"),
    geometry: facts.geometry,
    reason: facts.reason,
    significance: facts.significance,
    model: facts.file_matrix,
    descriptor: facts.model,
    engine: facts.engine,
  };
  return new Blob([JSON.stringify(content)], { type: "application/json" });
}

/** As `matchkernel match -o matches.csv`, with the matches that are shown. */
export function asCsv({ facts, arrays }, shown) {
  const lines = [...shown].sort((i, j) => i - j).map((i) => {
    const [a, b] = arrays.pairs.data.subarray(2 * i, 2 * i + 2);
    const places = [...pointOf(facts.photos[0], arrays.frames_a, a), ...pointOf(facts.photos[1], arrays.frames_b, b)];
    const numbers = [arrays.distances.data[i], arrays.ratios.data[i]];
    return [...places.map((value) => value.toFixed(4)), ...numbers.map((value) => value.toFixed(6)), arrays.agrees.data[i]].join(",");
  });
  return new Blob([["x0,y0,x1,y1,distance,ratio,inlier", ...lines, ""].join("\n")], { type: "text/csv" });
}

/** The photos with their matches, as large as they are. */
export async function asPng(drawn) {
  const scale = Math.min(1, MAX_SIDE / Math.max(drawn.layout.width, drawn.layout.height));
  const canvas = new OffscreenCanvas(Math.ceil(drawn.layout.width * scale), Math.ceil(drawn.layout.height * scale));
  drawMatches(canvas.getContext("2d"), { ...drawn, marked: null, view: { scale, x: 0, y: 0 } });
  return canvas.convertToBlob({ type: "image/png" });
}
