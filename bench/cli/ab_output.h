// Where a comparison's results go: a JSON document and a page, each to a file or to standard output.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::cli {

struct AbOutput {
  std::string json_path{};    // of --json; empty: none, "-": standard output
  std::string report_path{};  // of --report, alike

  bool to_files() const { return !json_path.empty() || !report_path.empty(); }
  // Before long work. kInvalidArgument: a path cannot be written, or both are the same.
  Result<void> check() const;
  // What is for people: standard output, where nothing else goes there.
  std::ostream& people() const;

  using Page = std::function<std::string(const nlohmann::json& document)>;
  // Files only; each is replaced in one step, so that what was there stays whenever this ends.
  Result<void> write_files(const nlohmann::json& document, const Page& page) const;
  // At the end: files and standard output. Tells people where the page is.
  Result<void> write(const nlohmann::json& document, const Page& page) const;
};

}  // namespace clustar::bench::cli
