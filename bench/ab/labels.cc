#include "bench/ab/labels.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "bench/report/page.h"

namespace clustar::bench::ab {

std::string option_label(const std::string& key) {
  static const std::map<std::string, std::string> labels{{"rate", "learning rate"},
                                                         {"learning_rate", "learning rate"},
                                                         {"batch", "global batch"},
                                                         {"first_bucket_bytes", "first gradient bucket, bytes"},
                                                         {"bucket_bytes", "gradient bucket, bytes"},
                                                         {"check_equal", "replicas compared"},
                                                         {"codec", "gradient codec"},
                                                         {"target_accuracy", "target accuracy"},
                                                         {"missing", "what is missing is taken as"},
                                                         {"first_seed", "seed of the first round"},
                                                         {"limit_s", "time limit of a run, s"},
                                                         {"inherited_settings", "inherited settings"},
                                                         {"train_arguments", "options of each run"},
                                                         {"load_average_before", "load average before"},
                                                         {"load_average_after", "load average after"}};
  const auto found = labels.find(key);
  return found == labels.end() ? key : found->second;
}

std::string option_text(const nlohmann::json& value) {
  if (value.is_number_float()) return fmt::format("{:g}", value.get<double>());
  if (value.is_null() || value.empty()) return "none";
  if (value.is_object() && value.contains("name")) return option_text(value["name"]);
  if (!value.is_array()) return report::show(value);
  std::string words;
  for (const nlohmann::json& one : value) words += (words.empty() ? "" : " ") + option_text(one);
  return words;
}

std::string rate_text(double per_second) {
  return per_second < 100 ? fmt::format("{:.3g}", per_second) : fmt::format("{:.0f}", per_second);
}

}  // namespace clustar::bench::ab
