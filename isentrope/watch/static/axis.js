// What the x axis counts: steps, or what a run had sampled, played or taken by a step.

import { chosenRuns, seriesOf } from "./data.js";
import { state } from "./state.js";

const COUNTS = [1, 2, 5].flatMap((digit) => [...Array(14).keys()].map((zeros) => digit * 10 ** zeros)).sort((a, b) => a - b);
const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 8640000];
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

export const AXES = {
  step: { title: "steps", told: (value) => `step ${value}` },
  tokens: { key: "axis/tokens", title: "tokens", incrs: COUNTS, tick: (value) => compact.format(value), told: (value) => `${compact.format(value)} tokens sampled` },
  episodes: { key: "axis/episodes", title: "episodes", incrs: COUNTS, tick: (value) => compact.format(value), told: (value) => `${compact.format(value)} episodes played` },
  time: { key: "axis/seconds", title: "time", incrs: SPANS, tick: span, told: (value) => `${span(Math.round(value))} of work` },
};

export const axis = () => AXES[state.axis];
export const axisKeys = () => (axis().key ? [axis().key] : []);

// Where a run's step stands on the axis; null where the run did not record what it takes. A step that has no entry of
// its own stands where the step before it ended.
export function place(id, step) {
  if (state.axis === "step") return step;
  const known = seriesOf(id, axis().key);
  if (!known || !known.x.length) return null;
  let low = 0;
  let high = known.x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (known.x[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low ? known.y[low - 1] : 0;
}

// The end of the axis: of the run that came furthest.
export function furthest() {
  return Math.max(1, ...chosenRuns().map((run) => place(run.id, run.step) ?? 0));
}

// 90 s, 15 min, 2.5 h, 3 d
export function span(seconds) {
  const size = Math.abs(seconds);
  if (size < 120) return `${Number(seconds.toPrecision(3))} s`;
  if (size < 7200) return `${Number((seconds / 60).toPrecision(3))} min`;
  return size < 172800 ? `${Number((seconds / 3600).toPrecision(3))} h` : `${Number((seconds / 86400).toPrecision(3))} d`;
}
