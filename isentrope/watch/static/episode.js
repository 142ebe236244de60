// One episode turn by turn, or two of a group side by side.

import { ask, h, hideTip, many, short, showTip } from "./dom.js";
import { moveInList } from "./episodes.js";
import { go, state } from "./state.js";

const LEVELS = 8;
const MOST_NATS = 3;
const COLOURS = {
  entropy: ["entropy", "How open the choice of the token was, in nats"],
  surprisal: ["surprisal", "Minus the log-probability of the token, in nats"],
  advantage: ["advantage", "What the update was told: more of this (orange) or less (blue)"],
  ratio: ["ratio", "New over old probability in the update: raised (orange) or lowered (blue)"],
};
let shown = "";
let held = []; // the episodes on the screen
let apart = null;
let root = null;

export function leaveEpisode() { shown = ""; root = null; held = []; hideTip(); }

export async function showEpisode(box) {
  const { run, file, number } = state.open;
  const now = JSON.stringify([run, file, number, state.beside]);
  if (now === shown && root === box) { paint(); return; }
  shown = now;
  root = box;
  if (!box.querySelector(".reading")) box.replaceChildren(h("p", { class: "nothing" }, "Reading …"));
  try {
    const numbers = state.beside === null ? [number] : [number, state.beside];
    const views = await Promise.all(numbers.map((one) => ask("episode", { run, file, number: one })));
    const difference = numbers.length === 2 ? await ask("difference", { run, file, a: numbers[0], b: numbers[1] }) : { turn: null };
    if (now !== shown) return;
    held = views;
    apart = numbers.length === 2 ? difference.turn : undefined;
    draw();
    document.scrollingElement.scrollTop = 0;
  } catch (error) {
    if (now === shown) box.replaceChildren(back(), h("p", { class: "problem" }, `This episode cannot be shown: ${error.message}`));
  }
}

const back = () => h("button", { id: "back", on: { click: () => go({ open: null, beside: null }, true) } }, "← all episodes");

function draw() {
  const [one, other] = held;
  const step = (by, text) => h("button", { on: { click: () => moveInList(by) } }, text);
  const bar = h("div", { class: "controls" }, back(), step(-1, "previous"), step(1, "next"), colourChoice(), h("p", { class: "scale", id: "scale" }));
  const title = h("div", { class: "episode-head" }, h("h2", {}, one.goal || "(no goal)"), h("p", { class: "soft" },
    [one.run_name, `${one.source === "train" ? "training" : one.source}, step ${one.step}`, one.kind, `${one.world} game ${one.game}`, one.order].filter(Boolean).join(" · ")));
  const heads = held.map((episode, place) => h("p", { class: "column-head" },
    held.length > 1 ? h("b", {}, place ? "B " : "A ") : null,
    h("span", { class: `badge ${episode.success ? "good" : "bad"}` }, episode.success ? "solved" : "failed"),
    ` member ${episode.member} · return ${short(episode.return)} · ${many(episode.turns, "turn")} · ended: ${episode.stop}`,
    episode.detail ? h("span", { class: "problem" }, episode.detail) : null));
  const parts = other === undefined ? null : h("p", { class: "parting" }, apart === null ? "These two act the same in every turn." : `They part ways at turn ${apart + 1}.`,
    apart === null ? null : h("button", { on: { click: () => root.querySelector(".apart")?.scrollIntoView({ block: "center" }) } }, "Go there"));
  const grid = h("div", { class: `turns ${other ? "two" : ""}`, id: "turns" }, heads, turnRows());
  root.replaceChildren(h("div", { class: "reading" }, bar, title, members(one), parts, grid, moreTurns()));
  paint();
}

function colourChoice() {
  const choices = Object.entries(COLOURS).map(([name, [text, title]]) => {
    const there = held.some((episode) => episode.turn_list.some((turn) => turn[name]));
    return h("label", { title: there ? title : "Not stored for this episode" }, h("input", { type: "radio", name: "colour", value: name, checked: state.colour === name,
      disabled: !there, on: { change: () => go({ colour: name }) } }), text);
  });
  return h("fieldset", { class: "colours" }, h("legend", {}, "Tokens by"), choices);
}

function members(one) {
  if (one.members.length < 2) return null;
  const rows = one.members.map((row) => {
    const here = row.number === one.number;
    const beside = row.number === state.beside;
    const label = `${row.success ? "✓" : "✗"} ${row.member}`;
    const title = `${row.success ? "solved" : "failed"}, return ${short(row.return)}, ${many(row.turns, "turn")}`;
    return h("span", { class: `member ${row.success ? "good" : "bad"} ${here ? "here" : ""} ${beside ? "here" : ""}` },
      h("button", { title, "aria-current": here ? "true" : undefined, "aria-label": `member ${row.member}, ${title}`,
        on: { click: () => go({ open: { run: row.run, file: row.file, number: row.number }, beside: null }, true) } }, label),
      here ? null : h("button", { class: "besides", title: "side by side with the one open", "aria-label": `member ${row.member} side by side`,
        on: { click: () => go({ beside: beside ? null : row.number }, true) } }, beside ? "×" : "⇄"));
  });
  return h("div", { class: "members" }, h("span", { class: "soft" }, `Group ${one.group}, the same task:`), rows);
}

function turnRows() {
  const count = Math.max(...held.map((episode) => episode.turn_list.length));
  const rows = [];
  for (let place = 0; place < count; place++) {
    const here = apart === place && held.length > 1;
    if (here) rows.push(h("p", { class: "apart" }, `Turn ${place + 1}: the first different action`));
    held.forEach((episode, column) => {
      const turn = episode.turn_list[place];
      rows.push(turn ? turnCard(turn, place, column, here) : h("div", { class: "turn over" }, h("p", { class: "soft" }, place === episode.turn_list.length ? "ended" : "")));
    });
  }
  return rows;
}

function turnCard(turn, place, column, here) {
  const valid = turn.verdict === "ok";
  return h("article", { class: `turn ${here ? "differs" : ""}`, "aria-label": `turn ${turn.turn + 1}` },
    h("h3", {}, `${held.length > 1 ? `${"AB"[column]} · ` : ""}turn ${turn.turn + 1}`),
    turn.dropped ? h("p", { class: "soft" }, `The model no longer saw ${many(turn.dropped, "earlier turn")} here.`) : null,
    h("pre", { class: "observation" }, turn.observation),
    h("pre", { class: "response", data: { column, place } }, segments(turn)),
    turn.more_tokens ? h("p", { class: "soft" }, `… ${many(turn.more_tokens, "more token")}`) : null,
    h("p", { class: "sent" }, h("span", { class: "arrow" }, "→ "), turn.action === null ? h("span", { class: "soft" }, "no action") : h("code", {}, turn.action),
      valid ? null : h("span", { class: "badge bad" }, turn.verdict), turn.reward ? h("span", { class: "reward" }, `reward ${short(turn.reward)}`) : null,
      turn.stop === "length" ? h("span", { class: "badge bad" }, "cut off: too long") : null));
}

// The response as runs of tokens: thought, action, and the rest.
function segments(turn) {
  const inside = (span, place) => span && place >= span[0] && place < span[1];
  const part = (place) => (inside(turn.think, place) ? "think" : inside(turn.act, place) ? "act" : "rest");
  const spans = [];
  let last = "";
  turn.tokens.forEach((text, place) => {
    const name = part(place);
    if (name !== last) spans.push(h("span", { class: name }));
    last = name;
    spans.at(-1).append(h("i", { data: { at: place } }, text));
  });
  return spans;
}

function moreTurns() {
  const left = Math.max(...held.map((episode) => episode.more));
  if (!left) return null;
  return h("button", { id: "more-turns", on: { click: async () => {
    const { run, file } = state.open;
    for (const episode of held) {
      if (!episode.more) continue;
      const rest = await ask("episode", { run, file, number: episode.number, first: episode.turn_list.length });
      episode.turn_list.push(...rest.turn_list);
      episode.more = rest.more;
    }
    draw();
  } } }, `${many(left, "more turn")}`);
}

// Colours. Entropy and surprisal are finer near zero, where most tokens are; the other two have a sign.
function paint() {
  if (!root || !held.length) return;
  const name = state.colour;
  const most = Math.max(1e-9, ...held.flatMap((episode) => episode.turn_list.flatMap((turn) => (turn.advantage || []).map((v) => Math.abs(v || 0)))));
  for (const response of root.querySelectorAll(".response")) {
    const values = held[response.dataset.column].turn_list[response.dataset.place][name];
    for (const token of response.querySelectorAll("i")) token.className = values ? shadeOf(name, values[token.dataset.at], most) : "";
  }
  const radio = root.querySelector(`input[name=colour][value=${name}]`);
  if (radio) radio.checked = true;
  showScale(name, most);
}

function shadeOf(name, value, most) {
  if (value === null || value === undefined) return "";
  if (name === "entropy" || name === "surprisal") return value <= 0 ? "" : `e${Math.min(LEVELS - 1, Math.floor(LEVELS * Math.sqrt(value / MOST_NATS)))}`;
  const signed = name === "ratio" ? Math.log(Math.max(value, 1e-9)) / Math.log(1.5) : value / most;
  const level = Math.min(4, Math.ceil(Math.abs(signed) * 4 - 0.1));
  return level <= 0 ? "" : `${signed > 0 ? "p" : "n"}${level}`;
}

function showScale(name, most) {
  const box = root.querySelector("#scale");
  const swatch = (style, text) => h("span", { class: style }, text);
  let marks;
  if (name === "entropy" || name === "surprisal") marks = Array.from({ length: LEVELS }, (_, level) => swatch(`e${level}`, String(Number((MOST_NATS * (level / LEVELS) ** 2).toFixed(2)))));
  else if (name === "advantage") marks = [-1, -0.5, 0, 0.5, 1].map((part) => swatch(shadeOf(name, part * most, most), short(part * most)));
  else marks = [0.67, 0.8, 1, 1.25, 1.5].map((value) => swatch(shadeOf(name, value, 1), String(value)));
  box.replaceChildren(...marks, h("span", { class: "key" }, h("span", { class: "think" }, "thought"), " ", h("span", { class: "act" }, "action")));
}

document.addEventListener("pointerover", (event) => {
  const token = event.target.closest?.(".response i");
  if (!token) { if (!event.target.closest?.(".u-over")) hideTip(); return; }
  const response = token.closest(".response");
  const turn = held[response.dataset.column]?.turn_list[response.dataset.place];
  if (!turn) return;
  const at = token.dataset.at;
  const rows = [["probability", turn.surprisal && Math.exp(-turn.surprisal[at])], ...Object.keys(COLOURS).map((name) => [name, turn[name]?.[at]]), ["temperature", turn.temperature?.[at]]];
  showTip(event.clientX, event.clientY, JSON.stringify(token.textContent),
    rows.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => ["tip-row", `${name} ${short(value)}`]));
});

