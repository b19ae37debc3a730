// Similarity along one change of the second patch.
import { element } from "./details.js";
import { cleared, themeColours } from "./drawing.js";

const LINES = ["#0072b2", "#e69f00", "#cc79a7", "#009e73", "#d55e00", "#56b4e9", "#8c8c8c", "#a58a00"];  // for colour-blind readers (Okabe and Ito)
const DASHES = [[9, 0], [8, 4], [2, 3], [9, 0], [8, 3, 2, 3], [2, 2, 6, 2], [4, 4]];

function lineColour(number) {
  return LINES[number % LINES.length];
}

export function lineMark(number) {
  const mark = element("i");
  let end = 0;
  const parts = DASHES[number % DASHES.length].map((length, k) => `${k % 2 ? "#0000" : lineColour(number)} ${end}px ${end += length}px`);
  mark.style.background = `repeating-linear-gradient(90deg, ${parts})`;
  return mark;
}

/** Draw curves with a mark at one value; names: of all lines, in the order of their colours. */
export function drawCurve(canvas, { values, cosines }, value, names) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const context = cleared(canvas);
  const colours = themeColours();
  const [left, right, top, bottom] = [38, width - 20, 10, height - 32];
  const [first, last] = [values[0], values[values.length - 1]];
  const least = Math.min(0, ...Object.values(cosines).flatMap((line) => [...line].filter(Number.isFinite)));
  const low = Math.floor(least * 5) / 5;
  const x = (v) => left + ((v - first) / (last - first)) * (right - left);
  const y = (v) => bottom - ((v - low) / (1 - low)) * (bottom - top);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colours.soft;
  context.strokeStyle = colours.rule;
  context.textAlign = "right";
  for (let v = low; v <= 1.001; v += 0.2) {
    context.stroke(new Path2D(`M${left} ${y(v)}H${right}`));
    context.fillText(v.toFixed(1).replace("-0.0", "0.0"), left - 6, y(v) + 4);
  }
  context.textAlign = "center";
  for (const v of [first, first / 2, 0, last / 2, last]) context.fillText(Number(v.toFixed(2)), x(v), bottom + 20);
  names.forEach((name, number) => {
    const line = cosines[name];
    if (!line) return;
    context.strokeStyle = lineColour(number);
    context.lineWidth = 2;
    context.setLineDash(DASHES[number % DASHES.length]);
    context.beginPath();
    line.forEach((cosine, k) => context.lineTo(x(values[k]), y(cosine)));
    context.stroke();
  });
  context.setLineDash([]);
  context.strokeStyle = colours.text;
  context.lineWidth = 1;
  context.stroke(new Path2D(`M${x(value)} ${top}V${bottom}`));
}
