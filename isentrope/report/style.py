"""The page's style sheet and script. Both are constants: the page's security policy names them by their hash."""

from __future__ import annotations

import re

# light, dark
PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#faf9f6", "#131519"),
    "card": ("#ffffff", "#1a1d23"),
    "ink": ("#1d2126", "#e7e5df"),
    "soft": ("#5d646d", "#9aa1ab"),
    "rule": ("#e4e1d9", "#2b2f37"),
    "accent": ("#0f6b62", "#4fc3b3"),
    "good": ("#1b7a4b", "#5fca94"),
    "bad": ("#b3433a", "#ef8a80"),
    "s0": ("#0f766e", "#4cc2b2"),
    "s1": ("#d2691e", "#f0a05a"),
    "s2": ("#4361c2", "#8ea6ff"),
    "s3": ("#b0407e", "#ea86bd"),
    "s4": ("#8a7a10", "#d6c65a"),
    "s5": ("#7b8491", "#98a1ad"),
    "s6": ("#7a4fc0", "#b99bf2"),
    "s7": ("#3b8fbf", "#7cc6ee"),
}

CHART_STYLE = """
.chart{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
.c0{--c:var(--s0)}.c1{--c:var(--s1)}.c2{--c:var(--s2)}.c3{--c:var(--s3)}
.c4{--c:var(--s4)}.c5{--c:var(--s5)}.c6{--c:var(--s6)}.c7{--c:var(--s7)}
.chart text{fill:var(--soft)}.chart .tick{font-variant-numeric:tabular-nums}
.chart .grid{stroke:var(--rule)}.chart .axis{stroke:var(--soft);stroke-opacity:.55}
.chart .line{fill:none;stroke:var(--c);stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}
.chart .thin{stroke-width:1;stroke-opacity:.32}.chart .dashed{stroke-dasharray:5 4}
.chart .band{fill:var(--c);fill-opacity:.14}.chart .bar{fill:var(--c);fill-opacity:.88}
.chart .dot{fill:var(--card);stroke:var(--c);stroke-width:2}
.chart .cursor,.chart .change{stroke:var(--soft);stroke-dasharray:2 3}.chart .mark{fill:var(--c)}
"""

_PAGE_STYLE = """
*{box-sizing:border-box}
html{background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
  -webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0 auto;max-width:1180px;overflow-wrap:anywhere;padding:22px 28px 80px}
#learning>h2{position:absolute;clip-path:inset(50%)}
h1,h2,.big{font-family:ui-serif,"Iowan Old Style","Palatino Linotype",Palatino,Georgia,serif;font-weight:600}
h1{font-size:clamp(30px,5vw,46px);line-height:1.1;letter-spacing:-.015em;margin:18px 0 12px}
h2{font-size:25px;margin:52px 0 14px;letter-spacing:-.01em}
h3{font-size:15.5px;font-weight:650;margin:0}
h3 small{font-weight:400;font-size:13.5px;color:var(--soft);margin-left:8px}
a{color:inherit}p{margin:0}
nav{display:flex;flex-wrap:wrap;align-items:center;gap:6px 20px;font-size:14px;color:var(--soft)}
nav a{text-decoration:none}nav a:hover{color:var(--accent)}
nav .brand{margin-right:auto;display:flex;align-items:center;gap:9px;color:var(--ink);font-weight:650;
  letter-spacing:.01em}
nav svg{width:30px;height:20px}nav path{fill:none;stroke:var(--accent);stroke-width:2.2;stroke-linecap:round}
nav path+path{stroke-opacity:.35}
.facts-row{display:flex;flex-wrap:wrap;gap:8px 30px;margin:0}
.facts-row div{min-width:0}.facts-row dt{font-size:12.5px;color:var(--soft)}
.facts-row dd{margin:0;font-weight:550}
.numbers{display:flex;gap:16px;margin:22px 0 16px}.numbers .card{flex:1 1 0}.numbers .card:first-child{flex-grow:2.2}
.card{background:var(--card);border:1px solid var(--rule);border-radius:14px;padding:16px 20px;min-width:0}
.numbers h3{color:var(--soft);font-weight:500;font-size:14px}
.big{font-size:clamp(30px,3.6vw,44px);line-height:1.15;letter-spacing:-.02em;margin:4px 0 2px;
  font-variant-numeric:lining-nums}
.big .from{color:var(--soft)}.big .to{color:var(--accent)}.big .to.down{color:var(--bad)}
.big .arrow{color:var(--soft);font-weight:400}
.small{font-size:13.5px;color:var(--soft)}
.grid{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:16px}
.half{grid-column:span 3}.third{grid-column:span 2}.whole{grid-column:1/-1}
figure{margin:0;display:grid;grid-row:span 4;grid-template:subgrid/minmax(0,1fr);row-gap:0}
figure .picture{margin:8px 0 6px}figcaption{font-size:13.5px;color:var(--soft);line-height:1.45}
.narrow{display:none}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 0;padding:0;list-style:none;font-size:13.5px}
.legend li{min-width:0}
.legend li::before,.tip-row::before{content:"";display:inline-block;width:14px;height:3px;border-radius:2px;
  background:var(--c);margin-right:7px;vertical-align:middle}
#tip{position:fixed;z-index:9;pointer-events:none;background:var(--card);border:1px solid var(--rule);
  border-radius:9px;box-shadow:0 6px 24px rgb(0 0 0/.16);padding:8px 12px;font-size:13.5px;line-height:1.5;
  max-width:min(340px,90vw);font-variant-numeric:tabular-nums;left:0;top:0}
#tip[hidden]{display:none}#tip b{display:block;font-weight:650}
.tip-row{display:block;white-space:pre-wrap}
.episode{margin:0 0 12px;padding:0;overflow:hidden}
.episode summary{display:grid;grid-template-columns:96px 1fr 14px;gap:2px 12px;align-items:baseline;padding:14px 20px;
  cursor:pointer;list-style:none}
.episode summary::-webkit-details-marker{display:none}
.episode summary::after{content:"";grid-column:3;grid-row:1;width:7px;height:7px;border:solid var(--soft);
  border-width:0 2px 2px 0;transform:rotate(45deg)}.episode[open] summary::after{transform:rotate(225deg)}
.episode summary .badge{justify-self:start;white-space:nowrap}
.episode summary:hover{background:color-mix(in srgb,var(--rule) 30%,transparent)}
.goal{font-weight:600}.facts{grid-column:2;font-size:13.5px;color:var(--soft)}
.badge{display:inline-block;border-radius:99px;padding:1px 10px;font-size:12.5px;font-weight:600}
.good{color:var(--good);background:color-mix(in srgb,var(--good) 13%,transparent)}
.bad{color:var(--bad);background:color-mix(in srgb,var(--bad) 13%,transparent)}
.episode ol{margin:0;padding:0 20px 8px 54px;border-top:1px solid var(--rule)}
.episode li{padding:14px 0;border-bottom:1px solid var(--rule)}.episode li:last-of-type{border:0}
.episode li::marker{color:var(--soft);font-size:13px;font-variant-numeric:tabular-nums}
pre,code{font:13.5px/1.6 ui-monospace,"SF Mono",Menlo,Consolas,monospace;unicode-bidi:isolate}
pre{margin:0;white-space:pre-wrap}
.observation{color:var(--soft);margin-bottom:8px}
.response i{font-style:normal;border-radius:3px}.response i:hover{outline:1.5px solid var(--accent)}
.action{margin-top:8px;display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline}
.action code{font-weight:650;min-width:0}.action .arrow{color:var(--accent)}
.reward{font-size:13.5px;color:var(--soft)}
.note{font-size:13.5px;color:var(--soft);padding:10px 0}
.shades{font-size:13.5px;color:var(--soft);margin:0 0 14px}
.shades span{display:inline-block;min-width:34px;text-align:center;color:var(--ink);padding:0 4px}
.e1{background:rgb(224 114 22/.09)}.e2{background:rgb(224 114 22/.18)}.e3{background:rgb(224 114 22/.27)}
.e4{background:rgb(224 114 22/.36)}.e5{background:rgb(224 114 22/.46)}.e6{background:rgb(224 114 22/.56)}
.e7{background:rgb(224 114 22/.68)}
details.settings summary{cursor:pointer;font-weight:600}details.settings pre{margin-top:12px}
footer{margin-top:56px;font-size:13.5px;color:var(--soft)}
@media(max-width:820px){body{padding:18px 16px 60px}.numbers{display:grid;grid-template-columns:repeat(3,1fr)}
  .numbers .card:not(:first-child) .big{font-size:24px}
  .numbers .card:first-child{grid-column:1/-1}.half,.third{grid-column:1/-1}.card{padding:14px 14px}h2{margin-top:42px}
  .two .wide{display:none}.two .narrow{display:block}.grid,.numbers{gap:12px}
  .half .chart{font-size:14px}
  .episode summary{padding:12px 14px;grid-template-columns:1fr 14px}.episode summary::after{grid-column:2}
  .goal,.facts{grid-column:1}.episode ol{padding:0 14px 6px 36px}
  nav .brand{width:100%}.facts-row{gap:8px 22px}}
@media(min-width:480px) and (max-width:820px){.third{grid-column:span 3}}
@media print{nav a:not(.brand),#tip{display:none}.card{break-inside:avoid}}
"""

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


def style_sheet() -> str:
    light = "".join(f"--{name}:{pair[0]};" for name, pair in PALETTE.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in PALETTE.items())
    schemes = f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return schemes + CHART_STYLE + _PAGE_STYLE + ".tip-line{display:block}"


def plain_chart_style() -> str:
    """The charts' own style in light colours, without variables, which not every SVG viewer knows."""
    rules = CHART_STYLE.split("\n", 4)
    body = rules[1] + "\n" + rules[4]
    colours: list[str] = []
    for number in range(8):
        colour = PALETTE[f"s{number}"][0]
        colours.append(
            f".line.c{number}{{stroke:{colour}}}.band.c{number}{{fill:{colour}}}.dot.c{number}{{stroke:{colour}}}"
        )
    for name, pair in PALETTE.items():
        body = body.replace(f"var(--{name})", pair[0])
    return re.sub(r"(stroke|fill):var\(--c\);?", "", body) + "".join(colours)
