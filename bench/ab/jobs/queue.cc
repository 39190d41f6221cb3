#include "bench/ab/jobs/queue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace clustar::bench::ab::jobs {

nlohmann::json queue_json(const std::vector<coflow::JobSummary>& jobs) {
  nlohmann::json rows = nlohmann::json::array();
  double makespan = 0;
  for (const coflow::JobSummary& job : jobs) {
    makespan = std::max(makespan, job.ended_s);
    rows.push_back({{"name", job.name},
                    {"iterations", job.iterations},
                    {"alone_s", job.alone_s},
                    {"mean_iteration_s", job.mean_iteration_s},
                    {"submitted_s", job.submitted_s},
                    {"began_s", job.began_s},
                    {"ended_s", job.ended_s}});
  }
  return {{"mean_completion_s", coflow::mean_over(jobs, &coflow::JobSummary::completion_s)},
          {"mean_waited_s", coflow::mean_over(jobs, &coflow::JobSummary::waited_s)},
          {"makespan_s", makespan},
          {"jobs", std::move(rows)}};
}

std::optional<double> queue_figure(const nlohmann::json& details, const char* key) {
  if (!details.is_object() || !details.contains("queue")) return std::nullopt;
  return details["queue"].at(key).get<double>();
}

}  // namespace clustar::bench::ab::jobs
