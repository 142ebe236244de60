// What the server knows, as far as it was needed: the runs, and the series of the metrics on the screen.

import { ask } from "./dom.js";
import { on, state, tell } from "./state.js";

export const data = { runs: [], keys: [], places: [], events: {}, problem: "", unread: 0, loaded: false };
const EVERY = 2000; // milliseconds
const AT_FIRST = 6; // runs chosen as long as nobody has chosen
const held = new Map(); // id of a run -> {begun, rows, clock, series: key -> {x, y}}
const wanted = new Set(); // metrics asked for so far; they are kept up to date
let busy = false;
let again = false;
let knownKeys = -1;
let timer = 0;

export const runById = (id) => data.runs.find((run) => run.id === id);

// As long as nobody has chosen: the runs written last. They stay, so that the picture does not change by itself.
let atFirst = [];
export function chosenRuns() {
  if (state.chosen !== null) return state.chosen.map(runById).filter(Boolean);
  const measured = data.runs.filter((run) => run.rows > 0);
  if (data.unread) atFirst = [];
  atFirst = atFirst.filter(runById);
  const newest = measured.filter((run) => !atFirst.includes(run.id)).sort((a, b) => (a.age ?? 1e12) - (b.age ?? 1e12));
  atFirst.push(...newest.slice(0, Math.max(0, AT_FIRST - atFirst.length)).map((run) => run.id));
  return measured.filter((run) => atFirst.includes(run.id));
}

// Colours and dashes go to runs in the order of being chosen and stay with them.
const slots = new Map();
export function slotOf(id) {
  const chosen = new Set(chosenRuns().map((run) => run.id));
  for (const other of [...slots.keys()]) if (!chosen.has(other)) slots.delete(other);
  for (const run of chosen) {
    if (slots.has(run)) continue;
    const taken = new Set(slots.values());
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    slots.set(run, slot);
  }
  return slots.get(id) ?? 0;
}

// The line that a run is part of: with a mean over seeds, the runs of a group share that of the first.
export function shownSlot(run) {
  const first = state.seeds === "each" ? run : chosenRuns().find((other) => other.group === run.group) || run;
  return slotOf(first.id);
}

export function seriesOf(id, key) {
  return held.get(id)?.series.get(key);
}

export function want(keys) {
  const fresh = keys.filter((key) => !wanted.has(key));
  if (!fresh.length) return;
  fresh.forEach((key) => wanted.add(key));
  refresh();
}

export async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  clearTimeout(timer);
  try {
    await look();
    data.problem = "";
  } catch (error) {
    data.problem = error instanceof TypeError ? "The server does not answer. Is isentrope watch still running?" : error.message;
  }
  busy = false;
  tell("live");
  if (again) { again = false; refresh(); return; }
  if (!document.hidden) timer = setTimeout(refresh, EVERY);
}

async function look() {
  const answer = await ask("runs");
  data.runs = answer.runs;
  data.places = answer.places;
  data.unread = answer.unread;
  if (answer.unread) again = true; // many runs are read in several goes
  data.loaded = true;
  const size = data.runs.reduce((sum, run) => sum + run.keys, 0);
  if (size !== knownKeys) {
    data.keys = (await ask("keys")).keys;
    knownKeys = size;
    tell("keys");
  }
  tell("runs");
  const chosen = chosenRuns();
  if (await fetchSeries(chosen)) tell("series");
  await fetchEvents(chosen);
}

function holdFor(run) {
  const known = held.get(run.id);
  if (known && known.begun === run.begun) return known;
  const empty = { begun: run.begun, rows: 0, clock: 0, keys: new Set(), series: new Map() };
  held.set(run.id, empty); // new, or resumed from an earlier step
  return empty;
}

// Metrics that a run was not asked for come from its beginning, all others from where we stand.
async function fetchSeries(chosen) {
  const batches = new Map(); // the same keys are asked for together
  for (const run of chosen) {
    const known = holdFor(run);
    const old = [...wanted].filter((key) => known.keys.has(key));
    const fresh = [...wanted].filter((key) => !known.keys.has(key));
    const news = run.rows > known.rows || run.clock_rows > known.clock;
    if (old.length && news) {
      addTo(batches, old, `${run.id}:${run.begun}:${known.rows}:${run.rows}:${known.clock}:${run.clock_rows}`);
    }
    if (fresh.length) addTo(batches, fresh, `${run.id}:${run.begun}:0:${run.rows}:0:${run.clock_rows}`);
    known.next = { rows: run.rows, clock: run.clock_rows, fresh };
  }
  let changed = false;
  for (const { keys, wants } of batches.values()) {
    const { series } = await ask("series", { runs: wants.join(","), key: keys });
    for (const [id, part] of Object.entries(series)) {
      if (part === null) held.delete(id);
      else add(held.get(id), part);
    }
    changed = true;
  }
  for (const run of chosen) {
    const known = held.get(run.id);
    if (!known || !known.next) continue;
    known.rows = known.next.rows;
    known.clock = known.next.clock;
    known.next.fresh.forEach((key) => known.keys.add(key));
    delete known.next;
  }
  return changed;
}

function addTo(batches, keys, wants) {
  const name = keys.join("\n");
  if (!batches.has(name)) batches.set(name, { keys, wants: [] });
  batches.get(name).wants.push(wants);
}

function add(known, part) {
  for (const [key, [axis, values]] of Object.entries(part.y)) {
    const before = known.series.get(key) || { x: [], y: [] };
    known.series.set(key, { x: before.x.concat(part.x[axis]), y: before.y.concat(values) });
  }
}

let eventsSeen = "";
async function fetchEvents(chosen) {
  const seen = chosen.map((run) => `${run.id}:${run.begun}:${run.rows}:${run.events}`).join(",");
  if (seen === eventsSeen) return;
  data.events = chosen.length ? await ask("events", { runs: chosen.map((run) => run.id).join(",") }) : {};
  eventsSeen = seen;
  tell("events");
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
on("chosen", refresh);
