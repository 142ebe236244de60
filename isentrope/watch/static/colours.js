// Eight colours told apart by all common kinds of colour vision, after Okabe and Ito, for light and dark; from the ninth
// run on they come again with another dash.

const LIGHT = ["#0072b2", "#d55e00", "#008f68", "#b0559a", "#a87900", "#3d9bd4", "#7a2440", "#5d646d"];
const DARK = ["#58a9ec", "#f28a4f", "#3fcba2", "#e391c8", "#e6c04d", "#9fd8f7", "#e08aa6", "#b4bac3"];
const DASHES = [[], [9, 4], [3, 3], [12, 3, 3, 3]];
const dark = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => dark.matches;
export const onScheme = (act) => dark.addEventListener("change", act);
export const colourOf = (slot) => (isDark() ? DARK : LIGHT)[slot % LIGHT.length];
export const dashOf = (slot) => DASHES[Math.floor(slot / LIGHT.length) % DASHES.length];
export const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const PHASES = {
  descent: { light: "rgb(0 114 178 / .07)", dark: "rgb(88 169 236 / .09)", text: "descent" },
  eruption: { light: "rgb(213 94 0 / .15)", dark: "rgb(242 138 79 / .2)", text: "eruption" },
  subsidence: { light: "rgb(122 79 192 / .09)", dark: "rgb(185 155 242 / .12)", text: "subsidence" },
};
export const phaseColour = (name) => PHASES[name][isDark() ? "dark" : "light"];

export function faded(colour, share) {
  const [r, g, b] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  return `rgb(${r} ${g} ${b} / ${share})`;
}

// A short piece of a run's line, as it is drawn in the plots.
export function lineMark(slot) {
  const canvas = document.createElement("canvas");
  const scale = window.devicePixelRatio || 1;
  canvas.className = "mark";
  canvas.width = 26 * scale;
  canvas.height = 10 * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.strokeStyle = colourOf(slot);
  pen.lineWidth = 3;
  pen.setLineDash(dashOf(slot).map((length) => length * 0.7));
  pen.beginPath();
  pen.moveTo(0, 5);
  pen.lineTo(26, 5);
  pen.stroke();
  return canvas;
}
