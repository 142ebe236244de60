// One metric over steps, tokens, episodes or time, for all chosen runs.

import { axis, furthest, place } from "./axis.js";
import { colourOf, dashOf, faded, styleOf } from "./colours.js";
import { chosenRuns, data, runById, seriesOf, shownSlot } from "./data.js";
import { hideTip, short, showTip } from "./dom.js";
import { axes, clipped, dragged, namePhases, shade, upright, yRange } from "./frame.js";
import { isEval, linesOf, subtracted } from "./lines.js";
import { go, state } from "./state.js";
import { aligned, smoothed } from "./stats.js";

const MANY = 12; // from so many lines on, the raw ones behind smooth ones are left out
const FEW = 40; // up to so many points, each is marked
const HEIGHT = 220;

// The keys that a plot of `key` needs: an evaluation comes with the ends of its interval.
export function keysOf(key) {
  const found = /^eval\/(.+)\/success$/.exec(key);
  return found ? [key, `eval/${found[1]}/low`, `eval/${found[1]}/high`] : [key];
}

// Columns and series for uPlot, and what each column is.
function laidOut(key, percent) {
  const lines = linesOf(key, percent);
  const curves = [];
  const series = [{}];
  const bands = [];
  const put = (curve, options, line) => { curves.push(curve); series.push({ ...options, line }); };
  const dots = isEval(key);
  for (const line of lines) {
    const colour = colourOf(line.slot);
    const common = { stroke: colour, dash: dashOf(line.slot), cap: "round", width: 2, spanGaps: true, points: { show: false } };
    if (line.seeds) {
      const hidden = { ...common, width: 0, stroke: faded(colour, 0) };
      put({ x: line.x, y: line.high }, hidden, null);
      put({ x: line.x, y: line.low }, hidden, null);
      bands.push({ series: [series.length - 2, series.length - 1], fill: faded(colour, 0.16) });
      put(line, { ...common, points: { show: dots, size: 7, fill: styleOf("card"), stroke: colour, width: 2 } }, line);
      continue;
    }
    for (const end of endsOf(line, key)) {
      put({ x: end.x.map((step) => place(line.id, step)), y: end.y }, { ...common, width: 0, stroke: faded(colour, 0) }, null); // not drawn: the axis makes room for the interval
    }
    const smooth = state.smooth > 0 && !dots;
    if (smooth && lines.length <= MANY) put(line, { ...common, width: 1, stroke: faded(colour, 0.3), dash: [] }, null);
    const points = dots || line.x.length <= 1 || (line.x.length <= FEW && lines.length <= MANY && !smooth);
    const mark = { show: points, size: dots ? 7 : 4, fill: dots ? styleOf("card") : colour, stroke: colour, width: 2 };
    put(smooth ? { x: line.x, y: smoothed(line.y, state.smooth) } : line, { ...common, points: mark }, line);
  }
  const columns = aligned(curves);
  if (state.log) for (let i = 1; i < columns.length; i++) columns[i] = columns[i].map((v) => (v > 0 ? v : null));
  const whole = columns.slice(1).every((column) => column.every((v) => v === null));
  return { columns, series, bands, lines, empty: !lines.length, nothingPositive: lines.length > 0 && whole && state.log };
}

// The ends of a run's intervals. A difference has none: the baseline's games are others'.
const endsOf = (line, key) => (subtracted() ? [] : keysOf(key).slice(1).map((name) => seriesOf(line.id, name)).filter(Boolean));

// All plots show the same part: the zoom, or from the first to the last step of the chosen runs.
export const stepRange = () => state.zoom || [0, furthest() * 1.01];

export class Plot {
  constructor(box, key, meta) {
    this.box = box;
    this.key = key;
    this.meta = meta;
    this.shape = "";
    this.plot = null;
  }

  update() {
    const laid = this.layOut();
    this.box.dataset.lines = laid.lines.length;
    const shape = JSON.stringify([
      laid.series.map((one) => [one.stroke, one.dash, one.width, one.points?.show]), laid.bands, state.log, styleOf("ink"), state.axis,
    ]);
    this.laid = laid;
    if (laid.nothingPositive || laid.empty) {
      this.destroy();
      this.box.textContent = laid.empty ? emptyText() : "No value above 0: nothing to show on a log scale.";
      return;
    }
    if (shape !== this.shape || !this.plot) {
      this.destroy();
      this.box.textContent = "";
      this.plot = new uPlot(this.options(laid), laid.columns, this.box);
      this.shape = shape;
    } else {
      this.plot.setData(laid.columns, false);
    }
    this.zoom();
  }

  // For a file of it: what is drawn in the colours of now, its lines without smoothing, the ends of a run's intervals,
  // the phases shown, and what its title ends with.
  layOut() { return laidOut(this.key, this.meta.unit === "share"); }

  numbers() { return linesOf(this.key, this.meta.unit === "share", 0); }

  ends(line) {
    const [low, high] = line.id ? endsOf(line, this.key) : [];
    return [low, high];
  }

  phases() { return phasesShown(); }

  suffix() { return subtracted() ? `, less ${subtracted().name}` : ""; }

  zoom() {
    if (!this.plot) return;
    const [min, max] = stepRange();
    this.plot.setScale("x", { min, max });
    this.box.dataset.range = `${min},${max}`;
  }

  resize() {
    if (this.plot) this.plot.setSize({ width: this.box.clientWidth, height: HEIGHT });
  }

  destroy() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.shape = "";
  }

  options(laid) {
    const percent = this.meta.unit === "share";
    return {
      width: this.box.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      scales: { x: { time: false }, y: state.log ? { distr: 3 } : { range: (u, low, high) => yRange(low, high, percent) } },
      axes: axes(percent, "", axis()),
      series: laid.series.map(({ line, ...options }) => options),
      bands: laid.bands,
      cursor: {
        sync: { key: "steps", setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 7, width: 0, fill: (u, at) => (laid.series[at].line ? laid.series[at].stroke : "transparent") },
        bind: { dblclick: () => () => go({ zoom: null }) },
      },
      hooks: {
        drawClear: [(u) => shade(u, phasesShown())],
        drawAxes: [(u) => namePhases(u, phasesShown())],
        draw: [(u) => { intervals(u, this.laid, this.key); alarms(u); this.box.dataset.height = [u.scales.y.min, u.scales.y.max].join(); }],
        setSelect: [(u) => zoomTo(u)],
        setCursor: [(u) => this.tell(u)],
        ready: [(u) => u.over.addEventListener("mouseleave", hideTip)],
      },
    };
  }

  tell(u) {
    const { left, top, idx } = u.cursor;
    if (left < 0 || idx === null || idx === undefined || !u.over.matches(":hover")) return;
    const rows = [];
    const percent = this.meta.unit === "share";
    this.laid.series.forEach((series, column) => {
      if (!series.line) return;
      const value = nearest(u.data[column], idx, u.data.length);
      if (value === null) return;
      const shown = percent ? `${(100 * value).toFixed(1)} %` : short(value);
      rows.push([value, ["tip-row", `${series.line.name}  ${shown}${around(series.line, u.data[0][idx], percent)}`, colourOf(series.line.slot)]]);
    });
    rows.sort((a, b) => b[0] - a[0]);
    const lines = rows.slice(0, 14).map(([, row]) => row);
    if (rows.length > 14) lines.push(["tip-row soft", `and ${rows.length - 14} more`]);
    for (const { alarm, run } of alarmsNear(u, left)) {
      lines.push(["tip-row alarm", `${alarm.text || alarm.name} (${run.name}, step ${alarm.step})`, colourOf(shownSlot(run))]);
      if (alarm.remedy) lines.push(["tip-row soft", tryThis(alarm)]);
    }
    const box = u.over.getBoundingClientRect();
    showTip(box.left + left, box.top + top, axis().told(u.data[0][idx]), lines);
  }
}

function emptyText() {
  if (subtracted()) return "Nothing to compare with the baseline here.";
  return state.axis === "step" ? "Not measured in the chosen runs." : `Not measured in the chosen runs, or they do not tell their ${axis().title}.`;
}

// Runs that do not share their places on the axis have values between each other's.
function nearest(column, index, columns) {
  for (let reach = 0; reach < Math.max(12, state.axis === "step" ? 0 : 2 * columns); reach++) {
    for (const place of [index - reach, index + reach]) {
      const value = column[place];
      if (value !== null && value !== undefined) return value;
    }
  }
  return null;
}

function around(line, step, percent) {
  if (!line.seeds) return "";
  const at = line.x.indexOf(step);
  if (at < 0 || line.low[at] === null) return "";
  const shown = (v) => (percent ? (100 * v).toFixed(1) : short(v));
  return `  [${shown(line.low[at])}, ${shown(line.high[at])}]`;
}

function zoomTo(u) {
  const zoom = dragged(u);
  if (zoom) go({ zoom });
}

// Whose phases are shaded: the run that was named, or the first chosen one that has any.
export function phaseRun() {
  if (state.phases === "none") return null;
  if (state.phases) return runById(state.phases) || null;
  return chosenRuns().find((run) => data.events[run.id]?.phases.length) || null;
}

function phasesShown() {
  const run = phaseRun();
  const spans = run ? data.events[run.id]?.phases || [] : [];
  return spans.map(([first, last, name]) => [place(run.id, first), place(run.id, last), name]).filter(([first]) => first !== null);
}

function intervals(u, laid, key) {
  const [, low, high] = keysOf(key);
  if (!low || subtracted()) return;
  clipped(u, (ctx) => {
    for (const line of laid.lines) {
      const [lows, highs] = [low, high].map((name) => (line.id ? seriesOf(line.id, name) : null));
      if (!lows || !highs || lows.x.length !== highs.x.length) continue;
      ctx.strokeStyle = faded(colourOf(line.slot), 0.55);
      ctx.lineWidth = 1.5 * devicePixelRatio;
      lows.x.forEach((step, index) => {
        if (lows.y[index] === null || highs.y[index] === null) return;
        const x = u.valToPos(place(line.id, step), "x", true);
        ctx.beginPath();
        ctx.moveTo(x, u.valToPos(lows.y[index], "y", true));
        ctx.lineTo(x, u.valToPos(highs.y[index], "y", true));
        ctx.stroke();
      });
    }
  });
}

export const tryThis = (alarm) => (/^try\b/i.test(alarm.remedy) ? alarm.remedy : `Try: ${alarm.remedy}`);

function chosenAlarms() {
  return chosenRuns().flatMap((run) => (data.events[run.id]?.alarms || []).map((alarm) => ({ alarm, run, x: place(run.id, alarm.step) })))
    .filter(({ x }) => x !== null);
}

function alarmsNear(u, left) {
  return chosenAlarms().filter(({ x }) => Math.abs(u.valToPos(x, "x") - left) < 7).slice(0, 4);
}

function alarms(u) {
  const { ctx, bbox } = u;
  const size = 5 * devicePixelRatio;
  const all = chosenAlarms();
  ctx.save();
  for (const { run, x: at } of all) {
    const x = u.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.fillStyle = colourOf(shownSlot(run));
    if (all.length <= 40) upright(u, x, colourOf(shownSlot(run)));
    ctx.beginPath();
    ctx.moveTo(x - size, bbox.top - size * 0.6);
    ctx.lineTo(x + size, bbox.top - size * 0.6);
    ctx.lineTo(x, bbox.top + size);
    ctx.fill();
  }
  ctx.restore();
}
