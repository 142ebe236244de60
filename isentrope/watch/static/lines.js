// The lines of one metric: a run each, or the mean over the seeds of a group; as they are, or less the baseline.

import { place } from "./axis.js";
import { chosenRuns, runById, seriesOf, slotOf } from "./data.js";
import { state } from "./state.js";
import { aligned, band, smoothed } from "./stats.js";

export const isEval = (key) => key.startsWith("eval/");

// Entropies and log-probs belong to the temperature of sampling: a run that measured them elsewhere than at 1 is marked.
const HEATED = /^(entropy|surprisal|likelihood)\//;
const heatOf = (run, key) => (HEATED.test(key) ? run.entropy_note : "");

export function heatNotes(key) {
  const names = new Map();
  for (const run of chosenRuns().filter((one) => seriesOf(one.id, key) && heatOf(one, key))) {
    names.set(run.entropy_note, [...(names.get(run.entropy_note) || []), run.name]);
  }
  return [...names].map(([note, who]) => `† ${who.join(", ")}: ${note}`).join("; ");
}

// The baseline whose curve is taken off the others, if that is wanted.
export const subtracted = () => (state.less && state.base ? runById(state.base) || null : null);

// What is drawn: {name, slot, steps, x, y, low, high, seeds}; low, high and seeds of means alone. `smooth` is the weight
// with which runs are smoothed before their mean is taken; runs by themselves are as measured.
export function linesOf(key, percent, smooth = state.smooth) {
  const base = subtracted();
  const under = base ? baseline(key, base) : null;
  const lines = [];
  for (const run of chosenRuns()) {
    const found = seriesOf(run.id, key);
    if (!found || !found.x.length || (base && isOfBase(run, base))) continue;
    const name = heatOf(run, key) ? `${run.name} †` : run.name;
    const y = under ? found.y.map((value, at) => less(value, under.get(found.x[at]))) : found.y;
    lines.push({ name, slot: slotOf(run.id), group: run.group, id: run.id, steps: found.x, y });
  }
  const weight = isEval(key) ? 0 : smooth; // evaluations are few and have intervals of their own
  const drawn = state.seeds === "each" ? lines.map(placed).filter(Boolean) : means(lines, percent && !base, weight);
  return drawn.filter((line) => line.y.some((value) => value !== null && value !== undefined));
}

const isOfBase = (run, base) => run.id === base.id || (state.seeds !== "each" && run.group === base.group);
const less = (value, under) => (value === null || under === undefined || under === null ? null : value - under);

// By step: the baseline's value, with means over seeds that of its group.
function baseline(key, base) {
  const members = chosenRuns().filter((run) => isOfBase(run, base)).map((run) => seriesOf(run.id, key)).filter(Boolean);
  if (!members.length) return new Map();
  const [steps, ...columns] = aligned(members);
  const { mean } = band(columns, "range");
  return new Map(steps.map((step, at) => [step, mean[at]]));
}

function placed(line) {
  const x = line.steps.map((step) => place(line.id, step));
  return x.some((value) => value === null) ? null : { ...line, x };
}

// The mean at each step; on another axis it stands at the mean of its runs' places.
function means(lines, percent, weight) {
  const groups = new Map();
  for (const line of lines) groups.set(line.group, [...(groups.get(line.group) || []), line]);
  return [...groups.values()].map((members) => {
    if (members.length === 1) return placed(members[0]);
    const [steps, ...columns] = aligned(members.map((line) => ({ x: line.steps, y: line.y })));
    const { mean, low, high } = band(columns.map((column) => smoothed(column, weight)), state.seeds, percent);
    const name = `${members[0].name} and ${members.length - 1} more seed${members.length > 2 ? "s" : ""}`;
    const x = middle(members, columns, steps);
    return x && { name, slot: members[0].slot, steps, x, y: mean, low, high, seeds: members.length };
  }).filter(Boolean);
}

function middle(members, columns, steps) {
  if (state.axis === "step") return steps;
  let last = -Infinity;
  const found = steps.map((step, at) => {
    const there = members.filter((_, number) => columns[number][at] !== null).map((line) => place(line.id, step));
    if (!there.length || there.includes(null)) return null;
    last = Math.max(last, there.reduce((sum, value) => sum + value, 0) / there.length); // a run that ended may not turn it back
    return last;
  });
  return found.includes(null) ? null : found;
}
