#include "coflow/control/daemon/page.h"

namespace clustar::coflow::control {

// Colours as in the reports of bench/report.
const char* const kPageStyle = R"css(
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --dim: #59636e; --rule: #d1d9e0; --inset: #f6f8fa;
  --a: #1f6feb; --wait: #d1242f; --good: #1a7f37; --track: #dfe5eb; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --dim: #9198a1;
  --rule: #3d444d; --inset: #161b22; --a: #58a6ff; --wait: #ff7b72; --good: #3fb950; --track: #2b323b; } }
* { box-sizing: border-box; }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1400px; padding: 1.2rem 1.5rem 2rem; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .3rem 1rem; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
h2 span { color: var(--dim); font-weight: normal; font-size: .9rem; }
#role { border: 1px solid currentColor; border-radius: 1rem; padding: 0 .7rem; font-size: .9rem; font-weight: 600; }
#role.charge { color: var(--good); } #role.standby { color: var(--a); } #role.bad { color: var(--wait); }
#version { color: var(--dim); font-size: .85rem; overflow-wrap: anywhere; }
#lost { border-left: 4px solid var(--wait); background: var(--inset); color: var(--wait); font-weight: 600;
  padding: .5rem 1rem; margin: 1rem 0 0; } #lost[hidden] { display: none; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .5rem; margin: 1rem 0 0; }
dl div { background: var(--inset); border: 1px solid var(--rule); border-radius: 6px; padding: .3rem .7rem; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.small dd { font-size: .92rem; } .small div.raised dd { color: var(--wait); font-weight: 600; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .5rem; text-align: right; }
th { color: var(--dim); font-size: .8rem; font-weight: 600; vertical-align: bottom; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
th.text, td.text { text-align: left; } td.text { white-space: normal; overflow-wrap: anywhere; min-width: 4rem; }
th:first-child, td:first-child { padding-left: 0; } th:last-child, td:last-child { padding-right: 0; }
td.code { font-family: ui-monospace, monospace; font-size: .82rem; }
td.warn { color: var(--wait); font-weight: 600; }
.bar { display: block; background: var(--track); border-radius: 3px; height: 6px; min-width: 7rem; overflow: hidden; }
.bar i { display: block; background: var(--a); height: 100%; width: 0; }
p.none { color: var(--dim); margin: .3rem 0; } p.none[hidden] { display: none; }
@media (max-width: 1150px) { body { padding: 1rem; } table { font-size: .84rem; } th, td { padding: .2rem .35rem; }
  .bar { min-width: 5rem; } }
@media (max-width: 900px) {
  body { padding: .7rem; } h1 { font-size: 1.2rem; } dl { grid-template-columns: repeat(auto-fill, minmax(7.2rem, 1fr)); }
  thead { display: none; } table, tbody { display: block; }
  tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.2rem, 1fr)); gap: .2rem .7rem;
    background: var(--inset); border: 1px solid var(--rule); border-radius: 6px; padding: .4rem .7rem; margin: .5rem 0; }
  td, td.text { border: 0; padding: 0; text-align: left; white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-label); display: block; color: var(--dim); font: .75rem system-ui, sans-serif; }
  td.empty { display: none; }
}
)css";

}  // namespace clustar::coflow::control
