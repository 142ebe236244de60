// The frame: views, keys, and the watch over the server.

import { leaveCurves, showCurves } from "./curves.js";
import { chosenRuns, data, refresh } from "./data.js";
import { byId, h, hideTip } from "./dom.js";
import { leaveEpisodes, moveInList, showEpisodes } from "./episodes.js";
import { showRuns } from "./runs.js";
import { leaveSettings, showSettings } from "./settings.js";
import { leaveTable, showTable } from "./table.js";
import { go, on, readAddress, state, tell } from "./state.js";

const VIEWS = {
  curves: ["Curves", showCurves, leaveCurves],
  settings: ["Settings", showSettings, leaveSettings],
  episodes: ["Episodes", showEpisodes, leaveEpisodes],
  table: ["Table", showTable, leaveTable],
};
const KEYS = [
  ["1 2 3 4", "curves, settings, episodes, table of runs"], ["/", "search: runs, episodes while reading them, the table"], ["p", "add a plot"],
  ["l", "log scale"], ["[ ]", "less, more smoothing"], ["0", "the whole run (also: double click a plot)"],
  ["j k", "next, previous episode of the list"], ["Esc", "back to the list"], ["?", "this list"],
];
const SEARCH = { episodes: "episode-search", table: "table-where" };
let shown = "";

function showView() {
  if (shown !== state.view) {
    hideTip();
    if (shown) VIEWS[shown][2]();
    shown = state.view;
    byId("layout").dataset.view = shown;
    VIEWS[shown][1](byId("main"));
  }
  for (const link of document.querySelectorAll("#views button")) {
    if (link.dataset.view === shown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function showLive() {
  const running = data.runs.filter((run) => run.status === "running").length;
  byId("live").className = data.problem ? "bad" : "";
  const reading = data.unread ? `reading, ${data.unread} runs to go` : "";
  byId("live").textContent = data.problem || reading || (running ? `● live, ${running} running` : "● live");
}

function press(event) {
  const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing) return;
  const acts = {
    1: () => go({ view: "curves" }, true),
    2: () => go({ view: "settings" }, true),
    3: () => go({ view: "episodes" }, true),
    4: () => go({ view: "table" }, true),
    "/": () => (byId(SEARCH[state.view]) || byId("run-search"))?.focus(),
    p: () => byId("pick")?.focus(),
    l: () => go({ log: !state.log }),
    "[": () => go({ smooth: Math.max(0, Number((state.smooth - 0.1).toFixed(2))) }),
    "]": () => go({ smooth: Math.min(0.98, Number((state.smooth + 0.1).toFixed(2))) }),
    0: () => go({ zoom: null }),
    j: () => moveInList(1),
    k: () => moveInList(-1),
    Escape: () => state.open && go({ open: null, beside: null }, true),
    "?": () => byId("keys").showModal(),
  };
  if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
}

function start() {
  byId("views").replaceChildren(...Object.entries(VIEWS).map(([view, [title]]) =>
    h("button", { data: { view }, on: { click: () => go({ view }, true) } }, title)));
  byId("keys").replaceChildren(h("h2", {}, "Keys"), h("dl", {}, KEYS.flatMap(([key, text]) => [h("dt", {}, key), h("dd", {}, text)])),
    h("form", { method: "dialog" }, h("button", { on: { click: (event) => { event.preventDefault(); byId("keys").close(); } } }, "Close")));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  addEventListener("keydown", press);
  addEventListener("popstate", () => { readAddress(); tell("state"); tell("chosen"); });
  addEventListener("scroll", hideTip, { passive: true });
  readAddress();
  showRuns();
  on("state", showView);
  on("live", showLive);
  on("runs", () => { document.title = chosenRuns().length === 1 ? `${chosenRuns()[0].name} · Isentrope` : "Isentrope watch"; });
  showView();
  refresh();
}

start();
