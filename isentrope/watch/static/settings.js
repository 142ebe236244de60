// Settings of the chosen runs side by side: those that differ, or all.

import { lineMark } from "./colours.js";
import { chosenRuns, slotOf } from "./data.js";
import { ask, h } from "./dom.js";
import { go, on, state } from "./state.js";

let root = null;
let search = "";
let configs = {};
let asked = "";

export function showSettings(main) {
  const only = h("input", { type: "checkbox", id: "differing", checked: state.differing, on: { change: (event) => go({ differing: event.target.checked }) } });
  const field = h("input", { type: "search", id: "setting-search", placeholder: "Find settings", "aria-label": "Find settings by name or value",
    on: { input: (event) => { search = event.target.value.toLowerCase(); fill(); } } });
  root = h("div", { class: "settings" }, h("div", { class: "controls" }, field, h("label", {}, only, "only what differs")),
    h("div", { class: "table-box card", id: "settings" }));
  main.replaceChildren(root);
  asked = "";
  fetchThem();
}

export function leaveSettings() { root = null; }

async function fetchThem() {
  if (!root) return;
  const wanted = chosenRuns().map((run) => `${run.id}:${run.begun}`).join(",");
  if (wanted !== asked) {
    asked = wanted;
    configs = await ask("configs", { runs: chosenRuns().map((run) => run.id).join(",") }).catch(() => ({}));
  }
  fill();
}

function fill() {
  if (!root) return;
  const runs = chosenRuns();
  const box = root.querySelector("#settings");
  const keys = [...new Set(runs.flatMap((run) => Object.keys(configs[run.id] || {})))].sort();
  const values = (key) => runs.map((run) => configs[run.id]?.[key]);
  const differs = (key) => new Set(values(key)).size > 1;
  const fits = (key) => !search || `${key} ${values(key).join(" ")}`.toLowerCase().includes(search);
  const rows = keys.filter((key) => fits(key) && (differs(key) || !state.differing || search));
  if (!keys.length) { box.replaceChildren(h("p", { class: "nothing" }, runs.length ? "These runs left no config.toml." : "Choose runs on the left.")); return; }
  if (!rows.length) {
    const why = search ? "No setting has that in its name or value." : runs.length > 1 ? "These runs have the same settings." : "One run is chosen: choose a second one to compare, or show all settings.";
    box.replaceChildren(h("p", { class: "nothing" }, why));
    return;
  }
  const head = h("tr", {}, h("th", { scope: "col" }, "setting"), runs.map((run) => h("th", { scope: "col" }, lineMark(slotOf(run.id)), " ", run.name)));
  const lines = rows.map((key) => h("tr", { class: differs(key) ? "differs" : "" }, h("th", { scope: "row" }, key), cells(values(key))));
  box.replaceChildren(h("table", {}, h("thead", {}, head), h("tbody", {}, lines)));
}

// The most frequent value is plain, the others stand out.
function cells(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  const usual = [...counts].sort((a, b) => b[1] - a[1])[0][0];
  const odd = counts.size > 1 && values.length > 2;
  return values.map((value) => h("td", { class: odd && value !== usual ? "odd" : "" }, value === undefined ? h("span", { class: "soft" }, "not set") : value));
}

on("state", fetchThem);
on("runs", fetchThem);
