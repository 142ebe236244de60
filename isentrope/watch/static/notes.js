// Notes on runs. They stay in this browser's storage, by the id of the run's folder: the server only reads. They can be
// saved to a file and read from one, to have them elsewhere.

import { h, save } from "./dom.js";
import { tell } from "./state.js";

const PLACE = "isentrope.notes";
const MOST_NOTES = 5000;
export const MOST_LETTERS = 2000;
let notes = read();

function read() {
  try {
    return checked(JSON.parse(localStorage.getItem(PLACE) || "{}"));
  } catch {
    return new Map(); // no storage, or something else in it
  }
}

// Whatever it is: a map of ids to notes.
function checked(found) {
  const rows = found && typeof found === "object" && !Array.isArray(found) ? Object.entries(found) : [];
  const fits = ([id, note]) => /^[0-9a-f]{12}$/.test(id) && note && typeof note.text === "string" && note.text;
  return new Map(rows.filter(fits).slice(0, MOST_NOTES).map(([id, note]) => [id, { run: String(note.run || "").slice(0, 300), text: note.text.slice(0, MOST_LETTERS) }]));
}

export const noteOf = (id) => notes.get(id)?.text || "";

export function setNote(run, text) {
  const now = read(); // another tab may have written since
  if (text.trim()) now.set(run.id, { run: run.name, text: text.slice(0, MOST_LETTERS) });
  else now.delete(run.id);
  return keep(now);
}

function keep(now) {
  notes = now;
  try {
    localStorage.setItem(PLACE, JSON.stringify(Object.fromEntries(now)));
    return true;
  } catch {
    return false; // they are shown as long as the page is open
  } finally {
    tell("notes");
  }
}

export const saveNotes = () => save("isentrope-notes.json", "application/json", JSON.stringify(Object.fromEntries(notes), null, 1));

// Notes of a file are added; where both have one on a run, the file's is taken.
export function loadNotes(told) {
  const field = h("input", { type: "file", accept: "application/json,.json", on: { change: async () => {
    const file = field.files[0];
    if (!file || file.size > 16 << 20) { told("That file is too large for notes."); return; }
    try {
      const found = checked(JSON.parse(await file.text()));
      told(keep(checked(Object.fromEntries([...read(), ...found]))) ? `${found.size} read.` : "Read, but this browser does not keep them.");
    } catch {
      told("That file holds no notes.");
    }
  } } });
  field.click();
}

addEventListener("storage", (event) => { if (event.key === PLACE || event.key === null) { notes = read(); tell("notes"); } });
