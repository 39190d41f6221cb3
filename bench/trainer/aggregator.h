// A process that adds for ParaExpress's ranks: `clustar aggregator`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/trainer/paraexpress_options.h"
#include "paraexpress/engine/helper.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct AggregatorOptions {
  int helper = 0, helpers = 1, ranks = 1;
  std::string root{};  // HOST:PORT of rank 0, where ranks and helpers meet
  std::uint64_t most_bytes = std::uint64_t{16} << 30;
  std::chrono::milliseconds stall_timeout{120000};
  std::function<void()> on_met{};  // all are there: from here on `stop` is looked at
};
// Blocks until the ranks are done, or `stop` is true. Error: what ended it before.
Result<paraexpress::HelperReport> run_aggregator(const AggregatorOptions& options, const std::atomic<bool>& stop);

// Of the command line that starts one.
std::vector<std::string> aggregator_arguments(const std::string& program, const ParaexpressOptions& plan, int ranks,
                                              int helper, std::chrono::milliseconds stall_timeout);

}  // namespace clustar::bench::trainer
