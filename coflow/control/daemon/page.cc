#include "coflow/control/daemon/page.h"

namespace clustar::coflow::control {

std::string page_html() {
  std::string html = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>clustar coordinator</title>
<link rel="icon" href="data:,">
<style>)html";
  html += kPageStyle;
  html += R"html(</style>
</head>
<body>
<header><h1>clustar coordinator</h1><span id="role"></span><span id="version"></span></header>
<p id="lost" role="alert" hidden></p>
<dl id="facts"></dl>
<h2>Order of classes <span id="classes-shown"></span></h2>
<p class="none" id="no-classes" hidden>No agent has reported a class yet.</p>
<table id="classes"><thead></thead><tbody></tbody></table>
<h2>Agents <span id="agents-shown"></span></h2>
<p class="none" id="no-agents" hidden>No agent is connected.</p>
<table id="agents"><thead></thead><tbody></tbody></table>
<h2>Counters since the start</h2>
<dl id="counters" class="small"></dl>
<noscript>This page needs JavaScript; the same is at /state.json.</noscript>
<script>)html";
  html += kPageScript;
  html += "</script>\n</body>\n</html>\n";
  return html;
}

}  // namespace clustar::coflow::control
