// Traces of github.com/coflow/coflow-benchmark. First line: ports, coflows. Then a line for each coflow: its name (a
// number), arrival in ms, number of mappers, a rack for each, number of reducers, rack:MB for each. Racks count from 0;
// a MB has 2^20 B.
#pragma once

#include <string>
#include <string_view>

#include "bench/coflow/workload.h"
#include "transport/base/result.h"

namespace clustar::bench::coflow {

struct BenchmarkOptions {
  // As CoflowSim does it: a reducer's bytes are rounded up so that each of its flows has whole MB.
  bool whole_mb = false;
};

// Mappers of a rack are one sender, reducers of a rack one receiver; each sender sends the same to a receiver. Errors
// name the line, and say what was expected.
Result<Trace> parse_benchmark(std::string_view text, const std::string& name, const BenchmarkOptions& options = {});

}  // namespace clustar::bench::coflow
