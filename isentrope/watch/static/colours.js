// Colours of lines and phases, from the variables of palette.css (isentrope/charts/style.py). They are told apart by all
// common kinds of colour vision, for light and dark.

const COLOURS = 8;
const dark = matchMedia("(prefers-color-scheme: dark)");

export const onScheme = (act) => dark.addEventListener("change", act);
export const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const colourOf = (slot) => styleOf(`s${slot % COLOURS}`);

// A line has a dash beside its colour. From the ninth run on colours come again, each with the next dash.
export function dashOf(slot) {
  const dash = styleOf(`d${(slot + Math.floor(slot / COLOURS)) % COLOURS}`);
  return dash === "none" || !dash ? [] : dash.split(" ").map(Number);
}

export const PHASES = { descent: ["soft", 0.05], eruption: ["warm", 0.15], subsidence: ["cool", 0.12] };
export const phaseColour = (name) => faded(styleOf(PHASES[name][0]), PHASES[name][1]);

export function faded(colour, share) {
  const [r, g, b] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  return `rgb(${r} ${g} ${b} / ${share})`;
}

// A short piece of a run's line, as it is drawn in the plots.
export function lineMark(slot) {
  const canvas = document.createElement("canvas");
  const scale = window.devicePixelRatio || 1;
  canvas.className = "mark";
  canvas.width = 34 * scale;
  canvas.height = 10 * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.strokeStyle = colourOf(slot);
  pen.lineWidth = 3;
  pen.lineCap = "round";
  pen.setLineDash(dashOf(slot).map((length) => length * 1.15));
  pen.beginPath();
  pen.moveTo(2, 5);
  pen.lineTo(32, 5);
  pen.stroke();
  return canvas;
}
