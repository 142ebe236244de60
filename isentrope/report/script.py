"""The one script of a page. A constant: the page's security policy names it by its hash."""

from __future__ import annotations

SCRIPT = """
(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const spot = (event) => {
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    const left = event.clientX + 16 + wide > innerWidth ? event.clientX - wide - 16 : event.clientX + 16;
    const top = Math.min(event.clientY + 16, innerHeight - high - 8);
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = Math.max(8, top) + "px";
  };
  const show = (event, title, rows) => {
    const head = document.createElement("b");
    head.textContent = title;
    tip.replaceChildren(head, ...rows.map(([style, text]) => {
      const row = document.createElement("span");
      row.className = style;
      row.textContent = text;
      return row;
    }));
    tip.hidden = false;
    spot(event);
  };
  const marks = (svg, stop, data) => {
    svg.querySelectorAll(".mark").forEach((mark) => mark.remove());
    for (const [number, y] of stop ? stop[2] : []) {
      if (y === null) continue;
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      mark.setAttribute("class", "mark c" + data.colors[number]);
      mark.setAttribute("cx", stop[0]);
      mark.setAttribute("cy", y);
      mark.setAttribute("r", 3.6);
      svg.append(mark);
    }
    const cursor = svg.querySelector(".cursor");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, stop ? stop[0] : -9);
  };
  document.querySelectorAll("svg[data-hover]").forEach((svg) => {
    const data = JSON.parse(svg.dataset.hover);
    const hide = () => { tip.hidden = true; marks(svg, null, data); };
    svg.addEventListener("pointermove", (event) => {
      const place = svg.getBoundingClientRect();
      const x = (event.clientX - place.left) * svg.viewBox.baseVal.width / place.width;
      let near = null;
      for (const stop of data.stops) if (!near || Math.abs(stop[0] - x) < Math.abs(near[0] - x)) near = stop;
      if (!near) return;
      marks(svg, near, data);
      show(event, near[1], near[2].map(([n, , text]) => ["tip-row c" + data.colors[n], data.names[n] + "  " + text]));
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointercancel", hide);
  });
  document.addEventListener("pointerover", (event) => {
    const token = event.target.closest ? event.target.closest("i[data-v]") : null;
    if (token) {
      const [chance, entropy, heat] = token.dataset.v.split(" ");
      const rows = ["probability " + chance, "entropy " + entropy + " nats", "temperature " + heat];
      show(event, JSON.stringify(token.textContent), rows.map((text) => ["small tip-line", text]));
    } else if (event.target.closest && !event.target.closest("svg[data-hover]")) tip.hidden = true;
  });
})();
"""
