// The parsers of AICB's and Muri's files: any text is jobs whose flows are within their ports, or an error that names
// the file. The first byte chooses the parser, the layout and the keys.
#include <cmath>
#include <cstdint>
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

void aicb(std::string_view text, std::size_t ranks_per_port) {
  constexpr std::size_t kMostRanks = 4096, kMostOperations = 64;  // else an expansion takes longer than a run may
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
  AicbOptions options;
  options.layout = {.ranks_per_port = ranks_per_port, .first_port = 3};
  options.iterations = 1;
  const auto job = aicb_job(*iteration, "fuzz", options, 1e9);
  if (!job) {
    require(job.error().message.starts_with("fuzz"));
    return;
  }
  require(job->weight > 0);
  check(job->phases, 3 + options.layout.ports_of(iteration->world));
}

void muri(std::string_view text) {
  is_muri(text);
  const auto mix = parse_muri(text, "fuzz", {.ports = 4, .gpus_per_port = 2}, 1e9);
  if (!mix) {
    require(mix.error().message.starts_with("fuzz"));
    return;
  }
  for (const Job& job : mix->jobs) {
    require(job.gpus >= 1 && job.gpus <= 8 && job.iterations >= 1);
    check(job.phases, 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 4096;
  if (size == 0 || size > kMost) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::uint8_t kKinds = 4;
  const unsigned kind = data[0] % kKinds;
  if (kind == 0) muri(text);
  if (kind == 1) aicb(text, 1 + data[0] / kKinds);
  if (kind == 2) static_cast<void>(parse_aicb_options(text));
  if (kind == 3) static_cast<void>(parse_muri_options(text));
  return 0;
}
