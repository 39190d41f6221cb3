#include <fmt/format.h>

#include <cmath>

#include "bench/perf/perf.h"

namespace clustar::bench::perf {
namespace {

using nlohmann::json;

json median_or_null(const std::vector<double>& values) { return values.empty() ? json() : json(median(values)); }

// Quantiles of all messages of all rounds. A p99.9 of fewer than 1,000 would be their maximum under another name.
json quantile_or_null(const Histogram& histogram, double q) {
  if (static_cast<double>(histogram.count()) * (1 - q) < 0.999999) return nullptr;
  return histogram.quantile(q) / 1e3;
}

void add_arm(json& row, const ArmValues& arm, const std::string& key, const std::string& suffix) {
  const Spread values = spread(arm.values);
  row[key] = values.median;
  row[key + "_min"] = values.min;
  row[key + "_max"] = values.max;
  row[key + "_samples"] = arm.values;
  row["p50_us" + suffix] = quantile_or_null(arm.histogram, 0.5);
  row["p99_us" + suffix] = quantile_or_null(arm.histogram, 0.99);
  row["p999_us" + suffix] = quantile_or_null(arm.histogram, 0.999);
  row["goodput_gbps" + suffix] = median(arm.gbps);
  row["cpu_s_per_gbit" + suffix] = median_or_null(arm.cpu_sleeping);
  row["cpu_s_per_gbit_spinning" + suffix] = median_or_null(arm.cpu_spinning);
  row["repetitions" + suffix] = arm.count;
  row["sample_s" + suffix] = arm.sample_seconds;
}

json used_or_null(const std::optional<OtherCpu>& other) { return other ? json(other->used) : json(); }

std::string note_on(const OtherCpu& other, const char* where) {
  return fmt::format("{}other processes used {:.1f} of the {} core{} in user time alone: repeat on an idle machine",
                     where, other.used, other.cores, other.cores == 1 ? "" : "s");
}

void add_ratio(json& row, const std::optional<RatioEstimate>& ratio, const std::string& key) {
  if (!ratio) return;
  row[key] = ratio->ratio;
  row[key + "_low"] = ratio->low;
  row[key + "_high"] = ratio->high;
}

}  // namespace

std::vector<std::string> notes(const RowResult& result) {
  std::vector<std::string> all;
  if (result.other_cpu && result.other_cpu->disturbs()) all.push_back(note_on(*result.other_cpu, ""));
  if (result.other_cpu_server && result.other_cpu_server->disturbs()) {
    all.push_back(note_on(*result.other_cpu_server, "on the server's machine "));
  }
  return all;
}

json results_to_json(const Report& report, const Options& options) {
  json results = json::array();
  for (const RowResult& result : report.rows) {
    json row = {{"test", to_string(result.row.test)},
                {"bytes", result.row.bytes},
                {"unit", unit_of(result.row.test)},
                {"better", lower_is_better(result.row.test) ? "lower" : "higher"},
                {"rounds", options.rounds}};
    // The sender's end decides: what it does not cut itself, no real link carries.
    row["offload_mode"] = report.arms["a"]["sender"]["interface"]["mode"];
    add_arm(row, result.a, "a", "");
    row["congestion_control"] = report.arms["a"]["congestion_control"];
    if (result.b) {
      add_arm(row, *result.b, "b", "_b");
      row["congestion_control_b"] = report.arms["b"]["congestion_control"];
    }
    if (result.limit) {
      add_arm(row, *result.limit, "limit", "_limit");
      row["congestion_control_limit"] = report.arms["limit"]["congestion_control"];
    }
    if (result.limit_udp) {
      add_arm(row, *result.limit_udp, "limit_udp", "_limit_udp");
      row["lost_packets_limit_udp"] = result.limit_udp->lost.packets;
      row["lost_bytes_limit_udp"] = result.limit_udp->lost.bytes;
    }
    row["inject_loss"] = options.inject_loss;
    if (result.row.test == Test::kIncast) row["senders"] = options.senders;
    if (result.row.test == Test::kMixed) {
      row["elephants"] = options.elephants;
      row["gap_ms"] = options.gap_ms;
    }
    add_ratio(row, result.ratio, "ratio");
    add_ratio(row, result.limit_ratio, "limit_ratio");
    add_ratio(row, result.limit_udp_ratio, "limit_udp_ratio");
    row["other_cpu"] = used_or_null(result.other_cpu);
    row["other_cpu_server"] = used_or_null(result.other_cpu_server);
    row["notes"] = notes(result);
    results.push_back(std::move(row));
  }
  return results;
}

json settings_to_json(const Options& options) {
  json settings = {{"rounds", options.rounds},
                   {"seconds", options.seconds},
                   {"congestion", options.congestion.empty() ? "kernel's default" : options.congestion},
                   {"pin", options.pin},
                   {"seed", options.seed},
                   {"timeout_s", std::chrono::duration<double>(options.timeout).count()},
                   {"posted_requests", 8},
                   {"cold_buffer_bytes", 64u << 20},
                   {"interval", "95 %, percentile bootstrap of the median of paired ratios, 10000 resamples"}};
  settings["server"] = options.server ? json(*options.server) : json();
  if (options.limit_tcp) settings["limit_streams"] = options.limit_streams;
  settings["inject_loss"] = options.inject_loss;
  settings["inject_faults"] = options.inject_faults.empty() ? json() : json(options.inject_faults);
  return settings;
}

}  // namespace clustar::bench::perf
