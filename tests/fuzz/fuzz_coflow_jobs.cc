// The parsers of AICB's and Muri's files: any text is jobs whose flows are within their ports, or an error that names
// the file. The first byte chooses the parser and the rate of ports; the first line of a file is its keys.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/coflow/aicb.h"
#include "bench/coflow/muri.h"
#include "tests/fuzz/input.h"

namespace {

using clustar::fuzz::require;
using namespace clustar::bench::coflow;

void check(const std::vector<Phase>& phases, std::size_t ports) {
  for (const Phase& phase : phases) {
    require(phase.compute >= clustar::Duration::zero() && std::isfinite(phase.ring_bytes) && phase.ring_bytes >= 0);
    for (const auto& flow : phase.flows) {
      require(flow.src < ports && flow.dst < ports && flow.src != flow.dst);
      require(std::isfinite(flow.bytes) && flow.bytes > 0);
    }
  }
}

// Of what leaves nobody without ports, weight or end.
void check(const Job& job, std::size_t ports) {
  constexpr double kLongestS = 1e9 * (1 + 1e-9);
  require(std::isfinite(job.weight) && job.weight > 0 && job.iterations >= 1 && job.begins >= clustar::TimePoint{});
  const double iteration_s = alone(job.phases, job.compute_after, 1e9).iteration_s();
  require(iteration_s >= 0 && iteration_s <= kLongestS);
  check(job.phases, ports);
}

// Keys as they are after a change are mostly wrong: the file is read all the same.
template <class Options>
Options options_of(std::string_view& text, clustar::Result<Options> (*parse)(std::string_view), Options otherwise) {
  const std::string_view keys = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(keys.size() + 1, text.size()));
  const auto options = parse(keys);
  if (!options) require(options.error().message.find("allowed: ") != std::string::npos);
  return options ? *options : otherwise;
}

void aicb(std::string_view text, double bytes_per_s) {
  constexpr std::size_t kMostRanks = 4096, kMostOperations = 64;  // otherwise an expansion takes longer than a run may
  AicbOptions otherwise;
  otherwise.layout = {.ranks_per_port = 2, .first_port = 3};
  const AicbOptions options = options_of(text, parse_aicb_options, otherwise);
  const auto iteration = parse_aicb(text, "fuzz");
  if (!iteration) {
    require(iteration.error().message.starts_with("fuzz"));
    return;
  }
  std::size_t operations = 0;
  for (const AicbOperation& one : iteration->operations) {
    require(iteration->world % (one.groups.size * one.groups.stride) == 0 && one.root < one.groups.size);
    operations += one.count;
  }
  if (iteration->world > kMostRanks || operations > kMostOperations) return;
  const auto job = aicb_job(*iteration, "fuzz", options, bytes_per_s);
  if (!job) {
    require(job.error().message.starts_with("fuzz"));
    return;
  }
  check(*job, options.layout.first_port + options.layout.ports_of(iteration->world));
}

void muri(std::string_view text, double bytes_per_s) {
  const MuriOptions options = options_of(text, parse_muri_options, {.ports = 4, .gpus_per_port = 2});
  is_muri(text);
  const auto mix = parse_muri(text, "fuzz", options, bytes_per_s);
  if (!mix) {
    require(mix.error().message.starts_with("fuzz"));
    return;
  }
  for (const Job& job : mix->jobs) {
    require(job.gpus >= 1 && job.gpus <= options.ports * options.gpus_per_port);
    check(job, 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 4096;
  if (size == 0 || size > kMost) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const double bytes_per_s = (data[0] & 2) == 0 ? 1e9 : 125e3;
  if ((data[0] & 1) == 0) muri(text, bytes_per_s);
  if ((data[0] & 1) == 1) aicb(text, bytes_per_s);
  return 0;
}
