// What all plots share, on the live page and in reports: axes, ranges, zoom, and phases behind the curves.

import { faded, phaseColour, styleOf } from "./colours.js";
import { short } from "./dom.js";

const STEPS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10000, 50000, 100000];
const FONT = "system-ui, sans-serif";

// Both axes; y in percent if it is a share. `label`: what stands below the x axis; `counts`: what it counts, if not steps.
export function axes(percent, label = "", counts = {}) {
  const axis = {
    stroke: styleOf("soft"), font: `12px ${FONT}`, grid: { stroke: styleOf("rule"), width: 1 },
    ticks: { stroke: styleOf("rule"), width: 1, size: 4 },
  };
  const values = (_, splits) => splits.map((v) => (v === null ? "" : percent ? `${Number((100 * v).toPrecision(4))} %` : short(v)));
  const ticks = counts.tick ? { values: (_, splits) => splits.map((v) => (v === null ? "" : counts.tick(v))) } : {};
  const below = label ? { label, labelSize: 18, labelFont: `12px ${FONT}`, labelGap: 0 } : {};
  return [{ ...axis, ...below, size: 30, space: 60, incrs: counts.incrs || STEPS, ...ticks }, { ...axis, size: 58, space: 34, values }];
}

// Room above and below the curves. The axis begins at 0 if `zero` says so or if the curves come near it.
export function yRange(low, high, percent, zero = false) {
  if (low === null || low === undefined) return [0, 1];
  const room = low === high ? (Math.abs(low) || 1) * 0.1 : (high - low) * 0.08;
  const near = zero || low < (high - low) * 0.5 || low < room;
  const floor = low >= 0 && near ? 0 : low - room;
  const top = zero && high <= 0 ? 0 : high + room;
  return [floor, percent && high <= 1 ? Math.min(1.02, top) : top];
}

// The steps that were marked by dragging, or null; the marking goes.
export function dragged(u) {
  if (u.select.width < 6) return null;
  const min = u.posToVal(u.select.left, "x");
  const max = u.posToVal(u.select.left + u.select.width, "x");
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  return max > min ? [Number(min.toFixed(2)), Number(max.toFixed(2))] : null;
}

// What is drawn inside of the plot's frame and never beyond.
export function clipped(u, draw) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, bbox);
  ctx.restore();
}

// Calls draw(name, left, right) for each phase [first, last, name] that is on the screen.
function eachPhase(u, phases, draw) {
  clipped(u, (ctx, bbox) => {
    for (const [first, last, name] of phases) {
      const left = Math.max(bbox.left, u.valToPos(first, "x", true));
      const right = Math.min(bbox.left + bbox.width, u.valToPos(last, "x", true));
      if (right > left) draw(name, left, right);
    }
  });
}

export function shade(u, phases) {
  eachPhase(u, phases, (name, left, right) => {
    u.ctx.fillStyle = phaseColour(name);
    u.ctx.fillRect(left, u.bbox.top, right - left, u.bbox.height);
  });
}

// Over the grid and under the curves.
export function namePhases(u, phases) {
  const { ctx, bbox } = u;
  eachPhase(u, phases, (name, left, right) => {
    ctx.fillStyle = styleOf("soft");
    ctx.font = `${11 * devicePixelRatio}px ${FONT}`;
    ctx.textBaseline = "bottom";
    ctx.textAlign = "left";
    if (ctx.measureText(name).width + 12 < right - left) ctx.fillText(name, left + 5 * devicePixelRatio, bbox.top + bbox.height - 4 * devicePixelRatio);
  });
}

// An upright dashed line, in pixels of the canvas.
export function upright(u, x, colour) {
  const { ctx, bbox } = u;
  ctx.strokeStyle = faded(colour, 0.6);
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.setLineDash([]);
}
