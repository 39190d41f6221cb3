// Generated traces with a given load.
#pragma once

#include <cstdint>
#include <string>

#include "bench/coflow/workload.h"
#include "transport/base/result.h"

namespace clustar::bench::coflow {

// Kinds of coflows about in the shares of Facebook's trace (Varys, SIGCOMM 2014, table 4: 52 % short and narrow, 16 %
// long and narrow, 15 % short and wide, 17 % long and wide). Senders and receivers are drawn without replacement, each
// receiver's flows have one size, logarithmically uniform within its kind.
struct GeneratorOptions {
  std::size_t ports = 150;    // 2 at least
  std::size_t coflows = 500;  // 1 at least
  double load = 0.9;          // Load::busiest, 0.001 at least; 0: all arrive at once
  std::uint64_t seed = 1;
};

// "ports=150,coflows=500,load=0.9,seed=1", any of them. Errors name what is allowed.
Result<GeneratorOptions> parse_generator(const std::string& text);

// Arrivals are uniform over the span that makes the load: a Poisson process, given its count. A seed's coflows, and
// their order, are the same at every load and rate: arrivals alone stretch.
Trace generate(const GeneratorOptions& options, double bytes_per_s);

}  // namespace clustar::bench::coflow
