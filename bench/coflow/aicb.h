// Workloads of AICB (github.com/aliyun/aicb): the collectives of a training iteration in the order of the program.
//
// Line 1 is [rank0 ~ rank127], line 2 the header, then a line for each operation. No traffic: stages init*, barriers,
// epoch_end. The first operations that an epoch_end or the file's end closes are the iteration.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/coflow/collectives.h"
#include "bench/coflow/jobs.h"
#include "transport/base/result.h"

namespace clustar::bench::coflow {

struct AicbOperation {
  Collective collective = Collective::kAllReduce;
  Groups groups{};
  std::size_t root = 0;  // of a broadcast, within its group
  double bytes = 0;      // in all
  std::size_t count = 1;
};

struct AicbIteration {
  std::size_t world = 0;
  std::vector<AicbOperation> operations{};
};

// By its first line; parse_aicb() may still refuse it.
bool is_aicb(std::string_view text);

// tp_group: consecutive ranks. dp_group and ep_group: as many ranks apart as tp_group has, in Megatron's order
// (tp-ep-dp). all: all. Errors name the line, and what is supported: one stage of pipeline, collectives only.
Result<AicbIteration> parse_aicb(std::string_view text, const std::string& name);

struct AicbOptions {
  Layout layout{.ranks_per_port = 8};
  std::size_t iterations = 10;
  double duty = 0.5;                   // share of an iteration alone that is communication
  std::optional<double> compute_ms{};  // of an iteration, instead
  double begins_ms = 0;
  int deadline_ms = 0;            // CLUSTAR_DEADLINE_MS where it is played under a coordinator; 0: none
  double share = 1;               // of the tenant
  std::optional<double> tflop{};  // of an iteration
};

// "ranks_per_port=8,iterations=100", any of them. Errors name what is allowed.
Result<AicbOptions> parse_aicb_options(std::string_view text);

// One coflow for each operation of all its groups, one after the other: nothing overlaps, not even what a framework
// would overlap. The compute time is spread over the operations evenly. The weight is `share`; with `tflop`, times the
// job's GPU intensity: work over the time of communication alone (Crux, SIGCOMM 2024). Errors: ports that there are
// not, more than an iteration may have, more than 1e9 s for one alone; size_of() of all of them is the caller's to
// check.
Result<Job> aicb_job(const AicbIteration& iteration, const std::string& name, const AicbOptions& options,
                     double bytes_per_s);

}  // namespace clustar::bench::coflow
