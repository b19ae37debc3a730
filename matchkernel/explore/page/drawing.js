// Photos and matches on a canvas.
const GAP = 12;
const LINES_DRAWN = 300;  // of more matches only the points are drawn: lines would hide the photos

/** Where two photos lie: beside each other, or one above the other; B is scaled to the side of A. */
function layoutOf(photos, stacked) {
  const [a, b] = photos;
  const scaleB = stacked ? a.width / b.width : a.height / b.height;
  const offset = stacked ? { x: 0, y: a.height + GAP } : { x: a.width + GAP, y: 0 };
  const width = stacked ? a.width : a.width + GAP + b.width * scaleB;
  const height = stacked ? a.height + GAP + b.height * scaleB : a.height;
  return { stacked, width, height, sides: [{ x: 0, y: 0, scale: 1 }, { ...offset, scale: scaleB }] };
}

/** Of both layouts the one that shows the photos larger in this room. */
export function layoutFor(photos, width, height) {
  const layouts = [layoutOf(photos, false), layoutOf(photos, true)];
  const [beside, above] = layouts.map((one) => Math.min(width / one.width, height / one.height));
  return layouts[above > 1.1 * beside ? 1 : 0];
}

/** Place in the layout of a point of a photo (the centre of the top-left pixel is 0, 0). */
function placed(layout, side, px, py) {
  const { x, y, scale } = layout.sides[side];
  return { x: x + (px + 0.5) * scale, y: y + (py + 0.5) * scale };
}

export function endsOf(layout, { arrays: { frames_a, frames_b, pairs } }, match) {
  return [frames_a, frames_b].map(({ data }, side) => {
    const k = 6 * pairs.data[2 * match + side];
    return placed(layout, side, data[k], data[k + 1]);
  });
}

const SHADE_SIDE = 96;

/** For each photo a small picture that is dark where no match of the list lies. */
export function shadesOf(photos, found, matches) {
  return photos.map(({ width, height }, side) => {
    const scale = SHADE_SIDE / Math.max(width, height);
    const canvas = new OffscreenCanvas(Math.ceil(width * scale), Math.ceil(height * scale));
    const context = canvas.getContext("2d");
    context.fillStyle = "rgba(0, 0, 0, 0.62)";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.globalCompositeOperation = "destination-out";
    context.fillStyle = "rgba(0, 0, 0, 0.5)";  // a single match does not light its surroundings up, several do
    const frames = found.arrays[side ? "frames_b" : "frames_a"];
    for (const match of matches) {
      const index = found.arrays.pairs.data[2 * match + side];
      context.beginPath();
      context.arc(frames.data[6 * index] * scale, frames.data[6 * index + 1] * scale, 7, 0, 7);
      context.fill();
    }
    return canvas;
  });
}

/** Draw photos, the drawn matches, and one of them highlighted. view: { scale, x, y }. */
export function drawMatches(context, { layout, images, photos, shades, found, drawn, marked, view, colours }) {
  photos.forEach((photo, side) => {
    if (!photo) return;
    const { x, y, scale } = layout.sides[side];
    const box = [view.x + x * view.scale, view.y + y * view.scale, photo.width * scale * view.scale, photo.height * scale * view.scale];
    context.imageSmoothingEnabled = view.scale < 4;
    if (images[side]) context.drawImage(images[side], ...box);
    context.imageSmoothingEnabled = true;
    if (shades) context.drawImage(shades[side], ...box);
  });
  if (!found) return;
  const onScreen = ({ x, y }) => ({ x: x * view.scale + view.x, y: y * view.scale + view.y });
  for (const agrees of [1, 0]) {
    const dots = new Path2D();
    const strokes = new Path2D();
    for (const match of drawn) {
      if (found.arrays.agrees.data[match] !== agrees) continue;
      const [from, to] = endsOf(layout, found, match).map(onScreen);
      strokes.moveTo(from.x, from.y);
      strokes.lineTo(to.x, to.y);
      for (const end of [from, to]) {
        dots.moveTo(end.x + 2.5, end.y);
        dots.arc(end.x, end.y, 2.5, 0, 7);
      }
    }
    context.strokeStyle = context.fillStyle = agrees ? colours.agrees : colours.differs;
    context.lineWidth = 1;
    context.globalAlpha = marked === null ? 0.55 : 0.18;
    if (drawn.length <= LINES_DRAWN) context.stroke(strokes);
    context.globalAlpha = 1;
    context.fill(dots);
  }
  if (marked !== null) drawMarked(context, layout, photos, found, marked, onScreen, view, colours);
}

function drawMarked(context, layout, photos, found, match, onScreen, view, colours) {
  const [from, to] = endsOf(layout, found, match).map(onScreen);
  drawExpected(context, layout, photos[1], found, match, onScreen, colours);
  for (const [style, width] of [["#000", 5], [colours.marked, 2.5]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    for (const side of [0, 1]) {
      const frames = found.arrays[side ? "frames_b" : "frames_a"];
      const index = found.arrays.pairs.data[2 * match + side];
      const [, , xx, xy, yx, yy] = frames.data.subarray(6 * index, 6 * index + 6);
      const centre = side ? to : from;
      const size = layout.sides[side].scale * view.scale;
      [[-1, -1], [1, -1], [1, 1], [-1, 1]].forEach(([u, v], corner) => {
        const place = [centre.x + (xx * u + xy * v) * size, centre.y + (yx * u + yy * v) * size];
        if (corner) context.lineTo(...place);
        else context.moveTo(...place);
      });
      context.closePath();
      context.moveTo(centre.x, centre.y);  // the patch's x axis, which shows its rotation
      context.lineTo(centre.x + xx * size, centre.y + yx * size);
    }
    context.stroke();
  }
}

/** Where the other matches expect the match in B: a ring for a homography, a dashed line for a fundamental matrix. */
function drawExpected(context, layout, photo, found, match, onScreen, colours) {
  const { geometry, matrix } = found.facts;
  if (!geometry) return;
  const { data } = found.arrays.frames_a;
  const k = 6 * found.arrays.pairs.data[2 * match];
  const [u, v, w] = matrix.map((row) => row[0] * data[k] + row[1] * data[k + 1] + row[2]);
  const path = new Path2D();
  if (geometry === "homography") {
    if (!(Math.abs(w) > 1e-9)) return;
    const { x, y } = onScreen(placed(layout, 1, u / w, v / w));
    path.arc(x, y, 9, 0, 7);
  } else {
    const at = Math.abs(v) > Math.abs(u)
      ? [[0, -w / v], [photo.width - 1, -(w + u * (photo.width - 1)) / v]]
      : [[-w / u, 0], [-(w + v * (photo.height - 1)) / u, photo.height - 1]];
    for (const [x, y] of at) {
      const end = onScreen(placed(layout, 1, x, y));
      path.lineTo(end.x, end.y);
    }
  }
  context.save();
  const [corner, opposite] = [placed(layout, 1, 0, 0), placed(layout, 1, photo.width, photo.height)].map(onScreen);
  context.beginPath();
  context.rect(corner.x, corner.y, opposite.x - corner.x, opposite.y - corner.y);
  context.clip();
  for (const [style, width, dash] of [["#000", 4, []], ["#ffffff", 1.8, [7, 5]]]) {
    context.setLineDash(dash);
    context.strokeStyle = style;
    context.lineWidth = width;
    context.globalAlpha = dash.length ? 1 : 0.45;
    context.stroke(path);
  }
  context.restore();
}

/** The drawn match nearest to a place: by its ends within 14 pixels, else by its line within 5. */
export function matchAt(place, layout, found, drawn, view) {
  let [best, least] = [null, Infinity];
  for (const match of drawn) {
    const [from, to] = endsOf(layout, found, match).map(({ x, y }) => [x * view.scale + view.x, y * view.scale + view.y]);
    const ends = Math.min(Math.hypot(from[0] - place.x, from[1] - place.y), Math.hypot(to[0] - place.x, to[1] - place.y));
    const line = drawn.length <= LINES_DRAWN ? 14 + 2 * distanceToLine(place, from, to) : Infinity;
    const distance = ends <= 14 ? ends : line <= 24 ? line : Infinity;
    if (distance < least) [best, least] = [match, distance];
  }
  return best;
}

function distanceToLine(place, [x0, y0], [x1, y1]) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const share = Math.min(1, Math.max(0, ((place.x - x0) * dx + (place.y - y0) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(place.x - x0 - share * dx, place.y - y0 - share * dy);
}

/** Draw row `index` of (K, 32, 32) gray patches over a whole canvas, pixels sharp. */
export function drawPatch(canvas, patches, index) {
  const side = patches.shape[1];
  const image = new ImageData(side, side);
  const gray = patches.data.subarray(index * side * side, (index + 1) * side * side);
  gray.forEach((value, k) => image.data.set([value, value, value, 255], 4 * k));
  const small = new OffscreenCanvas(side, side);
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["agrees", "differs", "marked", "text", "soft", "rule", "page"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
