// The chosen match: both patches, its numbers, its rivals.
import { drawPatch } from "./drawing.js";

export function element(tag, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

function patchFigure(patches, index, size, label) {
  const canvas = element("canvas", { width: size, height: size, role: "img", ariaLabel: label });
  drawPatch(canvas, patches, index);
  return element("figure", {}, canvas, element("figcaption", { textContent: label }));
}

function rivalFigures(name, patches, rivals, distances, match) {
  const count = rivals.shape[1];
  const figures = [];
  for (let k = 0; k < count; k++) {
    const place = count * match + k;
    const distance = distances.data[place];
    if (distance < 2) figures.push(patchFigure(patches, rivals.data[place], 64, distance.toFixed(3)));
  }
  return element("div", { className: "rivals" }, element("h3", { textContent: `next nearest in ${name}` }), ...figures);
}

/** Show a match in `place`; patches: [of A, of B]. */
export function showDetails(place, found, match, patches, { inside, step, position }) {
  const { pairs, distances, ratios, agrees, rivals_a, rivals_a_distances, rivals_b, rivals_b_distances } = found.arrays;
  const [a, b] = pairs.data.subarray(2 * match, 2 * match + 2);
  const geometry = { homography: "homography", fundamental: "epipolar geometry" }[found.facts.geometry];
  const verdict = agrees.data[match] ? `agrees with the ${geometry}` : geometry ? `does not agree with the ${geometry}` : "no geometry was found";
  const rows = [["distance", distances.data[match].toFixed(3)], ["ratio", ratios.data[match].toFixed(3)], ["geometry", verdict]];
  const numbers = element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));
  const previous = element("button", { type: "button", textContent: "← previous", onclick: () => step(-1) });
  const next = element("button", { type: "button", textContent: "next →", onclick: () => step(1) });
  const look = element("button", { type: "button", id: "look-inside", textContent: "Look inside", onclick: inside });
  place.replaceChildren(
    element("div", { className: "heading" }, element("h2", { textContent: `Match ${position}` }), previous, next, look),
    element("div", { className: "pair" }, patchFigure(patches[0], a, 128, "A"), patchFigure(patches[1], b, 128, "B"), numbers),
    rivalFigures("B", patches[1], rivals_b, rivals_b_distances, match),
    rivalFigures("A", patches[0], rivals_a, rivals_a_distances, match),
  );
}
