// Proves that all ranks hold the same parameters, bit for bit, after every step that was recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

struct Mismatch {
  std::uint64_t step = 0;  // the first step, counted from 1, after which replicas differed
  std::string message;     // names the step, the ranks that differ and the digests
};

// Digests are taken at each step and exchanged in groups over the bootstrap connection: outside the transport under
// test, and without synchronising the ranks at every step.
class ReplicaCheck {
 public:
  // `bootstrap` may be null (one rank): then nothing is ever different.
  explicit ReplicaCheck(proxy::Bootstrap* bootstrap) : bootstrap_(bootstrap) {}

  void record(std::uint64_t step, std::span<const float> parameters);
  bool group_is_full() const { return digests_.size() == kGroup; }
  // Compares what was recorded since the last call. All ranks call it after the same steps, with the same outcome.
  Result<std::optional<Mismatch>> compare();

  static constexpr std::size_t kGroup = 16;

 private:
  proxy::Bootstrap* bootstrap_;
  std::vector<std::uint64_t> steps_;
  std::vector<std::uint64_t> digests_;
};

}  // namespace clustar::bench::trainer
