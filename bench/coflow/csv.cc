#include "bench/coflow/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace clustar::bench::coflow {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t comma = line.find(','); comma != std::string_view::npos; comma = line.find(',')) {
    fields.push_back(trimmed(line.substr(0, comma)));
    line.remove_prefix(comma + 1);
  }
  fields.push_back(trimmed(line));
  return fields;
}

template <class T>
bool read(std::string_view text, T least, T most, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

bool Csv::next() {
  while (!rest_.empty()) {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    if (!line_.empty()) return true;
  }
  return false;
}

tl::unexpected<Error> Csv::wrong(const std::string& what) const {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", name_, number_, printable(what)));
}

Result<void> Csv::take_header(std::initializer_list<std::string_view> needed) {
  const auto names = fields_of(line_);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!columns_.emplace(names[i], i).second) return wrong(fmt::format("the column '{}' is there twice", names[i]));
  }
  for (const std::string_view name : needed) {
    if (has(name)) continue;
    return wrong(fmt::format("no column {}; needed: {}", name, fmt::join(needed, ", ")));
  }
  return {};
}

Result<void> Csv::split() {
  fields_ = fields_of(line_);
  if (fields_.size() == columns_.size()) return {};
  return wrong(fmt::format("{} fields; the header has {}", fields_.size(), columns_.size()));
}

Result<std::int64_t> Csv::whole(std::string_view column, std::int64_t least, std::int64_t most) const {
  std::int64_t value = 0;
  if (read(field(column), least, most, value)) return value;
  return wrong(fmt::format("{} is '{}'; allowed: whole numbers from {} to {}", column, field(column), least, most));
}

Result<double> Csv::real(std::string_view column, double least, double most) const {
  double value = 0;
  if (read(field(column), least, most, value)) return value;
  return wrong(fmt::format("{} is '{}'; allowed: {} to {}", column, field(column), least, most));
}

}  // namespace clustar::bench::coflow
