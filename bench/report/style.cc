#include "bench/report/style.h"

#include <fmt/format.h>

namespace clustar::bench::report {
namespace {

// Paper is light, whatever the screen is.
constexpr const char* kColours = R"css(
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --dim: #59636e; --rule: #d1d9e0; --inset: #f6f8fa;
  --a: #1f6feb; --b: #bc4c00; --c: #57606a; --wait: #d1242f; --good: #1a7f37;
  --s0: #0a5fb4; --s1: #c44a06; --s2: #00805a; --s3: #a2479a; --s4: #4d5560; --s5: #736d00;
  --s6: #ad7400; --s7: #2c84b8; --s8: #b3243c; --s9: #5c6b7a; --s10: #7d5534; --s11: #4a4fb0; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --dim: #9198a1;
  --rule: #3d444d; --inset: #161b22; --a: #58a6ff; --b: #f0883e; --c: #8b949e; --wait: #ff7b72; --good: #3fb950;
  --s0: #5aa9ff; --s1: #ff8f4d; --s2: #2ec49a; --s3: #e08ad6; --s4: #d5dde6; --s5: #d9d15a; --s6: #f2c14e;
  --s7: #8ccbf2; --s8: #ff7a85; --s9: #a3b3c2; --s10: #c9a27e; --s11: #a8acff; } }
)css";

constexpr const char* kText = R"css(
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1320px; padding: 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; overflow-wrap: anywhere; }
header p { color: var(--dim); } p { margin: .3rem 0; overflow-wrap: anywhere; } .dim { color: var(--dim); }
a { color: var(--a); text-decoration: none; }
code, pre { font: .88em/1.45 ui-monospace, monospace; } code { color: var(--dim); }
pre { background: var(--inset); border: 1px solid var(--rule); border-radius: 6px; padding: .5rem .8rem; margin: .5rem 0;
  overflow-x: auto; } pre.command { white-space: pre-wrap; overflow-wrap: anywhere; }
.verdict { border-left: 4px solid var(--c); padding: .5rem 1rem; margin: 1rem 0; font-size: 1.05rem;
  overflow-wrap: anywhere; }
.verdict.faster { border-color: var(--good); } .verdict.slower, .verdict.above { border-color: var(--wait); }
.warning { color: var(--wait); }
)css";

constexpr const char* kTables = R"css(
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .8rem; text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; } td { font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
table.names td:nth-child(2), table.names th:nth-child(2) { text-align: left; }
table.text td, table.text th { text-align: left; white-space: normal; overflow-wrap: anywhere; }
table.text th { overflow-wrap: normal; } table.text td { min-width: 6rem; }
table.text td:first-child { min-width: 7rem; overflow-wrap: normal; }
tr.differs td { font-weight: 600; } tr.first td { border-top: 2px solid var(--rule); }
td.best { color: var(--good); font-weight: 600; } td.worse { color: var(--wait); font-weight: 600; }
.swatch { width: 34px; height: 10px; margin-right: .5rem; vertical-align: middle; }
)css";

// The text of a plot shrinks with it: below 30 rem it is scrolled instead.
constexpr const char* kPlots = R"css(
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 1rem;
  align-items: start; margin: 1rem 0; }
figure { border: 1px solid var(--rule); border-radius: 6px; margin: 0; padding: .6rem .6rem .2rem; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 30rem; height: auto; }
figcaption { font-size: .92rem; font-weight: 600; }
.chart text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.chart text.title { fill: var(--text); font-size: 13px; font-weight: 600; }
.chart .grid { stroke: var(--rule); } .chart .level { stroke: var(--dim); stroke-dasharray: 2 4; }
.chart .ring { fill: none; stroke-width: 2; } .chart .strong { stroke-dasharray: none; } .chart .faint { opacity: .45; }
.chart .band { fill: var(--b); opacity: .13; }
.chart path, .swatch path { fill: none; stroke-width: 2; } .chart path.thin { stroke-width: .7; opacity: .3; }
.dash1 { stroke-dasharray: 6 4; } .dash2 { stroke-dasharray: 2 2; } .dash3 { stroke-dasharray: 9 3 2 3; }
.dash4 { stroke-dasharray: 12 4; } .dash5 { stroke-dasharray: 6 2 2 2 2 2; }
)css";

constexpr const char* kNarrow = R"css(
@media (max-width: 1000px) { body { padding: 1rem; } table { font-size: .82rem; } th, td { padding: .2rem .4rem; } }
@media (max-width: 500px) { body { padding: .7rem; } h1 { font-size: 1.25rem; } .verdict { padding: .4rem .7rem; } }
)css";

constexpr const char* kPaper = R"css(
@media print { :root { color-scheme: light; } body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll, figure { overflow: visible; } table { font-size: 7.5pt; } th, td { padding: .1rem .25rem; }
  td { white-space: normal; } figure svg { min-width: 0; } h2 { break-after: avoid; }
  figure, tr, .verdict { break-inside: avoid; } .plots { grid-template-columns: 1fr 1fr; } }
)css";

}  // namespace

std::string page_style() {
  std::string style = std::string(kColours) + kText + kTables + kPlots;
  for (const char* name : {"a", "b", "c", "wait"}) {
    style += fmt::format(".line-{0} {{ stroke: var(--{0}); }} .fill-{0} {{ fill: var(--{0}); }}\n", name);
  }
  for (int i = 0; i < kSeriesColours; ++i) {
    style += fmt::format(".line-s{0} {{ stroke: var(--s{0}); }} .fill-s{0} {{ fill: var(--s{0}); }}\n", i);
  }
  return style + kNarrow + kPaper;
}

}  // namespace clustar::bench::report
