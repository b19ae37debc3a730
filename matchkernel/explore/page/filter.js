// Which matches are shown: acts on all mutual nearest neighbours, in the browser.

/** Indices of the matches that pass, most alike first. rule: { ratio, distance, either }. */
export function passing(found, rule) {
  const { distances, ratios, kept } = found.arrays;
  const isChosen = found.facts.limits.kind === "adalam" ? (i) => kept.data[i] : () => true;
  const shown = [];
  for (let i = 0; i < distances.data.length; i++) {
    // As Filter in photos/match.py: a ratio must be below its limit, a distance may reach it; a slider at its end tests nothing.
    const distinct = rule.ratio >= 1 || ratios.data[i] < rule.ratio;
    const near = rule.distance >= 2 || distances.data[i] <= rule.distance;
    if ((rule.either ? distinct || near : distinct && near) && isChosen(i)) shown.push(i);
  }
  return shown.sort((i, j) => distances.data[i] - distances.data[j] || i - j);
}

export function agreeing(found, shown) {
  return shown.filter((i) => found.arrays.agrees.data[i]);
}

/** At most `amount` of the list, evenly chosen. */
export function evenly(list, amount) {
  if (list.length <= amount) return list;
  return Array.from({ length: amount }, (_, k) => list[Math.round((k * (list.length - 1)) / Math.max(amount - 1, 1))]);
}

/** Those that are drawn: an even choice of both kinds, in their proportion. */
export function drawnOf(found, shown, amount) {
  const [right, wrong] = [1, 0].map((agrees) => shown.filter((i) => found.arrays.agrees.data[i] === agrees));
  const rights = Math.round((amount * right.length) / (shown.length || 1));
  return [...evenly(right, rights), ...evenly(wrong, amount - rights)];
}
