// A plot as a file: SVG, drawn anew as lines and text; PNG, that picture at twice its size; CSV, the numbers.

import { axis } from "./axis.js";
import { colourOf, dashOf, styleOf } from "./colours.js";
import { fileName, save } from "./dom.js";
import { state } from "./state.js";

const SVG = "http://www.w3.org/2000/svg";
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const LEFT = 62, TOP = 40, RIGHT = 18, WIDTH = 720, HEIGHT = 320, ROW = 19;
const LETTERS = 90; // of a name

export const FORMS = {
  SVG: (card) => save(`${fileName(card.plot.key)}.svg`, "image/svg+xml", svgText(card.plot)),
  PNG: (card) => savePng(card.plot),
  CSV: (card) => save(`${fileName(card.plot.key)}.csv`, "text/csv", csvText(card.plot)),
};

// Runs, steps and values as they were measured or taken together; smoothing is for the eye and stays out.
export function csvText(plot) {
  const other = state.axis === "step" ? [] : [axis().title === "time" ? "seconds" : axis().title];
  const rows = [["run", "metric", "step", ...other, "value", "low", "high"]];
  for (const line of plot.numbers()) {
    const [lows, highs] = ends(plot, line);
    line.steps.forEach((step, at) => {
      if (line.y[at] === null || line.y[at] === undefined) return;
      rows.push([line.name, plot.key, step, ...(other.length ? [line.x[at]] : []), line.y[at], lows(step, at), highs(step, at)]);
    });
  }
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function ends(plot, line) {
  if (line.low) return [(_, at) => line.low[at], (_, at) => line.high[at]];
  return plot.ends(line).map((end) => (step) => {
    const at = end ? end.x.indexOf(step) : -1;
    return at < 0 ? null : end.y[at];
  });
}

// What a spreadsheet would take for a formula is given an apostrophe.
export function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@＝＋－＠\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// In light colours whatever the screen has, as on paper.
function onPaper(draw) {
  document.documentElement.classList.add("printing");
  try {
    return draw();
  } finally {
    document.documentElement.classList.remove("printing");
  }
}

const svgText = (plot) => onPaper(() => new XMLSerializer().serializeToString(picture(plot)));

function picture(plot) {
  const u = plot.plot;
  const { lines, series, columns } = plot.layOut(); // anew: on the screen its colours may be the dark ones
  const height = TOP + HEIGHT + 46 + ROW * lines.length;
  const root = element("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, "font-family": FONT, "font-size": 12 });
  root.append(element("title", {}, plot.meta.shown), element("rect", { width: WIDTH, height, fill: styleOf("card") }));
  const unit = plot.meta.unit && plot.meta.unit !== "share" ? ` (${plot.meta.unit})` : "";
  root.append(element("text", { x: 16, y: 24, "font-size": 15, "font-weight": 600, fill: styleOf("ink") }, plot.meta.shown + unit + plot.suffix()));
  const box = { width: WIDTH - LEFT - RIGHT, height: HEIGHT };
  const x = (value) => LEFT + (u.valToPos(value, "x") / u.over.clientWidth) * box.width;
  const y = (value) => TOP + (u.valToPos(value, "y") / u.over.clientHeight) * box.height;
  root.append(...grid(u, x, y, box), ...shades(plot, x, box));
  const clip = element("clipPath", { id: "frame" });
  clip.append(element("rect", { x: LEFT - 5, y: TOP - 5, width: box.width + 10, height: box.height + 10 })); // whole marks at the ends
  const inside = element("g", { "clip-path": "url(#frame)", fill: "none", "stroke-linecap": "round", "stroke-linejoin": "round" });
  inside.append(...series.flatMap((one, at) => curve(one, columns[0], columns[at], x, y)), ...whiskers(plot, lines, x, y));
  root.append(clip, inside, ...lines.flatMap((line, row) => legend(line, TOP + HEIGHT + 52 + ROW * row)));
  return root;
}

function grid(u, x, y, box) {
  const parts = [];
  const soft = { fill: styleOf("soft") };
  const [across, up] = u.axes.map((one) => (one._splits || []).map((value, at) => [value, (one._values || [])[at]]).filter(([, text]) => text));
  for (const [value, text] of up) {
    parts.push(element("path", { d: `M${LEFT} ${fixed(y(value))}h${box.width}`, stroke: styleOf("rule") }));
    parts.push(element("text", { x: LEFT - 8, y: fixed(y(value) + 4), "text-anchor": "end", ...soft }, String(text)));
  }
  for (const [value, text] of across) {
    parts.push(element("path", { d: `M${fixed(x(value))} ${TOP}v${box.height}`, stroke: styleOf("rule") }));
    parts.push(element("text", { x: fixed(x(value)), y: TOP + HEIGHT + 18, "text-anchor": "middle", ...soft }, String(text)));
  }
  parts.push(element("text", { x: LEFT + box.width / 2, y: TOP + HEIGHT + 34, "text-anchor": "middle", ...soft }, axis().title));
  return parts;
}

const SHADES = { eruption: ["warm", 0.15], subsidence: ["cool", 0.12] };
function shades(plot, x, box) {
  return plot.phases().filter(([, , name]) => SHADES[name]).flatMap(([first, last, name]) => {
    const left = Math.max(LEFT, x(first));
    const right = Math.min(LEFT + box.width, x(last));
    const width = Math.max(0, right - left);
    const shade = element("rect", { x: fixed(left), y: TOP, width: fixed(width), height: box.height, fill: styleOf(SHADES[name][0]), "fill-opacity": SHADES[name][1] });
    return width > 6.2 * name.length + 10 ? [shade, element("text", { x: fixed(left + 6), y: TOP + box.height - 7, "font-size": 11, fill: styleOf("soft") }, name)] : shade;
  });
}

function curve(series, steps, values, x, y) {
  if (!series.width) return []; // the axis, or the end of an interval
  const points = steps.map((step, at) => [step, values[at]]).filter(([, value]) => value !== null && value !== undefined);
  const [stroke, opacity] = plain(series.stroke);
  const parts = [element("path", { d: path(points, x, y), stroke, "stroke-opacity": opacity, "stroke-width": series.width, "stroke-dasharray": (series.dash || []).join(" ") || "none" })];
  const line = series.line;
  if (line && line.seeds) {
    const band = (side) => line.x.map((step, at) => [step, line[side][at]]).filter(([, value]) => value !== null);
    const round = [...band("low"), ...band("high").reverse()];
    if (round.length) parts.unshift(element("path", { d: `${path(round, x, y)}Z`, fill: stroke, "fill-opacity": 0.16 }));
  }
  if (series.points.show) {
    parts.push(...points.map(([step, value]) => element("circle", { cx: fixed(x(step)), cy: fixed(y(value)), r: 3, stroke, "stroke-width": 1.5, fill: styleOf("card") })));
  }
  return parts;
}

function whiskers(plot, lines, x, y) {
  return lines.flatMap((line) => {
    const [lows, highs] = line.seeds ? [] : plot.ends(line);
    if (!lows || !highs) return [];
    return line.steps.flatMap((step, at) => {
      const [low, high] = [lows, highs].map((end) => end.y[end.x.indexOf(step)] ?? null);
      if (low === null || high === null) return [];
      return element("path", { d: `M${fixed(x(line.x[at]))} ${fixed(y(low))}V${fixed(y(high))}`, stroke: colourOf(line.slot), "stroke-opacity": 0.55, "stroke-width": 1.5 });
    });
  });
}

function legend(line, top) {
  const dash = dashOf(line.slot).join(" ") || "none";
  const mark = { d: `M${LEFT} ${top - 4}h34`, stroke: colourOf(line.slot), "stroke-width": 2.2, "stroke-dasharray": dash, "stroke-linecap": "round", fill: "none" };
  const name = line.name.length > LETTERS ? `${line.name.slice(0, LETTERS)}…` : line.name;
  return [element("path", mark), element("text", { x: LEFT + 44, y: top, fill: styleOf("ink") }, name)];
}

const fixed = (value) => Number(value.toFixed(1));
const path = (points, x, y) => points.map(([step, value], at) => `${at ? "L" : "M"}${fixed(x(step))} ${fixed(y(value))}`).join("");

// A colour without its opacity, and that: not every program that opens an SVG knows both in one.
function plain(colour) {
  const found = /^rgb\((\d+) (\d+) (\d+) \/ ([\d.]+)\)$/.exec(colour);
  return found ? [`#${found.slice(1, 4).map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`, Number(found[4])] : [colour, 1];
}

function savePng(plot) {
  const root = onPaper(() => picture(plot));
  const [width, height] = ["width", "height"].map((side) => Number(root.getAttribute(side)));
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${fileName(plot.key)}.png`, "image/png", blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(root))}`;
}
