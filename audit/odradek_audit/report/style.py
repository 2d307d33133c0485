"""The page's one style sheet: light and dark, narrow and printed.

The colours are Okabe and Ito's, which people with any kind of colour vision tell apart, and none stands alone: each
comes with a sign, a word, a frame or an underline.
"""

from __future__ import annotations

import base64
import hashlib

_LIGHT = """
--page:#fbfbf9;--card:#fff;--ink:#1b1d21;--quiet:#5b616b;--line:#d9dbd6;--soft:#f1f2ee;--link:#0057a0;
--bad:#b3400a;--bad-soft:#fdeee4;--good:#00714f;--good-soft:#e4f4ee;--ask:#7a5b00;--ask-soft:#fdf4d8;
--ref:#0063a8;--ref-soft:#e6f1f9;--mark:#ffd9bd;
--e0:#cfe3f3;--e1:#f6e3b4;--e2:#cdebdf;--e3:#f3d3e4;--e4:#dcdff5;--e5:#f7d6c2;--old:#e3e4e0;
"""
_DARK = """
--page:#15171a;--card:#1d2024;--ink:#e9eaec;--quiet:#a4abb6;--line:#383d44;--soft:#25292e;--link:#7cc0f5;
--bad:#ff9a62;--bad-soft:#3a241a;--good:#4fd3a5;--good-soft:#15302a;--ask:#f0cf62;--ask-soft:#332c16;
--ref:#79bdf0;--ref-soft:#182b3a;--mark:#7a3f16;
--e0:#24496a;--e1:#5d4a14;--e2:#1d5343;--e3:#5c2d47;--e4:#3a3f72;--e5:#63351c;--old:#3a3e43;
"""

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;overflow-wrap:break-word}
main,header,footer{max-width:1180px;margin:0 auto;padding:0 20px}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--ref);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--card);padding:8px}
h1{font-size:15px;font-weight:600;color:var(--quiet);margin:0;padding:22px 0 10px}
h2{font-size:23px;line-height:1.25;margin:44px 0 12px}
h3{font-size:19px;line-height:1.3;margin:28px 0 8px}
h4{font-size:17px;line-height:1.35;margin:0}
p{margin:8px 0}
code,pre,.records td,.fields td,.dump{
font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.verdict{display:flex;gap:20px;align-items:flex-start;border:2px solid;border-left-width:12px;border-radius:10px;
padding:20px 22px;background:var(--card)}
.verdict .sign{flex:none;width:60px;height:60px;font-size:36px;line-height:60px;text-align:center;font-weight:700;
color:var(--card)}
.verdict .word{font-size:30px;line-height:1.1;font-weight:800;letter-spacing:.02em;margin:0}
.verdict .why{font-size:19px;line-height:1.4;margin:6px 0 0}
.fine{border-color:var(--good);background:var(--good-soft)}.fine .sign{background:var(--good);border-radius:50%}
.fine .word{color:var(--good)}
.findings{border-color:var(--bad);background:var(--bad-soft)}.findings .sign{background:var(--bad);border-radius:6px}
.findings .word{color:var(--bad)}
.inconclusive{border-color:var(--ask);border-style:dashed;background:var(--ask-soft)}
.inconclusive .sign{background:var(--ask);clip-path:polygon(50% 0,100% 50%,50% 100%,0 50%)}
.inconclusive .word{color:var(--ask)}
.first{margin:18px 0 0;padding:0;list-style:none;border:1px solid var(--line);border-radius:10px;background:var(--card)}
.first li{padding:9px 16px;border-top:1px solid var(--line)}.first li:first-child{border-top:0}
.first .where{float:right;margin-left:14px}
.check{display:inline-block;font:600 12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
padding:1px 8px;border-radius:5px;border:1px solid var(--bad);color:var(--bad);white-space:nowrap}
.wide .check{margin-left:10px}.wide .origin{display:block;color:var(--quiet);font-size:12.5px;max-width:230px}
.wide .total>*{border-top:2px solid var(--line);font-weight:700}
.steps{margin:4px 0 10px;padding-left:24px}.steps li{margin:5px 0}
.command{background:var(--soft);border-radius:5px;padding:1px 6px;font-size:13px;overflow-wrap:anywhere}
.words{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;font-size:14.5px}
.words dt{font-weight:600}.words dd{margin:0;color:var(--quiet)}
abbr{text-decoration:underline dotted;cursor:help}
.narrow-only{display:none}
.check.error{border-style:dashed;border-color:var(--ask);color:var(--ask)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:12px 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.tile b{display:block;font-size:23px;line-height:1.25;font-variant-numeric:tabular-nums}
.tile span{overflow-wrap:normal;color:var(--quiet);font-size:14px}
.not li{margin:4px 0}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
.wide{width:100%}
th,td{text-align:left;vertical-align:top;padding:5px 10px;border-top:1px solid var(--line)}
thead th{border-top:0;color:var(--quiet);font-weight:600;font-size:13px}
td.n,th.n{text-align:right;white-space:nowrap}
caption{text-align:left;color:var(--quiet);font-size:13px;padding:4px 0}
.card{background:var(--card);border:1px solid var(--line);border-left:6px solid var(--bad);border-radius:10px;
padding:16px 18px;margin:14px 0;scroll-margin-top:12px}
.card.error{border-left:6px double var(--ask)}
.card:target{box-shadow:0 0 0 3px var(--ref)}
.facts{display:flex;flex-wrap:wrap;gap:6px 10px;align-items:center;margin:8px 0}
.fact{background:var(--soft);border-radius:6px;padding:1px 9px;font-size:14px}
.fact b{font-variant-numeric:tabular-nums}
.cause{margin:6px 0;color:var(--ink)}.cause b,.why b{font-weight:600}
.quiet,.note,figcaption{color:var(--quiet);font-size:14px}
.exhibit{margin-top:12px}
.exhibit>.scroll>table{width:100%}
.exhibit thead th{min-width:150px;border-bottom:3px solid var(--line)}
.exhibit thead th.corner{min-width:60px}
.exhibit .who{display:block;font-size:16px;color:var(--ink)}
.exhibit .standing{display:block;font-weight:500}
.exhibit th.accused{border-bottom-color:var(--bad)}.exhibit th.accused .standing{color:var(--bad)}
.exhibit th.reference{border-bottom:3px double var(--ref)}.exhibit th.reference .standing{color:var(--ref)}
.records td,.records tbody th{font-size:13.5px}.records tbody th{white-space:nowrap}
.records .key{display:block;color:var(--quiet);font-size:12.5px}.records .key::before{content:"key "}
.records em,.rest{color:var(--quiet)}.rest{font-family:system-ui,sans-serif;font-size:12.5px}
.records .value,.records .rest{display:block;word-break:break-all}
.records tr.here th{font-weight:800}.records tr.here th::before{content:"▶ "}
.records tr.here{background:var(--soft)}
td.differs{outline:2px solid var(--bad);outline-offset:-2px;background:var(--bad-soft)}
.records td.meant{outline:2px dashed var(--ref);outline-offset:-2px;background:var(--ref-soft)}
.differs .sign{color:var(--bad);font-weight:800}
.records td.differs{position:relative;padding-left:30px}
.records td.differs .sign{position:absolute;left:8px;font-size:18px;line-height:1.2}
.none{color:var(--quiet);font-style:italic;font-family:system-ui,sans-serif}
.cut{color:var(--quiet);font-size:12px}
mark{background:var(--mark);color:inherit;text-decoration:underline;text-decoration-thickness:2px;font-weight:700}
details{margin:8px 0}summary{cursor:pointer;color:var(--link);font-size:14.5px;padding:3px 0}
.fields td,.fields tbody th{padding-top:2px;padding-bottom:2px}
.fields td{font-size:13px}
.columns{display:grid;grid-template-columns:repeat(auto-fill,minmax(305px,1fr));gap:6px 18px}
.columns>*{min-width:0;margin:4px 0}
.columns table{font-size:12px}
.columns td,.columns th{padding:3px 6px}.columns table{display:block;overflow-x:auto}
.lines tr.here td{font-weight:700;background:var(--soft)}
.lines tr.here td:first-child::before{content:"▶ "}
figure{margin:12px 0}
.dump pre{margin:4px 0;padding:8px 10px;background:var(--soft);border-radius:6px;font-size:11.5px;line-height:1.45;
overflow-x:auto;border-left:4px solid var(--line)}
.dump.accused pre{border-left-color:var(--bad)}.dump.reference pre{border-left:4px double var(--ref)}
.timeline{display:block;width:100%;height:auto;font:11px system-ui,sans-serif}
.timeline text{fill:var(--ink)}.timeline text.small{paint-order:stroke;stroke:var(--page);stroke-width:3px}
.timeline .small{fill:var(--quiet)}.timeline .lane{font-size:13px;font-weight:600}
.timeline .epoch{font-weight:600}
.band{stroke:var(--quiet);stroke-width:.7}.old{fill:var(--old);stroke-dasharray:3 2}
.e0{fill:var(--e0)}.e1{fill:var(--e1)}.e2{fill:var(--e2)}.e3{fill:var(--e3)}.e4{fill:var(--e4)}.e5{fill:var(--e5)}
.leo{stroke:var(--ink);stroke-width:3}.hw{fill:var(--ink)}.bound{stroke:var(--quiet);stroke-dasharray:5 4}
.tick{stroke:var(--quiet)}
.mark{fill:var(--card);stroke:var(--bad);stroke-width:2}.cross{stroke:var(--bad);stroke-width:2.4;fill:none}
footer{padding:30px 20px 50px;color:var(--quiet);font-size:14px}
@media (max-width:640px){body{font-size:15px}main,header,footer{padding:0 12px}h2{font-size:20px}
.verdict{gap:12px;padding:14px;border-left-width:8px}.verdict .sign{width:40px;height:40px;font-size:24px;
line-height:40px}.verdict .word{font-size:23px}.verdict .why{font-size:16px}.card{padding:12px}
.first .where{float:none;display:block;margin:0}th,td{padding:4px 7px}.wide-only{display:none}
.narrow-only{display:block}
.exhibit .scroll thead,.exhibit .scroll tbody,.exhibit .scroll tr,.exhibit .scroll th,.records td{display:block}
.exhibit thead th,.exhibit thead th.corner{min-width:0}.exhibit thead th.corner{display:none}
.exhibit .scroll thead th{border-bottom:0}.exhibit .who,.exhibit .standing{display:inline;margin-right:8px}
.records tbody th{background:var(--soft);border-top:2px solid var(--line)}.records tbody th::before{content:"offset "}
.records tr.here th::before{content:"▶ offset "}.records td.same{display:none}
.records td::before,.fields td::before{content:attr(data-replica);unicode-bidi:isolate;display:block;
font:600 12px system-ui,sans-serif;color:var(--quiet)}
.exhibit .fields tbody tr{display:grid;grid-template-columns:repeat(auto-fit,minmax(96px,1fr))}
.exhibit .fields tbody th{grid-column:1/-1;border-top:1px solid var(--line)}
.exhibit .fields tbody td{display:block;border:0;min-width:0;
overflow-wrap:anywhere}.words{grid-template-columns:1fr;gap:0}.words dd{margin-bottom:8px}}
@media print{body{background:#fff;font-size:11pt}main,header,footer{max-width:none;padding:0}
.card,.tile,.first{break-inside:avoid-page}.card{break-inside:auto}tr,figure,.verdict{break-inside:avoid}
h2,h3{break-after:avoid}
.scroll{overflow:visible}a{color:inherit;text-decoration:none}
details::details-content{content-visibility:visible;display:block;height:auto}
.verdict,.tile,mark,td,tr,.fact,.dump pre,.band{-webkit-print-color-adjust:exact;print-color-adjust:exact}
.exhibit thead th{min-width:0}.dump pre{font-size:8pt}}
"""


def style_sheet() -> str:
    """All rules; the dark colours where the reader's system asks for them, and never on paper."""
    text = f":root{{color-scheme:light dark;{_LIGHT}}}@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    return (text + _RULES).replace("\n", "")


def style_hash() -> str:
    """What a content security policy names so that this sheet, and no other, may apply."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style_sheet().encode()).digest()).decode()
