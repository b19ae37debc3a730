// Similarity along one change of the second patch.
import { themeColours } from "./drawing.js";

const LINES = ["#0072b2", "#e69f00", "#cc79a7", "#009e73", "#d55e00", "#56b4e9", "#8c8c8c"];  // for colour-blind readers, too (Okabe and Ito)
const DASHES = [[], [8, 4], [2, 3], [], [8, 3, 2, 3], [2, 2, 6, 2], [4, 4]];

export function lineColour(number) {
  return LINES[number % LINES.length];
}

/** Draw curves: { values, cosines: { name: Float32Array } }, with a mark at one value. */
export function drawCurve(canvas, { values, cosines, unit }, value) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth || 640, canvas.clientHeight || 320];
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const context = canvas.getContext("2d");
  const colours = themeColours();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const [left, right, top, bottom] = [38, width - 10, 10, height - 32];
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
    context.beginPath();
    context.moveTo(left, y(v));
    context.lineTo(right, y(v));
    context.stroke();
    context.fillText(v.toFixed(1).replace("-0.0", "0.0"), left - 6, y(v) + 4);
  }
  context.textAlign = "center";
  for (const v of [first, first / 2, 0, last / 2, last]) context.fillText(`${Number(v.toFixed(2))}${unit}`, Math.min(Math.max(x(v), left), right - 14), bottom + 20);
  Object.values(cosines).forEach((line, number) => {
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
  context.beginPath();
  context.moveTo(x(value), top);
  context.lineTo(x(value), bottom);
  context.stroke();
}
