// Draws the charts of a page from their data. Drag over one for a part of the steps, click twice for all of them again;
// click a name in a legend to hide its curve.

import { colourOf, faded, onScheme, styleOf } from "./colours.js";
import { byId, h, hideTip, later, short, showTip } from "./dom.js";
import { axes, clipped, dragged, shade, upright, yRange } from "./frame.js";

const charts = [];
const zooms = {}; // by what the x axis counts: steps of the warm-up are not those of the run

const percents = (value) => `${(100 * value).toFixed(1)} %`;

function dashFor(colour) {
  const dash = styleOf(`d${colour % 8}`);
  return dash === "none" ? [] : dash.split(" ").map(Number);
}

// Columns and series for uPlot; what is told of a column stands in `of`.
function laidOut(panel, hidden) {
  const tables = [];
  const series = [{}];
  const bands = [];
  const of = [null];
  const put = (line, y, options, told = null) => {
    tables.push([panel.steps[line.steps], y]);
    series.push({ points: { show: false }, ...options });
    of.push(told);
  };
  const lines = panel.lines.filter((line) => !hidden.has(line.place));
  for (const line of lines.filter((one) => one.low)) {
    const edge = { stroke: faded(colourOf(line.color), 0), width: 0 };
    put(line, line.high, edge);
    put(line, line.low, edge);
    bands.push({ series: [series.length - 2, series.length - 1], fill: faded(colourOf(line.color), 0.14) });
  }
  for (const line of lines.filter((one) => one.raw)) {
    put(line, line.measured, { stroke: faded(colourOf(line.color), 0.32), width: 1 });
  }
  for (const line of lines) {
    const stroke = colourOf(line.color);
    const points = { show: Boolean(line.markers), size: 7, fill: styleOf("card"), stroke, width: 2 };
    put(line, line.y, { stroke, width: 2.2, dash: dashFor(line.color), cap: "round", points }, line);
  }
  return { columns: tables.length ? uPlot.join(tables) : [[], []], series: tables.length ? series : [{}, {}], bands, of };
}

// Layers of bars: each column is the sum up to its layer, the highest drawn first so that the lower ones cover it.
function stacked(panel, hidden) {
  const steps = panel.steps[0] || [];
  const sums = steps.map(() => 0);
  const layers = panel.lines.filter((line) => !hidden.has(line.place)).map((line) => {
    line.y.forEach((value, index) => { sums[index] += value || 0; });
    return [line, [...sums]];
  }).reverse();
  const paths = uPlot.paths.bars({ size: [0.84, 54] });
  const series = layers.map(([line]) => {
    const fill = faded(colourOf(line.color), 0.88);
    return { stroke: fill, fill, width: 0, paths, points: { show: false } };
  });
  return { columns: [steps, ...layers.map(([, column]) => column)], series: [{}, ...series], bands: [], of: [null, ...layers.map(([line]) => line)] };
}

// All of the panel's steps, with a little room on both sides; half a bar of it for bars.
function wholeRange(panel, bars) {
  const steps = panel.steps.flat();
  const low = steps.length ? steps.reduce((a, b) => Math.min(a, b)) : 0;
  const high = steps.length ? steps.reduce((a, b) => Math.max(a, b)) : 1;
  if (low === high) return [low - 1, high + 1];
  const room = bars ? (high - low) / (panel.steps[0].length - 1) / 2 : (high - low) * 0.012;
  return [low - room, high + room];
}

const rangeOf = (chart, panel) => zooms[panel.x_name] || wholeRange(panel, chart.data.bars);

function zoom(name, range) {
  if (range) zooms[name] = range;
  else delete zooms[name];
  for (const chart of charts) {
    for (const { panel, plot } of chart.plots) {
      if (panel.x_name === name) {
        const [min, max] = rangeOf(chart, panel);
        plot.setScale("x", { min, max });
      }
    }
  }
}

function told(chart, panel, laid, u) {
  const { left, top, idx } = u.cursor;
  if (left < 0 || idx === null || idx === undefined || !u.over.matches(":hover")) return;
  const x = u.data[0][idx];
  const shown = chart.data.shares ? percents : chart.data.bars ? (value) => `${short(value)} s` : short;
  const rows = laid.of.filter(Boolean).map((line) => {
    const at = panel.steps[line.steps].indexOf(x);
    const value = at < 0 ? null : (line.measured || line.y)[at];
    if (value === null) return null;
    const band = line.low && line.low[at] !== null && line.high[at] !== null ? ` (${shown(line.low[at])} to ${shown(line.high[at])})` : "";
    return ["tip-row", `${line.name}  ${shown(value)}${band}`, colourOf(line.color)];
  }).filter(Boolean);
  const near = panel.flags.filter(([step]) => Math.abs(u.valToPos(step, "x") - left) < 7).slice(0, 4);
  rows.push(...near.map(([step, number, text]) => ["tip-row alarm", `${number}: step ${step}, ${text}`]));
  const box = u.over.getBoundingClientRect();
  if (rows.length) showTip(box.left + left, box.top + top, `${panel.x_name} ${x}`, rows);
}

// Where a schedule changed, in words, and alarms by the numbers that they have on the page.
function events(u, panel) {
  const size = 6.5 * devicePixelRatio;
  const { ctx, bbox } = u;
  const inside = (x) => x >= bbox.left && x <= bbox.left + bbox.width;
  ctx.save();
  ctx.textBaseline = "middle";
  for (const [step, text] of panel.marks) {
    const x = u.valToPos(step, "x", true);
    if (!inside(x)) continue;
    upright(u, x, styleOf("soft"));
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.fillStyle = styleOf("soft");
    const fits = x + ctx.measureText(text).width + size < bbox.left + bbox.width;
    ctx.textAlign = fits ? "left" : "right";
    ctx.fillText(text, fits ? x + size : x - size, bbox.top + 2 * size);
  }
  let free = -Infinity;
  ctx.font = `700 ${9.5 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  for (const [step, number] of panel.flags) {
    const x = u.valToPos(step, "x", true);
    if (!inside(x)) continue;
    upright(u, x, styleOf("bad"));
    if (x - size < free) continue; // its number would lie on another one
    free = x + size;
    ctx.fillStyle = styleOf("bad");
    ctx.beginPath();
    ctx.arc(x, bbox.top - size, size, 0, 2 * Math.PI);
    ctx.fill();
    ctx.fillStyle = styleOf("card");
    ctx.fillText(number, x, bbox.top - size);
  }
  ctx.restore();
}

// Told by more than colour: only an eruption has a bar along its top.
function tops(u, phases) {
  clipped(u, (ctx, bbox) => {
    ctx.fillStyle = faded(styleOf("warm"), 0.75);
    for (const [first, last] of phases.filter((phase) => phase[2] === "eruption")) {
      const left = u.valToPos(first, "x", true);
      ctx.fillRect(left, bbox.top, u.valToPos(last, "x", true) - left, 3 * devicePixelRatio);
    }
  });
}

// Panels beside each other have one y axis if all have the same range: the first one's.
function axesOf(chart, panel) {
  const [x, y] = axes(chart.data.shares, panel.title || panel.x_name);
  return chart.data.full && panel !== chart.data.panels[0] ? [x, { ...y, size: 10, values: () => [] }] : [x, y];
}

function options(chart, panel, laid, box) {
  const { shares, full, zero, bars } = chart.data;
  const [min, max] = rangeOf(chart, panel);
  const phases = panel.shades.map(([first, last, name]) => [first - 0.5, last + 0.5, name]);
  return {
    width: box.clientWidth,
    height: box.clientHeight,
    padding: [15, 14, 0, 0],
    legend: { show: false },
    scales: { x: { time: false, min, max, auto: false }, y: { range: (u, low, high) => (full ? [0, 1] : yRange(low, high, shares, zero)) } },
    axes: axesOf(chart, panel),
    series: laid.series,
    bands: laid.bands,
    cursor: {
      sync: { key: panel.x_name, setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { size: 7, width: 0, show: !bars, fill: (u, at) => (laid.of[at] ? laid.series[at].stroke : "transparent") },
      bind: { dblclick: () => () => zoom(panel.x_name, null) },
    },
    hooks: {
      drawClear: [(u) => { shade(u, phases); tops(u, phases); }],
      draw: [(u) => events(u, panel)],
      setSelect: [(u) => { const range = dragged(u); if (range) zoom(panel.x_name, range); }],
      setCursor: [(u) => told(chart, panel, laid, u)],
      ready: [(u) => u.over.addEventListener("mouseleave", hideTip)],
    },
  };
}

function draw(chart) {
  for (const { plot } of chart.plots) plot.destroy();
  const boxes = chart.data.panels.map((panel, number) => {
    const box = h("div", { class: "panel" });
    box.style.flex = `${panel.width} 1 ${number ? 0 : 58}px`; // the first one has the y axis
    return box;
  });
  chart.box.replaceChildren(...boxes);
  chart.plots = chart.data.panels.map((panel, number) => {
    const laid = chart.data.bars ? stacked(panel, chart.hidden) : laidOut(panel, chart.hidden);
    return { panel, plot: new uPlot(options(chart, panel, laid, boxes[number]), laid.columns, boxes[number]) };
  });
  chart.box.dataset.lines = chart.plots.reduce((sum, { plot }) => sum + plot.series.filter((one) => one.width > 2 || one.paths && chart.data.bars).length, 0);
}

function resize() {
  if (document.documentElement.classList.contains("printing")) return; // paper scales what was drawn
  for (const { plots } of charts) {
    for (const { plot } of plots) {
      const box = plot.root.parentElement;
      if (box.clientWidth && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: box.clientHeight });
    }
  }
}

function hide(chart, button, place) {
  const hides = button.getAttribute("aria-pressed") === "true";
  button.setAttribute("aria-pressed", String(!hides));
  chart.hidden[hides ? "add" : "delete"](place);
  draw(chart);
}

function showToken(event) {
  const token = event.target.closest ? event.target.closest("i[data-v]") : null;
  if (token) {
    const [chance, entropy, heat] = token.dataset.v.split(" ");
    const rows = [`probability ${chance}`, `entropy ${entropy} nats`, `temperature ${heat}`];
    showTip(event.clientX, event.clientY, JSON.stringify(token.textContent), rows.map((text) => ["small tip-line", text]));
  } else if (event.target.closest && !event.target.closest(".plots")) hideTip();
}

for (const box of document.querySelectorAll(".plots")) {
  const chart = { box, data: JSON.parse(box.firstElementChild.textContent), hidden: new Set(), plots: [] };
  charts.push(chart);
  box.closest("figure").querySelectorAll(".legend button").forEach((button, place) => {
    button.addEventListener("click", () => hide(chart, button, place));
  });
}
const drawAll = () => charts.forEach(draw);
drawAll();
onScheme(drawAll);
for (const [event, way] of [["beforeprint", "add"], ["afterprint", "remove"]]) {
  addEventListener(event, () => { document.documentElement.classList[way]("printing"); drawAll(); });
}
new ResizeObserver(later(resize, 60)).observe(document.body);
document.addEventListener("pointerover", showToken);
addEventListener("scroll", hideTip, { passive: true });
