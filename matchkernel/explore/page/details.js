// The chosen match: both patches, whether it fits and why it was made, its rivals.
import { drawPatch } from "./drawing.js";
import { NEARLY, count, fitOf, whyMatched } from "./words.js";

export const find = (id) => document.getElementById(id);

/** attributes: an object, or the class alone. */
export function element(tag, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(tag), attributes.at ? { className: attributes } : attributes);
  made.append(...children);
  return made;
}

export function button(textContent, onclick, attributes = {}) {
  return element("button", { type: "button", textContent, onclick, ...attributes });
}

/** Buttons to the next of the shown matches that agrees, and that does not (near ones last); chosen(): where they start. */
export function kindButtons({ facts, arrays }, shown, chosen, go) {
  const next = (agrees) => {
    const near = (i) => arrays.errors.data[i] < NEARLY;
    const list = shown.filter((i) => arrays.agrees.data[i] === agrees).sort((i, j) => near(i) - near(j));
    const [at, from] = [list, shown].map((all) => all.indexOf(chosen()));
    return (at < 0 ? list.find((i) => shown.indexOf(i) > from) : list[at + 1]) ?? list[0];
  };
  const kinds = [1, 0].filter((agrees) => facts.geometry && next(agrees) !== undefined);
  return kinds.map((agrees) => button(`Next that ${agrees ? "agrees" : "does not"}`, () => go(next(agrees))));
}

/** Without steps, which would round a model's limits. */
export function slider(name, most, change, options) {
  const input = element("input", { type: "range", min: 0, max: most, step: "any", value: most, oninput: change, ...options });
  const output = element("output");
  return { name, input, output, label: element("label", "slider", element("span", {}, name), input, output) };
}

function patchFigure(patches, index, size, label, caption = label) {
  const canvas = element("canvas", { width: size, height: size, role: "img", ariaLabel: label });
  drawPatch(canvas, patches, index);
  return element("figure", {}, canvas, element("figcaption", {}, caption));
}

function rivalFigures(name, patches, rivals, distances, match) {
  const figures = [];
  for (let k = 0; k < rivals.shape[1]; k++) {
    const place = rivals.shape[1] * match + k;
    const distance = distances.data[place];
    if (distance < 2) figures.push(patchFigure(patches, rivals.data[place], 64, `next best in ${name}, difference ${distance.toFixed(3)}`, distance.toFixed(3)));
  }
  return figures.length ? element("div", "rivals", element("h3", {}, `next best in ${name}, difference`), ...figures) : "";
}

function heading(title, model, step, ...buttons) {
  return element("div", {}, element("h2", {}, title), element("span", "note", `${model}most alike first`),
    element("div", "steps", button("←", () => step(-1), { ariaLabel: "Previous match" }), button("→", () => step(1), { ariaLabel: "Next match" }), ...buttons));
}

/** What to do before a match is chosen. */
export function showStart(place, buttons, step) {
  place.replaceChildren(heading("One match", "", step, ...buttons),
    element("p", {}, "Point at a line or a dot, or click it, to see both patches."));
}

/** Show a match in `place`; patches: [of A, of B]; at: its number, of: how many, most alike first. */
export function showDetails(place, found, match, patches, { inside, step, buttons, at, of, model }) {
  const { pairs, distances, ratios, rivals_a, rivals_a_distances, rivals_b, rivals_b_distances } = found.arrays;
  const [a, b] = pairs.data.subarray(2 * match, 2 * match + 2);
  const fit = fitOf(found, match);
  const rows = [["difference (smaller: more alike)", distances], ["ratio to the next best anywhere", ratios]];
  const numbers = element("dl", {}, ...rows.flatMap(([name, { data }]) => [element("dt", {}, name), element("dd", {}, data[match].toFixed(3))]));
  const focused = place.contains(document.activeElement) && document.activeElement.textContent;
  place.replaceChildren(
    heading(`Match ${count(at)} of ${count(of)}`, model, step, ...buttons, button("Look inside", inside, { id: "look-inside" })),
    element("p", { className: `fit ${fit.kind}`, role: "status" }, element("strong", {}, `${fit.title} `), fit.text),
    element("p", "note", `Yellow: this match; rings: its next best.${fit.kind && " White, dashed: where the others allow it."}`),
    element("div", "pair", patchFigure(patches[0], a, 128, "patch A"), patchFigure(patches[1], b, 128, "patch B"), numbers),
    element("p", "why", element("b", {}, "Why was it matched? "), whyMatched(found, match).join(" ")),
    element("div", "all-rivals", rivalFigures("B", patches[1], rivals_b, rivals_b_distances, match), rivalFigures("A", patches[0], rivals_a, rivals_a_distances, match)),
  );
  if (focused) [...place.querySelectorAll("button")].find((one) => one.textContent === focused)?.focus();
}
