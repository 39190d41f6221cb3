// Pieces of the HTML pages that commands write: one file, nothing outside it, no JavaScript, light and dark scheme.
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

// Colours (as variables, by scheme), text and tables. A page appends its own.
extern const char* const kPageStyle;

// From the doctype to <body>. Escapes the title, not the style.
std::string page_head(const std::string& title, const std::string& style);
// What follows the page's content.
extern const char* const kPageEnd;

}  // namespace clustar::bench::report
