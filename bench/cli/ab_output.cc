#include "bench/cli/ab_output.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/cli/options.h"
#include "bench/report/report.h"

namespace clustar::bench::cli {

Result<void> AbOutput::check() const {
  if (!json_path.empty() && json_path == report_path) {
    return fail(ErrorCode::kInvalidArgument,
                json_path == "-" ? "--json - and --report - would mix; give one of them a file"
                                 : fmt::format("--json and --report both name '{}'; allowed: a file each", json_path));
  }
  for (const auto& [option, path] : {std::pair("--json", &json_path), std::pair("--report", &report_path)}) {
    const auto ok = report::check_writable(*path);
    if (!ok) return fail(ok.error().code, fmt::format("{}: {}", option, ok.error().message));
  }
  return {};
}

std::ostream& AbOutput::people() const { return json_path == "-" || report_path == "-" ? std::cerr : std::cout; }

Result<void> AbOutput::write_files(const nlohmann::json& document, const Page& page) const {
  if (!json_path.empty() && json_path != "-") {
    if (auto ok = report::write_json(document, json_path); !ok) return ok;
  }
  if (report_path.empty() || report_path == "-") return {};
  return report::write_text(page(document), report_path);
}

Result<void> AbOutput::write(const nlohmann::json& document, const Page& page) const {
  if (auto ok = write_files(document, page); !ok) return ok;
  if (json_path == "-") {
    if (auto ok = report::write_json(document, "-"); !ok) return ok;
  }
  if (report_path == "-") return report::write_text(page(document), "-");
  if (!report_path.empty()) people() << fmt::format("Report with plots: {}\n", absolute_path(report_path));
  return {};
}

}  // namespace clustar::bench::cli
