// Pieces of the HTML pages that commands write: one file, nothing outside it, no JavaScript, light and dark scheme, for
// wide and narrow windows and for paper.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace clustar::bench::report {

// & < > and quotes, for text and for attribute values in quotes.
std::string escaped(const std::string& text);

// Of UTF-8: how many, and the first so many.
std::size_t characters(const std::string& text);
std::string first_characters(const std::string& text, std::size_t count);

// Escapes the text. `tag`: td or th.
std::string cell(const std::string& text, const char* tag = "td");
std::string row(const std::vector<std::string>& cells, const char* tag = "td");

// A value as people read it, with so many decimals; "-" for null.
std::string show(const nlohmann::json& value, int digits = 3);

// From the doctype to <body>, with the look that all pages share (style.h) and what a page needs beside it. Escapes the
// title, not the style.
std::string page_head(const std::string& title, const std::string& own_style = {});

// What every page begins with: heading, a paragraph in HTML, and the command that made it. `document`: bench/report's
// envelope.
std::string page_title(const nlohmann::json& document, const std::string& heading, const std::string& lead_html);

// What every page ends with: rows of its own, version and machine; and the end of the page.
std::string page_end(const nlohmann::json& document, const std::vector<std::vector<std::string>>& more = {});

}  // namespace clustar::bench::report
