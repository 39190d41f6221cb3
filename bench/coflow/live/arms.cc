#include "bench/coflow/live/arms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace clustar::bench::coflow::live {

const std::vector<Arm>& arms() {
  // As many levels as the order has for unknown sizes, with the limits that it begins with.
  static const std::string kUnknown = "dclas:local=1,queues=14,first=1e6,factor=2";
  static const std::vector<Arm> all{
      {.name = "fair",
       .what = "plain kernel sockets, a connection for each flow of a trace, or for each pair of a job's hosts",
       .plain = true,
       .trace_policy = "maxmin",
       .jobs_policy = "maxmin"},
      {.name = "fair-rto5",
       .what = "the same with a minimum RTO of 5 ms (Linux 6.11 or later)",
       .plain = true,
       .rto_min_us = 5'000,
       .trace_policy = "maxmin",
       .jobs_policy = "maxmin"},
      {.name = "fair-bbr",
       .what = "the same by bbr",
       .plain = true,
       .congestion_control = "bbr",
       .trace_policy = "maxmin",
       .jobs_policy = "maxmin"},
      {.name = "fifo", .what = "clustar's transport, by arrival", .order = "fifo"},
      {.name = "coflow",
       .what = "clustar's order, coflows' sizes known; jobs in turns",
       .order = "coflow",
       .sizes = true,
       .trace_policy = "bssi",
       .jobs_policy = "turns"},
      {.name = "unknown",
       .what = "the same without sizes (D-CLAS of each host alone)",
       .order = "coflow",
       .trace_policy = kUnknown},
      {.name = "coordinated",
       .what = "as coflow, and all hosts have one order, of `clustar coordinator` on host 0",
       .order = "coflow",
       .sizes = true,
       .coordinated = true,
       .trace_policy = "bssi",
       .jobs_policy = "turns"},
      {.name = "no-shifts",
       .what = "as coordinated, but periodic jobs are not held back",
       .order = "coflow",
       .sizes = true,
       .coordinated = true,
       .shifts = false,
       .trace_policy = "bssi",
       .jobs_policy = "turns"},
      {.name = "coordinator-dies",
       .what = "as coordinated; the coordinator is killed every 15 s, and back after 3 s",
       .order = "coflow",
       .sizes = true,
       .coordinated = true,
       .coordinator_dies = true,
       .trace_policy = "bssi",
       .jobs_policy = "turns"},
      {.name = "coflow-dscp",
       .what = "as coflow, and the switches keep the order by CLUSTAR_SEND_DSCP (TCP)",
       .order = "coflow",
       .classes = true,
       .sizes = true,
       .trace_policy = "bssi",
       .jobs_policy = "turns"},
      {.name = "coordinated-dscp",
       .what = "as coordinated, likewise",
       .order = "coflow",
       .classes = true,
       .sizes = true,
       .coordinated = true,
       .trace_policy = "bssi",
       .jobs_policy = "turns"},
      {.name = "unknown-dscp",
       .what = "as unknown, likewise",
       .order = "coflow",
       .classes = true,
       .trace_policy = kUnknown},
      {.name = "by-size",
       .what = "sizes known, all jobs of a host in one process: by size, without turns",
       .order = "coflow",
       .sizes = true,
       .process_per_job = false,
       .trace_policy = "bssi",
       .jobs_policy = "bssi"},
  };
  return all;
}

Result<std::vector<Arm>> parse_arms(const std::string& text) {
  std::vector<Arm> found;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    const auto arm = std::ranges::find(arms(), name, &Arm::name);
    if (arm == arms().end()) {
      std::vector<std::string> names;
      for (const Arm& one : arms()) names.push_back(one.name);
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--arms: '{}' is no arm; allowed: {}", name, fmt::join(names, ", ")));
    }
    if (std::ranges::find(found, name, &Arm::name) != found.end()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("--arms: '{}' is there twice; allowed: each once", name));
    }
    found.push_back(*arm);
  }
  return found;
}

}  // namespace clustar::bench::coflow::live
