#include "bench/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace clustar::bench::report {

const char* const kPageStyle = R"css(
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --dim: #59636e; --rule: #d1d9e0; --a: #1f6feb;
  --b: #bc4c00; --c: #57606a; --wait: #d1242f; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --dim: #9198a1; --rule: #3d444d;
  --a: #58a6ff; --b: #f0883e; --c: #8b949e; --wait: #ff7b72; --good: #3fb950; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1320px; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); }
.verdict { border-left: 4px solid var(--c); padding: .5rem 1rem; margin: 1rem 0; font-size: 1.05rem; }
.verdict.faster { border-color: var(--good); } .verdict.slower, .verdict.above { border-color: var(--wait); }
.warning { color: var(--wait); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .8rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
table.text td, table.text th { text-align: left; white-space: normal; overflow-wrap: anywhere; }
table.text td:first-child { white-space: nowrap; overflow-wrap: normal; }
tr.differs td { font-weight: 600; })css";

const char* const kPageEnd = "</body></html>\n";

namespace {

// All bytes do but those that go on with one: 10xxxxxx.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

}  // namespace

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string first_characters(const std::string& text, std::size_t count) {
  std::size_t end = 0;
  while (end < text.size() && !(begins_character(text[end]) && count-- == 0)) ++end;
  return text.substr(0, end);
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string cell(const std::string& text, const char* tag) { return fmt::format("<{0}>{1}</{0}>", tag, escaped(text)); }

std::string row(const std::vector<std::string>& cells, const char* tag) {
  std::string text = "<tr>";
  for (const std::string& one : cells) text += cell(one, tag);
  return text + "</tr>\n";
}

std::string show(const nlohmann::json& value, int digits) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.{}f}", value.get<double>(), digits);
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

std::string page_head(const std::string& title, const std::string& style) {
  return "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>\n<meta name=viewport "
         "content=\"width=device-width, initial-scale=1\">\n<title>" +
         escaped(title) + "</title>\n<style>" + style + "</style></head><body>\n";
}

}  // namespace clustar::bench::report
