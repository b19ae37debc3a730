// Similarity maps S_p(q): of position p of patch A with every position q of patch B.

// Viridis at nine places, between which colours are mixed.
const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

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
  const n = Math.sqrt(map.length);
  const [low, high] = [Math.min(...map), Math.max(...map)];
  const side = canvas.width;
  const image = new ImageData(side, side);
  const places = Array.from({ length: side }, (_, pixel) => Math.min(Math.max((((pixel + 0.5) * 4 * n) / side - 0.5) / 4, 0), n - 1));
  const pixels = new Uint32Array(image.data.buffer);
  for (let y = 0, k = 0; y < side; y++) {
    const row = Math.min(Math.floor(places[y]), n - 2);
    const down = places[y] - row;
    for (let x = 0; x < side; x++, k++) {
      const column = Math.min(Math.floor(places[x]), n - 2);
      const right = places[x] - column;
      const cell = row * n + column;
      const above = map[cell] + (map[cell + 1] - map[cell]) * right;
      const below = map[cell + n] + (map[cell + n + 1] - map[cell + n]) * right;
      pixels[k] = COLOURS[Math.round((255 * (above + (below - above) * down - low)) / (high - low || 1))];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Mark position p of n x n on a patch or a map that fills a canvas. */
export function drawCross(canvas, p, n, colour = "#fff") {
  const cell = canvas.width / n;
  const [x, y] = [(p % n) + 1 / 8, Math.floor(p / n) + 1 / 8].map((at) => at * cell);
  const context = canvas.getContext("2d");
  const arm = canvas.width / 22;
  for (const [style, width] of [["#000", arm / 1.4], [colour, arm / 3]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - arm, y);
    context.lineTo(x + arm, y);
    context.moveTo(x, y - arm);
    context.lineTo(x, y + arm);
    context.stroke();
  }
}

/** Thin lines of a coordinate system over a map: rings and rays about the centre, or a grid. */
export function drawSystem(canvas, polar) {
  const context = canvas.getContext("2d");
  const [side, middle] = [canvas.width, canvas.width / 2];
  context.strokeStyle = "rgba(255, 255, 255, 0.35)";
  context.lineWidth = side / 160;
  context.beginPath();
  for (let k = 1; k <= 3; k++) {
    if (polar) {
      context.moveTo(middle + (k * side) / 6, middle);
      context.arc(middle, middle, (k * side) / 6, 0, 7);
    } else {
      context.rect((k * side) / 4, -1, 0, side + 2);
      context.rect(-1, (k * side) / 4, side + 2, 0);
    }
  }
  for (let k = 0; polar && k < 4; k++) {
    const [x, y] = [Math.cos((k * Math.PI) / 4) * side, Math.sin((k * Math.PI) / 4) * side];
    context.moveTo(middle - x, middle - y);
    context.lineTo(middle + x, middle + y);
  }
  context.stroke();
}
