// Similarity maps S_p(q): of position p of patch A with every position q of patch B.

import { outlined } from "./drawing.js";

// Viridis at five places, as the bar beside the maps.
const VIRIDIS = [[68, 1, 84], [59, 81, 139], [33, 144, 141], [92, 200, 99], [253, 231, 37]];

/** S_p(q) of a pair of patches: row p of map `pair` of (M, n * n, n * n). */
export function mapOf({ shape, data }, pair, p) {
  const cells = shape[shape.length - 1];
  return data.subarray((pair * cells + p) * cells, (pair * cells + p + 1) * cells);
}

/** 256 colours of viridis, from the minimum to the maximum, each as the four bytes of a pixel. */
const COLOURS = Uint32Array.from({ length: 256 }, (_, k) => {
  const place = (k / 255) * (VIRIDIS.length - 1);
  const left = Math.min(Math.floor(place), VIRIDIS.length - 2);
  return VIRIDIS[left].reduce((pixel, from, c) => pixel | (Math.round(from + (VIRIDIS[left + 1][c] - from) * (place - left)) << (8 * c)), 255 << 24);
});

/** Draw a map over a canvas; cell i is centred on pixel 4 i of the patch, as display_map has it. */
export function drawMap(canvas, map) {
  const [n, side, low] = [Math.sqrt(map.length), canvas.width, Math.min(...map)];
  const scale = 255 / (Math.max(...map) - low || 1);
  const levels = map.map((value) => (value - low) * scale);
  const places = Array.from({ length: side }, (_, pixel) => Math.min(Math.max((((pixel + 0.5) * 4 * n) / side - 0.5) / 4, 0), n - 1));
  const cells = places.map((place) => Math.min(Math.floor(place), n - 2));
  const image = new ImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  for (let y = 0, k = 0; y < side; y++) {
    const [above, down] = [n * cells[y], places[y] - cells[y]];
    const line = levels.slice(above, above + n).map((level, c) => level + (levels[above + n + c] - level) * down);
    for (let x = 0; x < side; x++, k++) {
      const left = line[cells[x]];
      pixels[k] = COLOURS[(left + (line[cells[x] + 1] - left) * (places[x] - cells[x]) + 0.5) | 0];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Mark position p of n x n on a patch or a map that fills a canvas. */
export function drawCross(canvas, p, n, colour = "#fff") {
  const cell = canvas.width / n;
  const [x, y] = [(p % n) + 1 / 8, Math.floor(p / n) + 1 / 8].map((at) => at * cell);
  const arm = canvas.width / 22;
  outlined(canvas.getContext("2d"), new Path2D(`M${x - arm} ${y}h${2 * arm}M${x} ${y - arm}v${2 * arm}`), colour, arm / 3);
}

/** Thin lines of a coordinate system over a map: rings and rays about the centre, or a grid. */
export function drawSystem(canvas, polar) {
  const [side, middle] = [canvas.width, canvas.width / 2];
  const path = new Path2D(polar ? `M0 0l${side} ${side}M${side} 0l${-side} ${side}M${middle} 0v${side}M0 ${middle}h${side}` : "");
  for (const k of [1, 2, 3]) {
    path.moveTo(middle + (k * side) / 6, middle);
    if (polar) path.arc(middle, middle, (k * side) / 6, 0, 7);
    else path.addPath(new Path2D(`M${(k * side) / 4} 0v${side}M0 ${(k * side) / 4}h${side}`));
  }
  Object.assign(canvas.getContext("2d"), { strokeStyle: "rgba(255, 255, 255, 0.35)", lineWidth: side / 160 }).stroke(path);
}
