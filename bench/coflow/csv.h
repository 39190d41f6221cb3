// Lines of comma-separated values under a header, by the names of their columns; errors name file and line. Quotes mean
// nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::coflow {

// What is no printable ASCII as '?', so that a file's text does nothing to a terminal.
std::string printable(std::string_view text);

class Csv {
 public:
  // `text` outlives it.
  Csv(std::string_view text, std::string name) : rest_(text), name_(std::move(name)) {}

  // On to the next line that is not blank; false at the end.
  bool next();
  std::string_view line() const { return line_; }
  std::size_t number() const { return number_; }

  // The line that next() found is the header, which has these columns among others.
  Result<void> take_header(std::initializer_list<std::string_view> needed);
  bool has(std::string_view column) const { return columns_.contains(column); }
  // Every line behind the header has as many fields; otherwise an error.
  Result<void> split();
  std::string_view field(std::string_view column) const { return fields_[columns_.at(column)]; }
  Result<std::int64_t> whole(std::string_view column, std::int64_t least, std::int64_t most) const;
  Result<double> real(std::string_view column, double least, double most) const;
  tl::unexpected<Error> wrong(const std::string& what) const;

 private:
  std::string_view rest_;
  std::string_view line_;
  const std::string name_;
  std::size_t number_ = 0;
  std::map<std::string_view, std::size_t> columns_;
  std::vector<std::string_view> fields_;
};

}  // namespace clustar::bench::coflow
