// The coordinator of an arm: `clustar coordinator`, on host 0 of the fabric, beside that host's own bytes.
#pragma once

#include <optional>
#include <string>

#include "bench/fabric/fabric.h"
#include "bench/perf/process.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::bench::coflow::live {

class CoordinatorProcess {
 public:
  struct Options {
    std::string policy{};  // --policy
    bool shifts = true;    // --shifts
    bool dies = false;     // it is killed now and then, and comes back
  };
  CoordinatorProcess(const fabric::Fabric& fabric, const Options& options) : fabric_(fabric), options_(options) {}

  // Returns when it listens.
  Result<void> start();
  // HOST:PORT, for CLUSTAR_COORDINATOR.
  std::string address() const { return fabric_.address(kHost) + ":" + kPort; }
  // Kills it, or brings it back, as the time says; an error: it has ended by itself.
  Result<void> look(TimePoint elapsed);

  // Within each kEvery it is away from kDiesAt on for kAway.
  static constexpr Duration kEvery = std::chrono::seconds(15), kDiesAt = std::chrono::seconds(6),
                            kAway = std::chrono::seconds(3);

 private:
  static constexpr int kHost = 0;
  static constexpr const char* kPort = "7480";

  const fabric::Fabric& fabric_;
  const Options options_;
  std::optional<perf::Process> process_;
};

}  // namespace clustar::bench::coflow::live
