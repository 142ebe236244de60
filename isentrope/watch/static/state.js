// What is being looked at. It stands in the address, so that a view can be kept, shared on this machine and gone back to.

export const state = {
  view: "curves",
  chosen: null, // ids of runs; null: nobody has chosen, take the newest
  pins: [], // metrics picked by hand
  smooth: 0,
  log: false,
  seeds: "each", // each run, or the mean over seeds with a band: "range" or "t"
  phases: "", // the run whose phases are shaded; "": the first that has any; "none"
  zoom: null, // [first step, last step]
  filters: {}, // of the list of episodes
  open: null, // the episode being read: {run, file, number}
  beside: null, // number of the episode next to it
  colour: "entropy",
  differing: true, // settings: only those that differ
  axis: "step", // what the x axis counts: step, tokens, episodes or time
  base: "", // id of the run that the others are compared with
  less: false, // curves less the baseline's
  table: { sort: "", group: "", where: "", columns: [] }, // of the table of runs; sort begins with - for the largest first
};

const listeners = new Map();

export function on(what, act) {
  if (!listeners.has(what)) listeners.set(what, []);
  listeners.get(what).push(act);
}

export function tell(what) {
  for (const act of listeners.get(what) || []) act();
}

// Change the state; `remember` makes a step to which the browser can go back.
export function go(changes, remember = false) {
  Object.assign(state, changes);
  const address = `#${written()}`;
  if (address !== location.hash) history[remember ? "pushState" : "replaceState"](null, "", address);
  tell("state");
}

function written() {
  const query = new URLSearchParams({ view: state.view });
  if (state.chosen !== null) query.set("runs", state.chosen.join(","));
  for (const pin of state.pins) query.append("pin", pin);
  if (state.smooth) query.set("smooth", state.smooth);
  if (state.log) query.set("log", "1");
  if (state.seeds !== "each") query.set("seeds", state.seeds);
  if (state.phases) query.set("phases", state.phases);
  if (state.zoom) query.set("zoom", state.zoom.join(","));
  for (const [name, value] of Object.entries(state.filters)) if (value) query.set(`f.${name}`, value);
  if (state.open) query.set("episode", [state.open.run, state.open.number, state.open.file].join(","));
  if (state.beside !== null) query.set("beside", state.beside);
  if (state.colour !== "entropy") query.set("colour", state.colour);
  if (state.axis !== "step") query.set("axis", state.axis);
  if (state.base) query.set("base", state.base);
  if (state.less) query.set("less", "1");
  for (const name of ["sort", "group", "where"]) if (state.table[name]) query.set(`t.${name}`, state.table[name]);
  for (const column of state.table.columns) query.append("t.column", column);
  return query.toString();
}

export function readAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  const zoom = (query.get("zoom") || "").split(",").map(Number);
  const [run, number, ...file] = (query.get("episode") || "").split(",");
  const filters = {};
  for (const [name, value] of query) if (name.startsWith("f.")) filters[name.slice(2)] = value;
  const pick = (name, values, otherwise) => (values.includes(query.get(name)) ? query.get(name) : otherwise);
  Object.assign(state, {
    view: pick("view", ["curves", "settings", "episodes", "table"], "curves"),
    chosen: query.has("runs") ? query.get("runs").split(",").filter(Boolean) : null,
    pins: query.getAll("pin"),
    smooth: Math.min(0.99, Math.max(0, Number(query.get("smooth")) || 0)),
    log: query.get("log") === "1",
    seeds: pick("seeds", ["each", "range", "t"], "each"),
    phases: query.get("phases") || "",
    zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null,
    filters,
    open: file.length ? { run, number: Number(number) || 0, file: file.join(",") } : null,
    beside: query.has("beside") ? Number(query.get("beside")) || 0 : null,
    colour: pick("colour", ["entropy", "surprisal", "advantage", "ratio"], "entropy"),
    axis: pick("axis", ["step", "tokens", "episodes", "time"], "step"),
    base: query.get("base") || "",
    less: query.get("less") === "1",
    table: { sort: query.get("t.sort") || "", group: query.get("t.group") || "", where: query.get("t.where") || "", columns: query.getAll("t.column").slice(0, 24) },
  });
}
