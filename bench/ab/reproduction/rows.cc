#include "bench/ab/reproduction/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace clustar::bench::ab::reproduction {

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows{
      {"lr", 2.59}, {"mlp", 3.45}, {"alexnet", 1.6}, {"vgg16", 1.33}, {"resnet50", 1.03}};
  return rows;
}

Result<std::vector<Row>> choose_rows(const std::vector<std::string>& models) {
  std::vector<std::string> known;
  for (const Row& row : all_rows()) known.push_back(row.model);
  for (const std::string& model : models) {
    if (std::find(known.begin(), known.end(), model) != known.end()) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("--table-models: nothing was published of '{}'; allowed: {}",
                                                         model, fmt::join(known, ", ")));
  }
  if (models.empty()) return all_rows();
  std::vector<Row> chosen;
  for (const Row& row : all_rows()) {
    if (std::find(models.begin(), models.end(), row.model) != models.end()) chosen.push_back(row);
  }
  return chosen;
}

double wanted_ceiling(const Row& row) { return kRoom * row.published; }

Scales first_scales(const Row& row, const Load& load) {
  const double server_s =
      2.0 * load.ranks * 8 * static_cast<double>(load.gradient_bytes) / static_cast<double>(load.rate_bps);
  const double per_compute = wanted_ceiling(row) - 1;
  Scales scales;
  scales.byte = std::max(1.0, server_s / (kComputeSeconds * per_compute));
  scales.time = server_s / scales.byte / per_compute / load.compute_s;
  return scales;
}

double time_scale(const Row& row, const Load& load, double exposed_s) {
  return exposed_s / (wanted_ceiling(row) - 1) / load.compute_s;
}

int steps_of(const Row& row, double compute_s) {
  return static_cast<int>(std::min(std::ceil(kRunSeconds / (wanted_ceiling(row) * compute_s)), 10'000.0));
}

}  // namespace clustar::bench::ab::reproduction
