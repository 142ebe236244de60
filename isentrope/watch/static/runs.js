// The list of runs: search, choose, see how far each is.

import { lineMark, onScheme } from "./colours.js";
import { chosenRuns, data, shownSlot, slotOf } from "./data.js";
import { ago, breakable, byId, h, many, share } from "./dom.js";
import { go, on, state, tell } from "./state.js";

let search = "";
let shown = "";

export function showRuns() {
  const field = h("input", { type: "search", id: "run-search", placeholder: "Find runs", "aria-label": "Find runs by name",
    on: { input: (event) => { search = event.target.value.toLowerCase(); fill(); } } });
  const all = h("button", { on: { click: () => choose([...new Set([...ids(), ...fitting().map((run) => run.id)])]) } }, "All");
  const none = h("button", { on: { click: () => choose(search ? ids().filter((id) => !fitting().some((run) => run.id === id)) : []) } }, "None");
  byId("runs").replaceChildren(h("details", { open: innerWidth > 820, id: "run-box" },
    h("summary", {}, h("h2", {}, "Runs"), h("span", { id: "run-count", class: "soft" })),
    h("div", { class: "run-tools" }, field, all, none),
    h("ul", { id: "run-list" })));
  fill();
}

const ids = () => chosenRuns().map((run) => run.id);
const fitting = () => data.runs.filter((run) => `${run.name} ${run.path}`.toLowerCase().includes(search));

export function choose(chosen) {
  go({ chosen, phases: chosen.includes(state.phases) || state.phases === "none" ? state.phases : "" });
  tell("chosen");
}

export function toggle(id) {
  const now = ids();
  choose(now.includes(id) ? now.filter((other) => other !== id) : [...now, id]);
}

function fill() {
  const list = byId("run-list");
  if (!list) return;
  const chosen = new Set(ids());
  const runs = fitting();
  const groups = new Map();
  for (const run of data.runs) groups.set(run.group, (groups.get(run.group) || 0) + 1);
  const now = JSON.stringify([runs.map(({ age, rows, seconds, per_hour, tokens_per_second, memory, clock_rows, ...run }) => ({ ...run, age: ago(age) })), [...chosen].map((id) => [id, slotOf(id)]), state.seeds, state.base, matchMedia("(prefers-color-scheme: dark)").matches]);
  byId("run-count").textContent = `${chosen.size} of ${many(data.runs.length, "run")} shown`;
  if (now === shown && list.childElementCount) return;
  shown = now;
  const focused = document.activeElement?.dataset?.run;
  list.replaceChildren(...runs.map((run) => line(run, chosen.has(run.id), groups.get(run.group))));
  if (!runs.length) list.append(h("li", { class: "soft" }, data.runs.length ? "No run is called that." : "No runs yet."));
  if (focused) list.querySelector(`input[data-run="${CSS.escape(focused)}"]`)?.focus();
}

// Whether the name says the seed already: grpo-seed0, grpo-0.
const named = (run) => /seed/i.test(run.name) || /(\d+)\D*$/.exec(run.name)?.[1] === run.seed;

const PAGES = { report: "The run's page, made now", doctor: "What happened, and what to try" };
export const pageLinks = (run) => Object.entries(PAGES).map(([kind, title]) =>
  h("a", { href: `${kind}/${run.id}`, target: "_blank", rel: "noopener", title }, kind));

function line(run, isChosen, sameGroup) {
  const box = h("input", { type: "checkbox", checked: isChosen, data: { run: run.id }, on: { change: () => toggle(run.id) } });
  const of = run.steps && run.kind === "train" ? `/${run.steps}` : "";
  const step = run.step >= 0 ? `${of ? "" : "step "}${run.step}${of}` : "";
  const ofWhat = run.success_of ? `success on ${run.success_of} games` : "success in training";
  const success = run.success === null ? "" : h("span", { title: `${ofWhat}, measured last` }, share(run.success));
  const facts = [step, success, run.kind === "train" ? "" : run.kind,
    sameGroup > 1 && run.seed !== "" && !named(run) ? `seed\u00a0${run.seed}` : ""].filter(Boolean).flatMap((fact) => [" · ", fact]);
  const progress = run.steps && run.kind === "train" ? Math.min(1, Math.max(0, run.step / run.steps)) : null;
  const bar = h("span", { class: "bar" });
  if (progress !== null) bar.style.setProperty("--done", `${100 * progress}%`);
  const pages = h("span", { class: "pages" }, run.id === state.base ? h("b", { class: "is-base", title: "The baseline" }, "★ baseline") : null,
    pageLinks(run));
  return h("li", { class: isChosen ? "chosen" : "" }, h("label", { title: run.path },
    box,
    isChosen ? lineMark(shownSlot(run)) : h("span", { class: "mark" }),
    h("span", { class: "name" }, breakable(run.name)),
    h("span", { class: "facts" },
      h("span", { class: `status ${run.status}`, title: run.age === null ? "" : `last written ${ago(run.age)}` }, run.status), facts),
    progress === null ? null : bar,
    run.problems.map((problem) => h("span", { class: "problem" }, problem))), run.rows ? pages : null);
}

on("runs", fill);
on("state", fill);
onScheme(fill);
