// Elements and numbers. Text always goes in as text: nothing on this page is parsed as HTML.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (["value", "checked", "disabled", "open", "selected"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A name that may go on in the next line after a slash.
export const breakable = (name) => name.split(/(?<=\/)/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));

export const byId = (id) => document.getElementById(id);

// Three figures or so: 1234, 12.3, 0.0021, 2.5e-6.
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-4) return value.toExponential(1).replace("e+", "e");
  if (size >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
export const share = (value) => (value === null ? "" : `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)}\u00a0%`);

export function ago(seconds) {
  if (seconds === null) return "";
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

export async function ask(question, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, one);
  }
  const answer = await fetch(`api/${question}?${query}`, { cache: "no-store" });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error || `the server answered ${answer.status}`);
  return data;
}

// Hands a file to the browser; `content` is text or a blob.
export function save(name, type, content) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: `${type};charset=utf-8` }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export const fileName = (text) => text.slice(0, 100).replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "") || "plot";

// The tip beside the pointer: a title and rows of [class, text, colour].
export function showTip(x, y, title, rows) {
  const tip = byId("tip");
  const lines = rows.map(([style, text, colour]) => {
    const line = h("span", { class: style }, text);
    if (colour) {
      const mark = h("i", { class: "swatch" });
      mark.style.background = colour;
      line.prepend(mark);
    }
    return line;
  });
  tip.replaceChildren(h("b", {}, title), ...lines);
  tip.hidden = false;
  const left = x + 16 + tip.offsetWidth > innerWidth ? x - tip.offsetWidth - 16 : x + 16;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, Math.min(y + 16, innerHeight - tip.offsetHeight - 8))}px`;
}

export const hideTip = () => { byId("tip").hidden = true; };

export function later(act, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), milliseconds);
  };
}
