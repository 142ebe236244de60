"""The style of pages, besides that of their charts. A constant: a page's security policy names it by its hash."""

from __future__ import annotations

PAGE_STYLE = """
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
.chart .tinted{fill:#1d2126}.chart .few{font-size:10px}.scroll .chart{min-width:720px}
.said{margin:0 0 16px}.said h3{margin-bottom:6px}.said p{max-width:85ch}
.alarms{margin:10px 0 4px;padding:0;list-style:none;counter-reset:alarm;font-size:14.5px}
.alarms li{counter-increment:alarm;position:relative;padding:3px 0 3px 30px}
.alarms li::before{content:counter(alarm);position:absolute;left:0;top:5px;min-width:20px;height:20px;
  box-sizing:border-box;border-radius:10px;background:var(--bad);color:var(--card);font-size:12px;font-weight:700;line-height:20px;
  text-align:center}
.try{color:var(--soft)}.strips{margin-bottom:16px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 0;padding:0;list-style:none;font-size:13.5px}
.legend li{min-width:0}.key{width:30px;height:8px;margin-right:7px;vertical-align:middle}
.legend li.stroke::before,.legend li.phase-key::before{display:none}
.legend li.band-key{color:var(--soft)}.legend li.band-key::before{background:var(--soft);opacity:.3;height:11px}
.legend .phase-key{padding:0 10px;border-radius:3px}
.phase-key.eruption{background:color-mix(in srgb,var(--warm) 14%,transparent);border-top:3px solid var(--warm)}
.phase-key.subsidence{background:color-mix(in srgb,var(--cool) 12%,transparent);border-top:3px solid transparent}
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
.tip-line{display:block}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:14px;width:100%;font-variant-numeric:tabular-nums}
th{white-space:nowrap}
th,td{overflow-wrap:break-word;text-align:right;padding:6px 10px;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:600;color:var(--soft)}tbody th,thead th:first-child{text-align:left;color:var(--ink)}
.table td{white-space:nowrap}.dense{font-size:12.5px}.dense th,.dense td{padding:6px 5px}
.settings-table td{text-align:left;min-width:86px;overflow-wrap:anywhere;
  font:13px/1.5 ui-monospace,Menlo,Consolas,monospace}
.settings-table thead th{text-align:left}.table{margin:0 0 16px}.table h3{margin-bottom:6px}
.strips .run{font-weight:600}.strip-none{fill:var(--rule);fill-opacity:.55}.strip-ground{fill:var(--card)}
.names{color:var(--soft);margin:0 0 16px}.settings-table thead th{white-space:normal;min-width:110px}
.lines,.notes{margin:0;padding:0;list-style:none;font-size:14.5px}.lines li{padding:2px 0}
.lines+.small{margin-top:6px}.scroll+.small,table+.small{margin-top:8px}.together{white-space:nowrap}.notes{font-size:13.5px;color:var(--soft)}
details.said summary{cursor:pointer;font-weight:600}details.said p{margin-top:8px}
@media print{@page{margin:14mm 12mm}
  html{background:#fff;font-size:13px}body{max-width:none;padding:0}nav a:not(.brand),#tip,.cursor{display:none}
  .card,figure,tr{break-inside:avoid}h2,h3{break-after:avoid}.card{background:#fff;border-color:#ccc}
  .grid{gap:10px}figure{display:block}.half,.third{grid-column:span 3}.whole{grid-column:1/-1}
  .two .wide{display:block}.two .narrow{display:none}
  .scroll{overflow:visible}.scroll .chart{min-width:0}
  table{font-size:11px}th,.table td{white-space:normal}th,td{padding:4px 5px}
  th,td,.settings-table td{min-width:0;overflow-wrap:anywhere}
  *{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
