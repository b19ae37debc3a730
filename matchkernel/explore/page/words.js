// What the numbers mean, in words.

// A yes of less significance is weak (results/look_alikes.json).
const WEAK = 22;
const CAUTION = "Repeated structure can look the same: of 316 pairs of photos that show different things, 29 were " +
  "taken for the same with the ratio test, 69 in context; all but one of each were parts of one façade built alike.";
const WEAK_CAUTION = `This yes is weak. Among look-alikes, 17 of 23 yeses with a significance below ${WEAK} were wrong.`;
const NEARLY = 9;  // pixels; up to 3 agree
const MOTIONS = { fundamental: "one camera motion", homography: "one flat scene, or one turn of the camera" };
const MODELS = { fundamental: "fundamental matrix", homography: "homography" };

export function count(number) {
  return number.toLocaleString("en");
}

/** The answer to: do these photos show the same thing? { kind, title, text, sure }. */
export function verdictOf(facts, shown, agreeing) {
  if (!facts.geometry) {
    const text = shown ? `${count(shown)} matches, but no more of them fit together than chance gives.` : "No point of one photo has a distinct partner in the other.";
    return { kind: "no", title: "No sign of the same scene.", text, sure: `${facts.reason}. Photos from very different places, at night or of plain surfaces can get a no although they show the same.` };
  }
  const kind = facts.significance < WEAK ? "perhaps" : "yes";
  const title = kind === "yes" ? "Same scene." : "Perhaps the same scene.";
  const often = kind === "yes" ? "chance practically never gives so many" : "more than chance gives, but places that look alike reach this, too";
  const text = `${count(agreeing)} of ${count(shown)} matches fit ${MOTIONS[facts.geometry]}: ${often}.`;
  const chance = `They fit a ${MODELS[facts.geometry]} (${facts.reason}). As many would agree by chance in one of 10^${Math.round(facts.significance)} pairs of unrelated photos.`;
  return { kind, title, text, sure: [chance, kind === "yes" ? "" : WEAK_CAUTION, CAUTION].join(" ") };
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Infinity;
}

function pixels(value) {
  return value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** Whether a match fits the others: { fits: true, false or null without a motion, title, text }. */
export function fitOf({ facts, arrays }, match) {
  if (!facts.geometry) return { fits: null, title: "Not known.", text: "No common motion was found, so nothing tells whether this match is right." };
  const place = facts.geometry === "homography" ? "ring" : "line";
  const error = arrays.errors.data[match];
  const fits = arrays.agrees.data[match] === 1;
  const title = fits ? "Agrees:" : error < NEARLY ? "Does not agree, a little off:" : "Does not agree, probably wrong:";
  const off = Number.isFinite(error) ? `${pixels(error)} px` : "far";
  const limit = fits ? `. Lying on the ${place} does not prove it right` : "; up to 3 px counts as agreeing";
  return { fits, title, text: `in B ${off} from the dashed ${place}, where the others allow it${limit}.` };
}

/** Why the descriptors took the two patches for the same: sentences, the most telling first. */
export function whyMatched({ arrays }, match) {
  const [distance, ratio] = [arrays.distances.data[match], arrays.ratios.data[match]];
  const right = median(arrays.distances.data.filter((_, i) => arrays.agrees.data[i]));
  const sentences = [];
  if (ratio > 0.85) sentences.push("Another place looks nearly the same (see the next best below), so the two are easily confused.");
  else if (ratio > 0.6) sentences.push("The next best place looks clearly less alike.");
  else sentences.push("Nothing else in the photos looks nearly as alike.");
  if (!arrays.agrees.data[match] && Number.isFinite(right)) {
    if (arrays.errors.data[match] < NEARLY) sentences.push("Perhaps it is the same thing, only located inaccurately.");
    else if (distance > 1.3 * right) sentences.push(`The patches look less alike than those of most matches that agree (${distance.toFixed(2)} against ${right.toFixed(2)}): the true partner may be hidden, or outside photo B.`);
    else sentences.push("The patches look as alike as those that agree: a repeated detail, a reflection, or something that moved.");
  }
  return sentences;
}
