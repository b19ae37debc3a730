// Which matches are shown: acts on all mutual nearest neighbours, in the browser.

/** Indices of the matches that pass, nearest first. rule: { ratio, distance, join: "both" | "either", onlyAgreeing }. */
export function passing(found, rule) {
  const { distances, ratios, kept, agrees } = found.arrays;
  const isChosen = found.facts.limits.kind === "adalam" ? (i) => kept.data[i] : () => true;
  const shown = [];
  for (let i = 0; i < distances.data.length; i++) {
    // As Filter in photos/match.py: a ratio must be below its limit, a distance may reach it; a slider at its end tests nothing.
    const distinct = rule.ratio >= 1 || ratios.data[i] < rule.ratio;
    const near = rule.distance >= 2 || distances.data[i] <= rule.distance;
    const passes = rule.join === "either" ? distinct || near : distinct && near;
    if (passes && isChosen(i) && (!rule.onlyAgreeing || agrees.data[i])) shown.push(i);
  }
  return shown.sort((i, j) => distances.data[i] - distances.data[j] || i - j);
}

/** Where the sliders stand for the filter that the server used. */
export function ruleOf(limits) {
  const either = limits.kind === "either";
  return { ratio: limits.ratio ?? 1, distance: limits.distance ?? 2, join: either ? "either" : "both", onlyAgreeing: false };
}

export function countAgreeing(found, shown) {
  return shown.reduce((count, i) => count + found.arrays.agrees.data[i], 0);
}
