// The table of all runs: sorted, grouped and filtered by any setting, with notes and differences to a baseline.

import { lineMark, onScheme } from "./colours.js";
import { columnsOf, fits, isFixed, order, settingOf } from "./columns.js";
import { chosenRuns, data, runById, shownSlot } from "./data.js";
import { ask, breakable, h, later, many, save, share } from "./dom.js";
import { cell } from "./download.js";
import { MOST_LETTERS, loadNotes, saveNotes, setNote } from "./notes.js";
import { choose, pageLinks, toggle } from "./runs.js";
import { go, on, state } from "./state.js";

const PAGE = 200; // rows
const none = { alike: {}, differing: [], runs: {}, left_out: 0 };
let root = null;
let table = none;
let last = {};
let seen = "";
let shown = "";
let size = PAGE;

export function showTable(main) {
  size = PAGE;
  seen = shown = "";
  root = h("div", { class: "runs-table" }, tools(), h("p", { id: "table-told", class: "soft", role: "status" }), h("div", { class: "table-box card", id: "table" }));
  main.replaceChildren(root);
  fill();
  fetchThem();
}

export function leaveTable() { root = null; }

const change = (changes, remember = false) => go({ table: { ...state.table, ...changes } }, remember);

function tools() {
  const where = h("input", { type: "search", id: "table-where", value: state.table.where, placeholder: "Filter: grpo learn.lr=1e-4 step>20", "aria-label": "Filter the runs by words and settings",
    title: "Words have to be in a run's name, settings or note. Conditions: learn.lr=1e-4, success>0.5, status!=empty",
    on: { input: later((event) => { size = PAGE; change({ where: event.target.value }); }, 120) } });
  const group = h("select", { id: "table-group", on: { change: (event) => change({ group: event.target.value }) } });
  const names = h("datalist", { id: "column-names" });
  const column = h("input", { id: "table-column", list: "column-names", placeholder: "Add a column: a setting, a metric", "aria-label": "Add a column", autocomplete: "off",
    on: { change: (event) => { addColumn(event.target); } } });
  return h("div", { class: "controls" }, where, h("label", {}, "Group by", group), column, names,
    h("button", { on: { click: () => save("runs.csv", "text/csv", csvText()) } }, "Table as CSV"),
    h("span", { class: "together" }, "Notes", h("button", { on: { click: saveNotes } }, "save"), h("button", { on: { click: () => loadNotes(tellNotes) } }, "load"), h("span", { id: "notes-told", class: "soft", role: "status" })));
}

const tellNotes = (text) => { root?.querySelector("#notes-told").replaceChildren(text); };

function addColumn(field) {
  const key = field.value.trim();
  const known = data.keys.some((meta) => meta.key === key) || Object.hasOwn(table.alike, key) || table.differing.includes(key);
  if (!known) { field.setCustomValidity(key ? "No setting or metric is called that." : ""); field.reportValidity(); return; }
  field.setCustomValidity("");
  field.value = "";
  if (!state.table.columns.includes(key)) change({ columns: [...state.table.columns, key].slice(-24) });
}

// Settings are asked for again when runs come or begin anew, last values with every look.
async function fetchThem() {
  if (!root) return;
  const runs = data.runs.map((run) => `${run.id}:${run.begun}`).join();
  const metrics = state.table.columns.filter((key) => data.keys.some((meta) => meta.key === key));
  try {
    if (runs !== seen) { table = await ask("table"); seen = runs; }
    if (metrics.length) {
      const found = (await ask("last", { key: metrics })).last;
      last = Object.fromEntries(Object.entries(found).map(([id, values]) => [id, Object.fromEntries(metrics.map((key, at) => [key, values[at]]))]));
    }
  } catch { return; } // the frame says that the server does not answer
  fill();
}

const columns = () => columnsOf(table, last, state.table.columns, new Map(data.keys.map((meta) => [meta.key, meta])));

function rowsOf(shownColumns) {
  const runs = data.runs.filter((run) => fits(run, state.table.where, shownColumns, table));
  const [, down, key] = /^(-?)(.*)$/.exec(state.table.sort);
  const by = key === "name" ? (run) => run.name : shownColumns.find((one) => one.key === key)?.of || (key ? (run) => settingOf(table, run, key) : null);
  if (!by) return runs;
  const missing = (run) => [null, undefined, ""].includes(by(run));
  return [...runs].sort((a, b) => (missing(a) || missing(b) ? order(by(a), by(b)) : (down ? -1 : 1) * order(by(a), by(b))));
}

function fill() {
  if (!root) return;
  fillTools();
  if (root.querySelector("#table textarea:focus")) return; // somebody writes a note
  const all = columns();
  const rows = rowsOf(all);
  const now = JSON.stringify([rows.map((run) => all.map((one) => one.show(run))), rows.map((run) => run.id), state.table, state.base, size, chosenRuns().map((run) => [run.id, shownSlot(run)])]);
  root.querySelector("#table-told").textContent = told(rows);
  if (now === shown) return;
  shown = now;
  const box = root.querySelector("#table");
  const [left, focus] = [box.scrollLeft, document.activeElement?.dataset?.focus];
  box.replaceChildren(...(rows.length ? drawn(rows, all) : [h("p", { class: "nothing" }, data.runs.length ? "No run fits the filter." : "No runs yet.")]));
  box.scrollLeft = left;
  if (focus) box.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
}

function told(rows) {
  const base = runById(state.base);
  const parts = [`${rows.length === data.runs.length ? "" : `${rows.length} of `}${many(data.runs.length, "run")}`];
  parts.push(base ? `compared with ${base.name}: differences in small print, other settings marked ≠` : "☆ makes a run the baseline of the others");
  if (table.left_out) parts.push(`${many(table.left_out, "setting")} that differ are not shown: too many`);
  return `${parts.join(" · ")}.`;
}

function fillTools() {
  const group = root.querySelector("#table-group");
  const keys = ["", "status", "kind", "group", ...table.differing, ...Object.keys(table.alike)];
  const now = keys.join();
  if (group.dataset.now !== now) {
    group.dataset.now = now;
    const title = (key) => ({ "": "nothing", group: "all settings but the seed" })[key] ?? key;
    group.replaceChildren(...keys.map((key) => h("option", { value: key }, title(key))));
    const names = [...table.differing, ...Object.keys(table.alike), ...data.keys.map((meta) => meta.key)];
    root.querySelector("#column-names").replaceChildren(...names.map((key) => h("option", { value: key })));
  }
  group.value = keys.includes(state.table.group) ? state.table.group : "";
  const where = root.querySelector("#table-where");
  if (document.activeElement !== where) where.value = state.table.where;
}

function drawn(rows, all) {
  const head = h("tr", {}, h("th", { scope: "col" }, h("span", { class: "away" }, "shown")), heading("name", "run"), all.map((one) => heading(one.key, one.title, one)));
  const visible = grouped(rows).flatMap(([name, members]) => [...(name === null ? [] : [groupRow(name, members, all.length + 2)]), ...members]);
  const body = visible.slice(0, size).map((one) => (one instanceof Node ? one : line(one, all)));
  const more = visible.length > size ? [h("button", { id: "more-runs", on: { click: () => { size += PAGE; fill(); } } }, `Show more: ${visible.length - size} left`)] : [];
  return [h("table", {}, h("thead", {}, head), h("tbody", {}, body)), ...more];
}

function heading(key, title, column = {}) {
  if (key === "pages") return h("th", { scope: "col" }, h("span", { class: "sort" }, title));
  const sorted = state.table.sort === key ? "ascending" : state.table.sort === `-${key}` ? "descending" : "none";
  const next = { none: column.number ? `-${key}` : key, ascending: column.number ? "" : `-${key}`, descending: column.number ? key : "" }[sorted];
  const sign = { ascending: " ↑", descending: " ↓", none: "" }[sorted];
  const sort = h("button", { class: "sort", title: column.help || `Sort by ${title}`, data: { focus: `sort ${key}` }, on: { click: () => change({ sort: next }) } }, title, sign);
  const away = column.added ? h("button", { class: "plain", title: `Take ${title} away`, "aria-label": `Take ${title} away`, on: { click: () => change({ columns: state.table.columns.filter((one) => one !== key) }) } }, "×") : null;
  return h("th", { scope: "col", class: column.number ? "number" : "", "aria-sort": sorted }, sort, away);
}

function grouped(rows) {
  const by = state.table.group;
  if (!by) return [[null, rows]];
  const groups = new Map();
  for (const run of rows) {
    const value = ["status", "kind", "group"].includes(by) ? run[by] : settingOf(table, run, by) ?? "not set";
    groups.set(value, [...(groups.get(value) || []), run]);
  }
  const named = [...groups].map(([value, members]) => [by === "group" ? `${members[0].name}${members.length > 1 ? ` and ${members.length - 1} more` : ""}` : `${by} = ${value}`, members, value]);
  return by === "group" ? named : named.sort((a, b) => order(a[2], b[2]));
}

function groupRow(name, members, width) {
  const known = members.map((run) => run.success).filter((value) => value !== null);
  const mean = known.length ? ` · mean success ${share(known.reduce((a, b) => a + b, 0) / known.length)}` : "";
  const ids = members.map((run) => run.id);
  const show = h("button", { on: { click: () => choose(ids) } }, "show only these");
  return h("tr", { class: "group" }, h("th", { colspan: width, scope: "rowgroup" }, h("span", {}, h("b", {}, name), ` · ${many(members.length, "run")}${mean} `, show)));
}

function line(run, all) {
  const chosen = chosenRuns().some((one) => one.id === run.id);
  const box = h("input", { type: "checkbox", checked: chosen, "aria-label": `Show ${run.name} in the curves`, data: { focus: `box ${run.id}` }, on: { change: () => toggle(run.id) } });
  const isBase = run.id === state.base;
  const pin = h("button", { class: "pin", "aria-pressed": String(isBase), title: isBase ? "No longer the baseline" : "Make it the baseline", "aria-label": `Baseline: ${run.name}`, data: { focus: `pin ${run.id}` },
    on: { click: () => setBase(isBase ? "" : run.id) } }, isBase ? "★" : "☆");
  const name = h("th", { scope: "row", title: run.path }, h("span", { class: "named" }, pin, chosen ? lineMark(shownSlot(run)) : null, h("span", {}, breakable(run.name))));
  return h("tr", { class: isBase ? "base" : "", data: { run: run.id } }, h("td", {}, h("label", { class: "target" }, box)), name, all.map((one) => entry(run, one)));
}

export function setBase(id) {
  const chosen = chosenRuns().map((run) => run.id);
  if (id && !chosen.includes(id)) choose([...chosen, id]); // its curve is needed too
  go({ base: id, less: id ? state.less : false });
}

function entry(run, column) {
  if (column.key === "note") return h("td", { class: "note" }, noteField(run, column.show(run)));
  if (column.key === "pages") return h("td", {}, h("span", { class: "pages" }, run.rows ? pageLinks(run) : null));
  if (column.key === "status") return h("td", {}, h("span", { class: `status ${run.status}` }, run.status));
  const base = runById(state.base);
  const [value, under] = [column.of(run), base && base.id !== run.id ? column.of(base) : undefined];
  const has = (one) => one !== null && one !== undefined;
  if (!column.setting) {
    const delta = column.plus && has(value) && has(under) ? column.plus(value, under) : "";
    return h("td", { class: column.number ? "number" : "" }, column.show(run), delta ? h("small", { class: "delta" }, delta) : null);
  }
  const other = base && base.id !== run.id && String(value ?? "") !== String(under ?? "");
  const text = column.show(run);
  const filter = () => change({ where: `${state.table.where} ${column.key}=${value ?? ""}`.trim() });
  const simple = has(value) && !/\s/.test(String(value));
  return h("td", { class: `setting${other ? " odd" : ""}` }, other ? "≠ " : "",
    simple ? h("button", { class: "value", title: `Only runs with ${column.key}=${value}`, on: { click: filter } }, text) : text);
}

// Kept while it is written: a tab may be closed in the middle.
function noteField(run, text) {
  const keep = (value) => { if (!setNote(run, value)) tellNotes("This browser does not keep notes: save them to a file."); };
  const soon = later(keep, 500);
  const field = h("textarea", { rows: 1, maxlength: MOST_LETTERS, "aria-label": `Note on ${run.name}`, placeholder: "…", data: { focus: `note ${run.id}` },
    on: { input: () => soon(field.value), change: () => keep(field.value), blur: later(fill, 0) } });
  field.value = text;
  return field;
}

function csvText() {
  const all = columns().filter((one) => one.key !== "pages");
  const rows = [["run", ...all.map((one) => one.key), "path"], ...rowsOf(all).map((run) => [run.name, ...all.map((one) => one.of(run)), run.path])];
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

on("runs", fetchThem);
on("state", () => { if (root) { fill(); if (state.table.columns.some((key) => !isFixed(key) && !last[data.runs[0]?.id]?.[key])) fetchThem(); } });
on("notes", fill);
onScheme(() => { shown = ""; fill(); });
