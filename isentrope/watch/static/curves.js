// The view of curves: controls, alarms in words, and the plots by section.

import { PHASES, lineMark, onScheme, phaseColour } from "./colours.js";
import { chosenRuns, data, runById, seriesOf, shownSlot, want } from "./data.js";
import { h, later, many } from "./dom.js";
import { AXES, axis, axisKeys, furthest, place } from "./axis.js";
import { FORMS } from "./download.js";
import { heatNotes } from "./lines.js";
import { Plot, keysOf, phaseRun, tryThis } from "./plot.js";
import { go, on, state } from "./state.js";

const SECTIONS = {
  Success: [/^eval\/[^/]+\/success$/, "success/all"],
  Entropy: ["entropy/token", "entropy/think", "entropy/action", "entropy/first10", "entropy/last10", "drift/agreement", "probe/delta_h"],
  Behaviour: ["return/mean", "valid_ratio", "response/tokens", "response/outcome/solved", "response/outcome/failed", "episode/turns", "degeneracy/duplication", "degeneracy/loops", "degeneracy/hallucinated",
    "likelihood/valid", "likelihood/solved", "likelihood/failed"],
  Update: ["kl/k3", "kl/old", "clip/fraction", "grad_norm", "advantage/zero_groups", "loss/total", "mismatch/kl", "probe/interference/sum", "lr"],
  Imitation: ["sft/loss", "rft/solved"],
  Time: ["rate/steps_per_hour", "tokens_per_second/rollout", "tokens_per_second/update", "seconds/rollout", "seconds/update", "memory/gpu", "memory/peak"],
};
const closed = new Set();
const cards = new Map(); // key -> {card, plot, seen}
let root = null;
let body = null;
let layout = "";

const watching = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const card = cards.get(entry.target.dataset.key);
    if (!card) continue;
    card.seen = entry.isIntersecting;
    if (card.seen) { want([...keysOf(card.plot.key), ...axisKeys()]); draw(card); }
  }
}, { rootMargin: "400px" });

const sizes = new ResizeObserver(later(() => { for (const card of cards.values()) card.plot.resize(); }, 60));

export function showCurves(main) {
  layout = "";
  body = h("div", { id: "plots" });
  root = h("div", { class: "curves" }, controls(), h("div", { id: "alarms" }), body);
  main.replaceChildren(root);
  sizes.observe(body);
  arrange();
  redraw();
}

export function leaveCurves() {
  for (const card of cards.values()) { watching.unobserve(card.card); card.plot.destroy(); }
  cards.clear();
  sizes.disconnect();
  root = null;
}

// Which plots there are: metrics that some chosen run has, asked by the keys that the server knows.
function arrange() {
  if (!root) return;
  const known = new Map(data.keys.map((meta) => [meta.key, meta]));
  const sections = [["Picked", state.pins.filter((key) => known.has(key))]];
  for (const [title, wanted] of Object.entries(SECTIONS)) {
    const keys = wanted.flatMap((one) => (typeof one === "string" ? [one] : [...known.keys()].filter((key) => one.test(key))));
    sections.push([title, keys.filter((key) => known.has(key) && !state.pins.includes(key))]);
  }
  const next = JSON.stringify([sections, data.loaded, data.runs.length > 0]);
  if (next === layout) return;
  layout = next;
  for (const card of cards.values()) { watching.unobserve(card.card); card.plot.destroy(); }
  cards.clear();
  const parts = sections.filter(([, keys]) => keys.length).map(([title, keys]) => section(title, keys, known));
  if (!parts.length) parts.push(h("p", { class: "nothing" }, emptyText()));
  body.replaceChildren(...parts);
}

function emptyText() {
  if (!data.loaded) return "Reading the runs …";
  if (!data.runs.length) return `No runs yet in ${data.places.join(", ")}. A run appears here as soon as it begins: isentrope train demo --out runs/first`;
  return "Nothing was measured in these runs yet. The first numbers appear after the first step.";
}

function section(title, keys, known) {
  const grid = h("div", { class: "grid" }, keys.map((key) => card(key, known.get(key), title === "Picked")));
  const toggled = (event) => { closed[event.target.open ? "delete" : "add"](title); };
  return h("details", { class: "section", open: !closed.has(title), on: { toggle: toggled } }, h("summary", {}, h("h2", {}, title)), grid);
}

function card(key, meta, picked) {
  const box = h("div", { class: "plot" });
  const unpin = h("button", { class: "plain", title: "Take this plot away", "aria-label": `Take ${meta.shown} away`,
    on: { click: () => go({ pins: state.pins.filter((pin) => pin !== key) }) } }, "×");
  const unit = meta.unit && meta.unit !== "share" ? h("small", {}, meta.unit) : null;
  const note = h("p", { class: "meaning heat" });
  const less = h("small", { class: "less" });
  const element = h("figure", { class: "card", data: { key } },
    h("figcaption", {}, h("h3", {}, meta.shown, " ", unit, less), h("span", { class: "tools" }, downloads(() => cards.get(key)), picked ? unpin : null)), box, h("p", { class: "meaning" }, meta.text), note);
  const made = { card: element, plot: new Plot(box, key, meta), note, less, seen: false };
  cards.set(key, made);
  watching.observe(element);
  return element;
}

// The plot as a file, as it is shown. The menu closes when something is chosen, or done elsewhere.
function downloads(card) {
  const sign = h("summary", { title: "Download this plot", "aria-label": "Download this plot" }, "⤓");
  const close = () => { menu.open = false; sign.focus(); };
  const forms = Object.entries(FORMS).map(([form, write]) => h("button", { class: "plain", title: `Download as ${form}`, on: { click: () => { if (card()?.plot.plot) write(card()); close(); } } }, form));
  const menu = h("details", { class: "download", on: {
    focusout: (event) => { if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false; },
    keydown: (event) => { if (event.key === "Escape" && menu.open) { close(); event.stopPropagation(); } },
  } }, sign, h("span", {}, forms));
  return menu;
}

addEventListener("pointerdown", (event) => {
  for (const menu of document.querySelectorAll(".download[open]")) if (!menu.contains(event.target)) menu.open = false;
});

function draw(card) {
  if (!card.seen) { delete card.plot.box.dataset.range; return; } // drawn when it comes near the screen
  if (!card.plot.box.clientWidth) return;
  const waiting = chosenRuns().some((run) => run.rows) && !chosenRuns().some((run) => seriesOf(run.id, card.plot.key)) && !card.drawn;
  if (waiting) { card.plot.box.textContent = "…"; card.drawn = true; return; }
  card.plot.update();
  card.note.textContent = heatNotes(card.plot.key);
  card.less.textContent = card.plot.suffix().replace(/^, /, "");
}

const redraw = later(() => { if (root) for (const card of cards.values()) draw(card); }, 20);

function controls() {
  const smooth = h("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: state.smooth, id: "smooth",
    on: { input: (event) => go({ smooth: Number(event.target.value) }) } });
  const log = h("input", { type: "checkbox", id: "log", checked: state.log, on: { change: (event) => go({ log: event.target.checked }) } });
  const choices = [["each", "each run"], ["range", "mean, least to greatest"], ["t", "mean, 95 % t-interval"]];
  const seeds = h("select", { id: "seeds", on: { change: (event) => go({ seeds: event.target.value }) } },
    choices.map(([value, text]) => h("option", { value, selected: state.seeds === value }, text)));
  const ends = ["first", "last"].map((name, place) => h("input", { type: "number", id: `zoom-${name}`, min: 0, "aria-label": `${name} of the part shown`,
    on: { change: () => zoomFromFields(place) } }));
  const less = h("input", { type: "checkbox", id: "less", on: { change: (event) => go({ less: event.target.checked }) } });
  const reset = h("button", { id: "reset", on: { click: () => go({ zoom: null }) } }, "Whole run");
  return h("div", { class: "controls" },
    picker(),
    h("label", {}, "Smoothing", smooth, h("output", { id: "smooth-value" })),
    h("label", {}, log, "log scale"),
    h("label", {}, "Seeds", seeds),
    h("label", {}, "Over", h("select", { id: "axis", on: { change: (event) => go({ axis: event.target.value, zoom: null }) } },
      Object.entries(AXES).map(([value, { title }]) => h("option", { value, selected: state.axis === value }, title)))),
    h("label", { id: "less-box", title: "Each curve less that of the baseline, which ☆ in the table chooses" }, less, h("span", { id: "less-name" })),
    h("label", {}, "Phases of", h("select", { id: "phases", on: { change: (event) => go({ phases: event.target.value }) } })),
    h("span", { class: "zoom" }, h("span", { id: "zoom-unit" }), ends[0], "–", ends[1], reset),
    h("span", { id: "axis-told", class: "soft", role: "status" }));
}

function zoomFromFields() {
  const [first, last] = ["first", "last"].map((name) => Number(document.getElementById(`zoom-${name}`).value));
  if (last > first) go({ zoom: [first, last] });
}

// Any metric by its name or its meaning.
function picker() {
  const list = h("ul", { class: "found", role: "listbox", hidden: true });
  const input = h("input", { type: "search", id: "pick", placeholder: "Add a plot: entropy, kl …", autocomplete: "off",
    role: "combobox", "aria-expanded": "false", "aria-label": "Add a plot of any metric" });
  const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); };
  const add = (key) => { go({ pins: [key, ...state.pins.filter((pin) => pin !== key)] }); input.value = ""; close(); input.focus(); };
  const fill = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = data.keys.filter((meta) => words.every((word) => `${meta.key} ${meta.text}`.toLowerCase().includes(word)));
    fits.sort((a, b) => rank(a, words) - rank(b, words));
    const rows = fits.slice(0, 60).map((meta) => h("li", {}, h("button", { role: "option", data: { key: meta.key },
      on: { click: () => add(meta.key) } }, h("b", {}, meta.shown), h("span", {}, meta.text))));
    list.replaceChildren(...(rows.length ? rows : [h("li", { class: "soft" }, "No metric of these runs is called that.")]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  };
  input.addEventListener("input", fill);
  input.addEventListener("focus", fill);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") list.querySelector("button")?.click();
    if (event.key === "ArrowDown") { list.querySelector("button")?.focus(); event.preventDefault(); }
    if (event.key === "Escape") { close(); input.blur(); event.stopPropagation(); }
  });
  const box = h("div", { class: "picker" }, input, list);
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (move) { event.target.closest("li")[move]?.querySelector("button")?.focus(); event.preventDefault(); }
    if (event.key === "Escape") { close(); input.focus(); event.stopPropagation(); }
  });
  box.addEventListener("focusout", (event) => { if (!box.contains(event.relatedTarget)) close(); });
  return box;
}

const rank = (meta, words) => (words.length && !words.every((word) => meta.key.toLowerCase().includes(word)) ? 1 : 0);

function showControls() {
  if (!root) return;
  const find = (id) => root.querySelector(`#${id}`);
  find("smooth").value = state.smooth;
  find("smooth-value").textContent = state.smooth ? state.smooth.toFixed(2) : "off";
  find("log").checked = state.log;
  find("seeds").value = state.seeds;
  find("reset").disabled = !state.zoom;
  find("axis").value = state.axis;
  find("zoom-unit").textContent = { step: "Steps", tokens: "Tokens", episodes: "Episodes", time: "Seconds" }[state.axis];
  find("zoom-unit").parentElement.classList.toggle("wide", state.axis !== "step");
  const base = runById(state.base);
  find("less").checked = state.less && Boolean(base);
  find("less").disabled = !base;
  find("less-name").textContent = base ? `less ${base.name}` : "less baseline";
  const lost = chosenRuns().filter((run) => run.rows && data.loaded && place(run.id, run.step) === null);
  find("axis-told").textContent = lost.length ? `${many(lost.length, "run")} not drawn: ${lost.length > 1 ? "they do" : "it does"} not tell the ${axis().title}` : "";
  if (axis().key) want(axisKeys());
  for (const [place, name] of ["first", "last"].entries()) {
    const field = find(`zoom-${name}`);
    const whole = [0, furthest()];
    if (document.activeElement !== field) field.value = Math.round((state.zoom || whole)[place]);
  }
  const having = chosenRuns().filter((run) => data.events[run.id]?.phases.length);
  const options = [["", having.length ? `the first (${having[0].name})` : "no run has any"], ["none", "nobody"], ...having.map((run) => [run.id, run.name])];
  const select = find("phases");
  const now = JSON.stringify(options);
  if (select.dataset.now !== now) {
    select.dataset.now = now;
    select.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
  }
  select.value = options.some(([value]) => value === state.phases) ? state.phases : "";
  select.disabled = !having.length;
  showAlarms();
}

function showAlarms() {
  const box = root.querySelector("#alarms");
  const all = chosenRuns().flatMap((run) => (data.events[run.id]?.alarms || []).map((alarm) => ({ run, alarm })));
  const phases = phaseRun() ? data.events[phaseRun().id]?.phases || [] : [];
  const now = JSON.stringify([all.map(({ run, alarm }) => [run.id, shownSlot(run), alarm]), phases, phaseRun()?.id]);
  if (box.dataset.now === now) return;
  box.dataset.now = now;
  all.sort((a, b) => a.alarm.step - b.alarm.step);
  const legend = phases.length ? h("p", { class: "phase-legend" }, `Phases of ${phaseRun().name}: `, Object.entries(PHASES).filter(([name]) => phases.some(([, , one]) => one === name)).map(([name]) => {
    const mark = h("span", { class: "phase" }, name);
    mark.style.background = phaseColour(name);
    return mark;
  })) : null;
  const rows = all.map(({ run, alarm }) => h("li", {}, h("button", { on: { click: () => around(run, alarm.step) } },
    lineMark(shownSlot(run)), h("b", {}, `step ${alarm.step}`), h("span", { class: "soft" }, run.name),
    h("span", {}, alarm.text || alarm.name), alarm.remedy ? h("span", { class: "remedy" }, tryThis(alarm)) : null)));
  const list = rows.length ? h("details", { class: "alarm-list card", open: rows.length <= 4 },
    h("summary", {}, `⚠ ${many(rows.length, "alarm")}`), h("ol", {}, rows)) : null;
  box.replaceChildren(...[list, legend].filter(Boolean));
}

function around(run, step) {
  const [last, at] = [furthest(), place(run.id, step)];
  const reach = Math.max(state.axis === "step" ? 5 : 0, last * 0.1);
  if (at !== null) go({ zoom: [Math.max(0, at - reach), Math.min(last * 1.01, at + reach)] });
}

on("keys", () => { arrange(); redraw(); });
on("runs", () => { arrange(); if (root) showControls(); });
on("series", () => { redraw(); if (root) showControls(); });
on("events", () => { if (root) { showControls(); redraw(); } });
on("state", () => { arrange(); if (root) showControls(); redraw(); });
onScheme(() => { if (root) { root.querySelector("#alarms").dataset.now = ""; showControls(); redraw(); } });
