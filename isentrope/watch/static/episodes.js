// The list of episodes with its filters; one page at a time comes from the server.

import { lineMark } from "./colours.js";
import { chosenRuns, data, slotOf } from "./data.js";
import { ask, h, later, many, short } from "./dom.js";
import { leaveEpisode, showEpisode } from "./episode.js";
import { go, on, state } from "./state.js";

const FLAGS = [
  ["high", "wrong but high reward", "Failed, though its return is above 0 or above the median of its step"],
  ["invalid", "invalid turns", "With a response that was no valid action"],
  ["duplicated", "repeats itself", "With a response that says a sentence more than once"],
];
const FEW = 10; // episodes; while fewer were found, the search goes on by itself
let root = null;
let rows = [];
let found = null; // the last answer
let totals = null;
let asked = "";
let askedAt = 0; // records of the chosen runs then; a run that goes on stores more episodes
let turn = 0; // the question whose answer counts
let scroll = 0;
let seen = { kinds: new Set(), stops: new Set(), sources: new Set() };

export function showEpisodes(main) {
  root = h("div", { class: "episodes" });
  main.replaceChildren(root);
  asked = "";
  update();
}

export function leaveEpisodes() {
  leaveEpisode();
  root = null;
}

// The list, or the episode that is open.
function update() {
  if (!root) return;
  if (state.open) {
    if (root.dataset.now !== "one") scroll = document.scrollingElement.scrollTop;
    root.dataset.now = "one";
    showEpisode(root);
    return;
  }
  if (root.dataset.now !== "list") {
    leaveEpisode();
    root.dataset.now = "list";
    root.replaceChildren(filters(), h("p", { id: "episode-count", class: "soft", role: "status" }), h("div", { id: "episode-list" }));
    fill();
    document.scrollingElement.scrollTop = scroll;
  }
  search();
}

const question = () => ({ ...Object.fromEntries(Object.entries(state.filters).filter(([, value]) => value)), runs: chosenRuns().map((run) => run.id).join(",") });

const records = () => chosenRuns().reduce((sum, run) => sum + run.rows, 0);

// The list does not change under the reader's eyes; it can be asked for anew.
function lookAgain() {
  asked = "";
  search();
}

async function search() {
  const wanted = question();
  if (!data.loaded) return;
  if (JSON.stringify(wanted) === asked) { showCount(); return; }
  asked = JSON.stringify(wanted);
  askedAt = records();
  rows = [];
  found = null;
  totals = null;
  scroll = 0;
  const mine = ++turn;
  fill();
  await more(mine, Math.min(FEW, 10));
  count(mine, wanted);
}

// Fetch on until there are enough to look at: rare episodes may take several looks.
async function more(mine, enough) {
  const before = rows.length;
  do {
    let answer;
    try {
      answer = await ask("episodes", { ...question(), place: found?.next || "" });
    } catch (error) {
      answer = { rows: [], next: "", broken: [error.message], looked: 0, files: 0, kinds: [], stops: [], sources: [], all_files: 0 };
    }
    if (mine !== turn || !root) return;
    const looked = (found?.looked || 0) + answer.looked;
    found = { ...answer, looked, broken: [...new Set([...(found?.broken || []), ...answer.broken])] };
    rows = rows.concat(answer.rows);
    fill();
  } while (found.next && rows.length - before < enough);
}

async function count(mine, wanted) {
  const sums = { matched: 0, episodes: 0 };
  let place = "";
  do {
    const answer = await ask("count", { ...wanted, place }).catch(() => ({ unknown: true }));
    if (mine !== turn || !root || answer.unknown) return;
    sums.matched += answer.matched;
    sums.episodes += answer.episodes;
    place = answer.next;
    totals = { ...sums, done: !place };
    showCount();
  } while (place);
}

function filters() {
  const set = (name, value) => go({ filters: { ...state.filters, [name]: value } });
  const field = (name, props) => h("input", { ...props, value: state.filters[name] || "", data: { filter: name },
    on: { input: later((event) => set(name, event.target.value.trim()), 350) } });
  const select = (name, label) => h("label", {}, label, h("select", { data: { filter: name }, on: { change: (event) => set(name, event.target.value) } }));
  const flags = FLAGS.map(([name, text, title]) => h("label", { title, class: "flag" }, h("input", { type: "checkbox", data: { filter: name },
    checked: state.filters[name] === "1", on: { change: (event) => set(name, event.target.checked ? "1" : "") } }), text));
  return h("div", { class: "controls filters" },
    field("text", { type: "search", id: "episode-search", placeholder: "Text in goal, action or observation", "aria-label": "Text in goal, action or observation" }),
    select("outcome", "Outcome"), select("kind", "Task type"), select("source", "From"), select("stop", "Ended"),
    h("span", { class: "zoom" }, "Steps", field("from", { type: "number", min: 0, "aria-label": "first step" }), "–", field("to", { type: "number", min: 0, "aria-label": "last step" })),
    select("order", "Order"), flags,
    h("button", { id: "no-filters", on: { click: () => { go({ filters: {} }); root.dataset.now = ""; update(); } } }, "No filters"));
}

function fillSelects() {
  for (const [name, values] of [["kinds", found?.kinds], ["stops", found?.stops], ["sources", found?.sources]]) {
    for (const value of values || []) seen[name].add(value);
  }
  const named = (values) => [["", "any"], ...[...values].sort().map((value) => [value, value])];
  const evals = [...seen.sources].filter((source) => source.startsWith("eval "));
  const sources = evals.length > 1 ? [...seen.sources, "eval"] : seen.sources;
  const options = {
    outcome: [["", "any"], ["solved", "solved"], ["failed", "failed"]],
    kind: named(seen.kinds), stop: named(seen.stops), source: named(sources),
    order: [["", "newest first"], ["oldest", "oldest first"]],
  };
  for (const [name, choices] of Object.entries(options)) {
    const select = root.querySelector(`select[data-filter=${name}]`);
    const value = state.filters[name] || "";
    if (value && !choices.some(([one]) => one === value)) choices.push([value, value]);
    const now = JSON.stringify(choices);
    if (select.dataset.now !== now) select.replaceChildren(...choices.map(([one, text]) => h("option", { value: one }, text)));
    select.dataset.now = now;
    select.value = value;
  }
}

function fill() {
  if (!root || state.open) return;
  fillSelects();
  root.querySelector("#no-filters").disabled = !Object.values(state.filters).some(Boolean);
  showCount();
  const list = root.querySelector("#episode-list");
  const runs = new Map(data.runs.map((run) => [run.id, run]));
  const several = chosenRuns().length > 1;
  const head = h("tr", {}, [several ? "run" : null, "step", "from", "result", "return", "turns", "group", "ended", "task"].filter(Boolean).map((title) => h("th", { scope: "col" }, title)));
  const table = h("table", { class: "episode-table" }, h("thead", {}, head), h("tbody", {}, rows.map((row) => line(row, several ? runs.get(row.run) : null))));
  const next = found?.next ? h("button", { id: "more", on: { click: () => { const mine = turn; more(mine, 1); } } }, "More episodes") : null;
  list.replaceChildren(...(rows.length ? [table] : []), ...(found?.broken || []).map((text) => h("p", { class: "problem" }, text)), next || "");
}

function showCount() {
  const box = root.querySelector("#episode-count");
  if (!box) return;
  if (!found) { box.textContent = data.loaded ? "Looking …" : ""; box.dataset.now = ""; return; }
  if (!found.all_files) {
    if (records() !== askedAt) { lookAgain(); return; }
    box.textContent = chosenRuns().length ? "The chosen runs stored no episodes (run.store_episodes says how often they do)." : "Choose runs on the left.";
    return;
  }
  const known = totals ? `${totals.matched.toLocaleString("en")} of ${many(totals.episodes, "episode")}${totals.done ? "" : " so far"}` : `${many(rows.length, "episode")} shown`;
  const rest = found.next && !totals ? `, ${found.looked} of ${many(found.files, "file")} looked through` : "";
  const text = !rows.length && !found.next ? `No episode fits (${many(found.files, "file")} looked through).` : known + rest;
  const older = records() !== askedAt;
  if (box.dataset.now === `${text} ${older}`) return; // a button that has the focus keeps it
  box.dataset.now = `${text} ${older}`;
  box.textContent = text;
  if (older) box.append(" · the runs went on: ", h("button", { id: "look-again", on: { click: lookAgain } }, "look for newer ones"));
}

function line(row, run) {
  const refused = Object.entries(row.verdicts).map(([reason, times]) => `${reason}${times > 1 ? ` ×${times}` : ""}`).join(", ");
  const open = () => go({ open: { run: row.run, file: row.file, number: row.number }, beside: null }, true);
  const click = (event) => { if (event.button === 0 && !event.ctrlKey && !event.metaKey) { event.preventDefault(); open(); } };
  const link = h("button", { class: "link", on: { click } }, row.goal || "(no goal)");
  return h("tr", { on: { click: (event) => { if (!event.target.closest("button")) open(); } } },
    run ? h("td", { class: "run-cell" }, lineMark(slotOf(run.id)), " ", run.name) : null,
    cell("step", row.step), cell("from", row.source),
    h("td", {}, h("span", { class: `badge ${row.success ? "good" : "bad"}` }, row.success ? "solved" : "failed")),
    cell("return", short(row.return)), cell("turns", row.turns), cell("group", `${row.group} · ${row.member}`), cell("ended", row.stop),
    h("td", { class: "task" }, h("span", { class: "kind" }, row.kind), " ", link, refused ? h("span", { class: "refused" }, refused) : null));
}

const cell = (title, value) => h("td", { data: { title } }, String(value));

// The next or previous episode of the list, while one is being read.
export function moveInList(by) {
  if (!state.open) return;
  const at = rows.findIndex((row) => row.run === state.open.run && row.file === state.open.file && row.number === state.open.number);
  const row = rows[at + by];
  if (at >= 0 && row) go({ open: { run: row.run, file: row.file, number: row.number }, beside: null });
}

on("state", update);
on("runs", update);
