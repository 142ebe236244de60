// The columns of the table of runs: what each shows, what it is sorted by, and its difference to the baseline.

import { span } from "./axis.js";
import { ago, share, short } from "./dom.js";
import { noteOf } from "./notes.js";

const number = (value) => (value === null || value === undefined ? null : value);

// {key, title, of: what is sorted and compared, show: its text, plus: the text of a difference, help}
const FIXED = [
  { key: "status", title: "status", of: (run) => run.status, show: (run) => run.status },
  { key: "step", title: "step", of: (run) => run.step, show: (run) => (run.step < 0 ? "" : `${run.step}${run.steps && run.kind === "train" ? ` of ${run.steps}` : ""}`), number: true },
  { key: "success", title: "success", of: (run) => number(run.success), show: (run) => share(run.success), plus: points, number: true,
    help: "Measured last: on the evaluated games, else in training" },
  { key: "per_hour", title: "steps/h", of: (run) => number(run.per_hour), show: (run) => short(run.per_hour), plus: ratio, number: true,
    help: "Steps an hour over the last ten steps" },
  { key: "tokens_per_second", title: "tokens/s", of: (run) => number(run.tokens_per_second), show: (run) => short(run.tokens_per_second), plus: ratio, number: true,
    help: "Tokens sampled a second, in the last step" },
  { key: "memory", title: "GiB", of: (run) => number(run.memory), show: (run) => short(run.memory), plus: ratio, number: true,
    help: "Most memory held so far: the GPU's where one is used, else main memory" },
  { key: "seconds", title: "time", of: (run) => run.seconds || null, show: (run) => (run.seconds ? span(run.seconds) : "–"), plus: ratio, number: true,
    help: "Of all steps and evaluations" },
];
const NOTE = { key: "note", title: "note", of: (run) => noteOf(run.id), show: (run) => noteOf(run.id) };
const PAGES = { key: "pages", title: "pages", of: () => "", show: () => "" };
const AGE = { key: "age", title: "written", of: (run) => number(run.age), show: (run) => ago(run.age), number: true };
const PLACES = [...FIXED, NOTE, PAGES, AGE].map((column) => column.key);

function points(value, base) {
  const difference = 100 * (value - base);
  return `${difference > 0 ? "+" : difference < 0 ? "−" : "±"}${Math.abs(difference).toFixed(1)}`;
}

function ratio(value, base) {
  return base > 0 ? `× ${(value / base).toFixed(2)}` : "";
}

function plain(value, base) {
  return `${value > base ? "+" : value < base ? "−" : "±"}${short(Math.abs(value - base))}`;
}

// The value of a setting of a run, as text; undefined: it has no such setting.
export function settingOf(table, run, key) {
  if (Object.hasOwn(table.alike, key)) return table.alike[key];
  const at = table.differing.indexOf(key);
  return at < 0 ? undefined : table.runs[run.id]?.[at] ?? undefined;
}

// Text that is a number is compared as one.
export function order(a, b) {
  const [empty, other] = [a, b].map((value) => value === null || value === undefined || value === "");
  if (empty || other) return empty - other; // what is not there comes last, both ways
  const [x, y] = [a, b].map((value) => (typeof value === "number" ? value : Number(value)));
  return Number.isFinite(x) && Number.isFinite(y) ? x - y : String(a).localeCompare(String(b), "en", { numeric: true });
}

export function columnsOf(table, last, added, metas) {
  const chosen = added.map((key) => (metas.has(key) ? metric(key, metas.get(key), last) : setting(key, table)));
  const differing = table.differing.filter((key) => !added.includes(key) && !HIDDEN.has(key)).slice(0, SHOWN).map((key) => setting(key, table));
  return [...FIXED, ...chosen.map((column) => ({ ...column, added: true })), NOTE, PAGES, ...differing, AGE];
}

const HIDDEN = new Set(["run.steps"]); // beside the step
const SHOWN = 8; // of the settings that differ; others by name

function setting(key, table) {
  const of = (run) => settingOf(table, run, key);
  return { key, title: key, of, show: (run) => of(run) ?? "–", setting: true };
}

function metric(key, meta, last) {
  const of = (run) => number(last[run.id]?.[key]);
  const percent = meta.unit === "share";
  return { key, title: meta.shown, of, show: (run) => (percent && of(run) !== null ? share(of(run)) : short(of(run))), plus: percent ? points : plain, number: true, help: meta.text };
}

// Words that all have to be in a run's name, path, note or settings, and conditions: learn.lr=1e-4, step>20, status!=empty.
export function fits(run, where, columns, table) {
  return where.split(/\s+/).filter(Boolean).every((part) => {
    const found = /^([\w./{}:-]+?)(!=|>=|<=|=|>|<)(.*)$/.exec(part);
    if (!found) return wordsOf(run, table).includes(part.toLowerCase());
    const [, key, sign, wanted] = found;
    const column = columns.find((one) => one.key === key);
    const value = column ? column.of(run) : settingOf(table, run, key);
    return compare(value, sign, wanted);
  });
}

function compare(value, sign, wanted) {
  const told = value === null || value === undefined ? "" : String(value);
  const numbers = told !== "" && wanted !== "" && Number.isFinite(Number(told)) && Number.isFinite(Number(wanted));
  const equal = numbers ? Number(told) === Number(wanted) : told.toLowerCase() === wanted.toLowerCase();
  if (sign === "=") return equal;
  if (sign === "!=") return !equal;
  if (!numbers) return false;
  const difference = Number(told) - Number(wanted);
  return sign[0] === ">" ? difference > 0 || (sign === ">=" && equal) : difference < 0 || (sign === "<=" && equal);
}

const wordsOf = (run, table) => `${run.name} ${run.path} ${run.kind} ${run.status} ${noteOf(run.id)} ${(table.runs[run.id] || []).join(" ")}`.toLowerCase();

export const isFixed = (key) => PLACES.includes(key) || key === "name";
