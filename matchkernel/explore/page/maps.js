// Similarity maps S_p(q), computed from what each position contributes.

// Viridis at nine places, between which colours are mixed.
const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

/** The encodings of a view: the sum of its parts, [of A, of B]. */
export function viewEncodings(parts, names) {
  return [0, 1].map((side) => {
    const [first, ...others] = names.map((name) => parts[name][side]);
    const data = Float32Array.from(first.data);
    for (const { data: more } of others) more.forEach((value, k) => { data[k] += value; });
    return { ...first, data };
  });
}

/** (n * n) inner products of row p of A with every row of B. */
export function similarityMap([a, b], p) {
  const map = new Float32Array(b.rows);
  for (let q = 0; q < b.rows; q++) {
    let sum = 0;
    for (let k = 0; k < b.D; k++) sum += a.data[p * a.D + k] * b.data[q * b.D + k];
    map[q] = sum;
  }
  return map;
}

/** A colour of viridis, for a value from 0 to 1. */
export function viridis(value) {
  const place = Math.min(Math.max(value, 0), 1) * (VIRIDIS.length - 1);
  const k = Math.min(Math.floor(place), VIRIDIS.length - 2);
  return VIRIDIS[k].map((channel, c) => channel + (VIRIDIS[k + 1][c] - channel) * (place - k));
}

/** Draw a map over a canvas, from its least to its most; cell i is centred on pixel 4 i of the patch, as display_map has it. */
export function drawMap(canvas, map) {
  const n = Math.sqrt(map.length);
  const [least, most] = [Math.min(...map), Math.max(...map)];
  const side = canvas.width;
  const image = new ImageData(side, side);
  const at = (row, column) => map[row * n + column];
  const cellOf = (pixel) => Math.min(Math.max(((pixel + 0.5) * 4 * n / side - 0.5) / 4, 0), n - 1);
  for (let y = 0; y < side; y++) {
    const row = Math.min(Math.floor(cellOf(y)), n - 2);
    const down = cellOf(y) - row;
    for (let x = 0; x < side; x++) {
      const column = Math.min(Math.floor(cellOf(x)), n - 2);
      const right = cellOf(x) - column;
      const above = at(row, column) * (1 - right) + at(row, column + 1) * right;
      const below = at(row + 1, column) * (1 - right) + at(row + 1, column + 1) * right;
      const value = (above * (1 - down) + below * down - least) / (most - least || 1);
      image.data.set([...viridis(value), 255], 4 * (y * side + x));
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
