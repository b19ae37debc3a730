// Photos and matches on a canvas.
const GAP = 12;

/** Where two photos lie: beside each other, or one above the other; B is scaled to the side of A. */
export function layoutOf(photos, stacked) {
  const [a, b] = photos;
  const scaleB = stacked ? a.width / b.width : a.height / b.height;
  const offset = stacked ? { x: 0, y: a.height + GAP } : { x: a.width + GAP, y: 0 };
  const width = stacked ? a.width : a.width + GAP + b.width * scaleB;
  const height = stacked ? a.height + GAP + b.height * scaleB : a.height;
  return { width, height, sides: [{ x: 0, y: 0, scale: 1 }, { ...offset, scale: scaleB }] };
}

/** Place in the layout of a keypoint (the centre of the top-left pixel is 0, 0). */
function placeOf(layout, side, frames, index) {
  const { x, y, scale } = layout.sides[side];
  return { x: x + (frames.data[6 * index] + 0.5) * scale, y: y + (frames.data[6 * index + 1] + 0.5) * scale };
}

export function endsOf(layout, found, match) {
  const { frames_a, frames_b, pairs } = found.arrays;
  return [placeOf(layout, 0, frames_a, pairs.data[2 * match]), placeOf(layout, 1, frames_b, pairs.data[2 * match + 1])];
}

/** Draw photos, the shown matches, and one of them highlighted. view: { scale, x, y }. */
export function drawMatches(context, { layout, images, photos, found, shown, marked, view, colours }) {
  context.imageSmoothingEnabled = view.scale < 4;
  images.forEach((image, side) => {
    const { x, y, scale } = layout.sides[side];
    const [width, height] = [photos[side].width * scale, photos[side].height * scale];
    if (image) context.drawImage(image, view.x + x * view.scale, view.y + y * view.scale, width * view.scale, height * view.scale);
  });
  if (!found) return;
  const onScreen = ({ x, y }) => ({ x: x * view.scale + view.x, y: y * view.scale + view.y });
  for (const agrees of [0, 1]) {
    const dots = new Path2D();
    const strokes = new Path2D();
    for (const match of shown) {
      if (found.arrays.agrees.data[match] !== agrees) continue;
      const [from, to] = endsOf(layout, found, match).map(onScreen);
      strokes.moveTo(from.x, from.y);
      strokes.lineTo(to.x, to.y);
      for (const end of [from, to]) {
        dots.moveTo(end.x + 2, end.y);
        dots.arc(end.x, end.y, 2, 0, 7);
      }
    }
    context.strokeStyle = context.fillStyle = agrees ? colours.agrees : colours.differs;
    context.lineWidth = 1;
    context.globalAlpha = Math.min(0.6, Math.max(0.1, 120 / shown.length));  // many lines would hide the photos
    context.stroke(strokes);
    context.globalAlpha = 1;
    context.fill(dots);
  }
  if (marked !== null) drawMarked(context, layout, found, marked, onScreen, view, colours);
}

function drawMarked(context, layout, found, match, onScreen, view, colours) {
  const [from, to] = endsOf(layout, found, match).map(onScreen);
  for (const [style, width] of [[colours.halo, 5], [colours.marked, 2.5]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    for (const side of [0, 1]) {
      const frames = side ? found.arrays.frames_b : found.arrays.frames_a;
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

/** The shown match nearest to a place on the screen: by its ends within 14 pixels, else by its line within 5. */
export function matchAt(place, layout, found, shown, view) {
  let [best, least] = [null, Infinity];
  for (const match of shown) {
    const [from, to] = endsOf(layout, found, match).map(({ x, y }) => [x * view.scale + view.x, y * view.scale + view.y]);
    const ends = Math.min(Math.hypot(from[0] - place.x, from[1] - place.y), Math.hypot(to[0] - place.x, to[1] - place.y));
    const line = 14 + 2 * distanceToLine(place, from, to);
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

/** Colours of the page's theme. */
export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["agrees", "differs", "marked", "halo", "text", "soft", "rule", "page"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
