#include "bench/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/report/style.h"

namespace clustar::bench::report {

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

std::string page_head(const std::string& title, const std::string& own_style) {
  return "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>\n<meta name=viewport "
         "content=\"width=device-width, initial-scale=1\">\n<title>" +
         escaped(title) + "</title>\n<style>" + page_style() + own_style + "</style></head><body>\n";
}

std::string page_title(const nlohmann::json& document, const std::string& heading, const std::string& lead_html) {
  std::string html = "<header>\n<h1>" + escaped(heading) + "</h1>\n";
  if (!lead_html.empty()) html += "<p>" + lead_html + "</p>\n";
  if (document.is_object() && document.contains("command_line")) {
    html += "<pre class=command>" + escaped(show(document["command_line"])) + "</pre>\n";
  }
  return html + "</header>\n";
}

namespace {

// Of the envelope's machine and of what commands were asked for; other keys are their own names.
std::string label_of(const std::string& key) {
  static const std::map<std::string, std::string> labels{
      {"cpu", "CPU"},
      {"cores", "CPU cores"},
      {"memory_gb", "memory, GB"},
      {"tcp_congestion_control", "the kernel's default TCP congestion control"}};
  const auto found = labels.find(key);
  return found == labels.end() ? key : found->second;
}

}  // namespace

std::string page_end(const nlohmann::json& document, const std::vector<std::vector<std::string>>& more) {
  std::string html = "<h2>How it was made</h2>\n<div class=scroll><table class=text>";
  const auto add = [&](const std::string& what, const nlohmann::json& value) {
    html += row({label_of(what), value.is_array() ? value.dump() : show(value)});
  };
  for (const auto& cells : more) html += row(cells);
  if (document.is_object()) {
    add("clustar", document.value("version", nlohmann::json()));
    const nlohmann::json machine = document.value("machine", nlohmann::json::object());
    if (machine.is_object()) {
      for (const auto& [name, value] : machine.items()) add(name, value);
    }
  }
  return html + "</table></div>\n</body></html>\n";
}

}  // namespace clustar::bench::report
