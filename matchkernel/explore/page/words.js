// What the numbers mean, in words.

// A yes of less significance is weak (results/look_alikes_small.json).
const WEAK = 22;
const CAUTION = "Places built alike can: of 316 pairs of photos that show different things, 31 were " +
  "taken for the same (69 with “context”), all but one parts of one façade.";
const WEAK_CAUTION = `This yes is weak. Among look-alikes, 19 of 25 yeses with a significance below ${WEAK} were wrong.`;
export const NEARLY = 9;  // pixels; up to 3 agree
export const CONFUSED = 0.85;  // ratio to the next best elsewhere
const MOTIONS = { fundamental: "one camera motion", homography: "one flat scene, or one turn of the camera" };

export const SAID = { agrees: "agrees", differs: "does not agree" };

export function count(number) {
  return number.toLocaleString("en");
}

/** The answer to: do these photos show the same thing? { kind, title, text, sure }. */
export function verdictOf(facts, shown, agreeing, areConfused) {
  if (!facts.geometry) {
    const largest = /^[\d,]+(?= of)/.exec(facts.reason);
    const text = shown ? `${count(shown)} matches, but ${largest ? `the largest group that fits together is ${largest}; chance gives as many` : facts.reason}.` : "No point of one photo has a distinct partner in the other.";
    return { kind: "no", title: "No sign of the same scene.", text, sure: `Very different standpoints, night or plain surfaces can give a no for one place, too.` };
  }
  const kind = facts.significance < WEAK ? "perhaps" : "yes";
  const title = kind === "yes" ? "Same scene." : "Perhaps the same scene.";
  const often = kind === "yes" ? "chance practically never gives so many" : "more than chance gives, but places that look alike reach this, too";
  const text = `${count(agreeing)} of ${count(shown)} matches fit ${MOTIONS[facts.geometry]}: ${often}.${areConfused ? " Many of these are easily confused: some may join look-alike parts." : ""}`;
  const chance = `In numbers: ${facts.reason}, significance ${Math.round(facts.significance)}.`;
  return { kind, title, text, sure: `${kind === "yes" ? "Chance does not give this." : WEAK_CAUTION} ${CAUTION} ${chance}` };
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Infinity;
}

function pixels(value) {
  return value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** x, y and the shape row by row of an end of a match. */
export function frameOf({ arrays: { frames_a, frames_b, pairs } }, match, side) {
  const k = 6 * pairs.data[2 * match + side];
  return (side ? frames_b : frames_a).data.subarray(k, k + 6);
}

/** Where the others allow a match in B: on the line u x + v y + w = 0, or with a homography at u / w, v / w. */
export function allowed(found, match) {
  const [x, y] = frameOf(found, match, 0);
  return found.facts.matrix.map((row) => row[0] * x + row[1] * y + row[2]);
}

/** Whether that line misses photo B. */
function isOutside(found, match) {
  const { width, height } = found.facts.photos[1];
  const [u, v, w] = allowed(found, match);
  const sides = [w, w + u * width, w + v * height, w + u * width + v * height];
  return Math.min(...sides) > 0 || Math.max(...sides) < 0;
}

/** Whether a match fits the others: { kind: "agrees", "differs" or, without a motion, "", title, text }. */
export function fitOf(found, match) {
  const { facts, arrays } = found;
  if (!facts.geometry) return { kind: "", title: "Not known.", text: "No common motion was found, so nothing tells whether this match is right." };
  const place = facts.geometry === "homography" ? "ring" : "line";
  const error = arrays.errors.data[match];
  const fits = arrays.agrees.data[match] === 1;
  const title = fits ? `Agrees${arrays.confusions.data[match] > CONFUSED ? ", but easily confused" : ""}:` : error < NEARLY ? `Does not agree, but near the ${place}:` : "Does not agree, probably wrong:";
  const off = Number.isFinite(error) ? `${pixels(error)} px` : "far";
  const limit = place === "line" && isOutside(found, match) ? ". It passes beside photo B: the true partner is not in it" : fits ? `. Lying on the ${place} does not prove it right` : "; up to 3 px counts as agreeing";
  return { kind: fits ? "agrees" : "differs", title, text: `in B ${off} from the dashed ${place}, where the others allow it${limit}.` };
}

/** Why the descriptors took the two patches for the same: sentences, the most telling first. */
export function whyMatched({ arrays }, match) {
  const [distance, ratio] = [arrays.distances.data[match], arrays.confusions.data[match]];
  const right = median(arrays.distances.data.filter((_, i) => arrays.agrees.data[i]));
  const sentences = [];
  if (ratio > CONFUSED) sentences.push("Another place looks nearly the same (see the next best below), so the two are easily confused.");
  else if (ratio > 0.6) sentences.push("The next best place looks clearly less alike.");
  else sentences.push("Nothing else in the photos looks nearly as alike.");
  if (!arrays.agrees.data[match] && Number.isFinite(right)) {
    if (arrays.errors.data[match] < NEARLY) sentences.push("Perhaps the same thing, located inaccurately; perhaps another that lies near the place by chance.");
    else if (distance > 1.3 * right) sentences.push(`The patches look less alike than those of most matches that agree (${distance.toFixed(2)} against ${right.toFixed(2)}): the true partner may be hidden, or outside photo B.`);
    else sentences.push("The patches look as alike as those that agree: a repeated detail, a reflection, or something that moved.");
  }
  return sentences;
}
