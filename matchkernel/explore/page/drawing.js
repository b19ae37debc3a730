// Photos and matches on a canvas.
import { allowed, frameOf } from "./words.js";

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

export function endsOf(layout, found, match) {
  return [0, 1].map((side) => placed(layout, side, ...frameOf(found, match, side)));
}

const SHADE_SIDE = 48;
const LIT = 4;  // of its pixels around a match

/** For each photo a small picture that is dark where no match of the list lies. */
export function shadesOf(photos, found, matches) {
  return photos.map((photo, side) => {
    const scale = SHADE_SIDE / Math.max(photo.width, photo.height);
    const [width, height] = [Math.ceil(photo.width * scale), Math.ceil(photo.height * scale)];
    const dark = new Float32Array(width * height).fill(0.62 * 255);
    for (const match of matches) {
      const [x, y] = frameOf(found, match, side).map((value) => value * scale);
      for (let row = Math.max(0, Math.ceil(y - LIT)); row < Math.min(height, y + LIT); row++) {
        for (let column = Math.max(0, Math.ceil(x - LIT)); column < Math.min(width, x + LIT); column++) {
          const far = ((row - y) ** 2 + (column - x) ** 2) / LIT ** 2;
          if (far < 1) dark[row * width + column] *= 0.4 + 0.6 * far;  // several matches light a place up
        }
      }
    }
    return pictureOf(width, height, dark, (value) => value << 24);
  });
}

/** A picture of values, each of which has a pixel's four bytes. */
function pictureOf(width, height, values, pixel) {
  const image = new ImageData(width, height);
  new Uint32Array(image.data.buffer).set(values.map(pixel));
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
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
    const [dots, strokes] = [new Path2D(), new Path2D()];
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

/** A path in a colour, seen on dark and bright; dash: of its colour. */
export function outlined(context, path, colour, width, dash = []) {
  for (const [strokeStyle, lineWidth, pattern] of [["#000", 2.1 * width, []], [colour, width, dash]]) {
    Object.assign(context, { strokeStyle, lineWidth });
    context.setLineDash(pattern);
    context.stroke(path);
  }
  context.setLineDash([]);
}

function drawMarked(context, layout, photos, found, match, onScreen, view, colours) {
  const ends = endsOf(layout, found, match).map(onScreen);
  drawExpected(context, layout, photos[1], found, match, onScreen);
  const path = new Path2D(`M${ends[0].x} ${ends[0].y}L${ends[1].x} ${ends[1].y}`);
  ends.forEach(({ x, y }, side) => {
    const [xx, xy, yx, yy] = frameOf(found, match, side).subarray(2).map((value) => value * layout.sides[side].scale * view.scale);
    const corners = [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([u, v]) => [x + xx * u + xy * v, y + yx * u + yy * v]);
    path.addPath(new Path2D(`M${corners.join("L")}ZM${x} ${y}l${xx} ${yx}`));  // with its x axis, which shows how it is turned
  });
  outlined(context, path, colours.marked, 2.5);
  drawRivals(context, layout, found, match, onScreen, colours);
}

/** Rings where the next best of a match lie, with their difference. */
function drawRivals(context, layout, { arrays }, match, onScreen, colours) {
  context.font = "12px system-ui, sans-serif";
  ["a", "b"].forEach((letter, side) => {
    const { shape: [, many], data } = arrays[`rivals_${letter}`];
    for (let k = 0; k < many; k++) {
      const difference = arrays[`rivals_${letter}_distances`].data[many * match + k];
      if (difference >= 2) continue;
      const at = 6 * data[many * match + k];
      const { x, y } = onScreen(placed(layout, side, ...arrays[`frames_${letter}`].data.subarray(at, at + 2)));
      const ring = new Path2D();
      ring.arc(x, y, 7, 0, 7);
      outlined(context, ring, colours.marked, 2);
      const label = [difference.toFixed(3), x + 11, y - 2 + 13 * k];
      context.lineWidth = 3;
      context.strokeStyle = "#000";
      context.strokeText(...label);
      context.fillStyle = colours.marked;
      context.fillText(...label);
    }
  });
}

/** Where the others expect a match in B: a ring for a homography, else a dashed line. */
function drawExpected(context, layout, photo, found, match, onScreen) {
  const { geometry } = found.facts;
  if (!geometry) return;
  const [u, v, w] = allowed(found, match);
  const path = new Path2D();
  if (geometry === "homography") {
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
  outlined(context, path, "#fff", 1.8, [7, 5]);
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
  const gray = Uint32Array.from(patches.data.subarray(index * side * side, (index + 1) * side * side));
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(pictureOf(side, side, gray, (value) => value * 0x10101 | 255 << 24), 0, 0, canvas.width, canvas.height);
}

/** The context of a canvas, empty and as sharp as the screen. */
export function cleared(canvas) {
  const ratio = devicePixelRatio;
  Object.assign(canvas, { width: Math.round(canvas.clientWidth * ratio), height: Math.round(canvas.clientHeight * ratio) });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["agrees", "differs", "marked", "text", "soft", "rule"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
