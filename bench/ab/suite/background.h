// Others' traffic beside a run: processes on hosts that do not train send bursts to one that does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/ab/suite/scenario.h"
#include "bench/fabric/fabric.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::suite {

// Ends its processes when it goes, and they end when this process does.
class BackgroundTraffic {
 public:
  // A process on the target's host that receives and counts, and one on each of the hosts from `ranks` on that sends.
  // Returns when all are connected, within 10 s.
  static Result<std::unique_ptr<BackgroundTraffic>> start(const fabric::Fabric& fabric, const Background& background,
                                                          int ranks);
  ~BackgroundTraffic();
  BackgroundTraffic(const BackgroundTraffic&) = delete;
  BackgroundTraffic& operator=(const BackgroundTraffic&) = delete;

  struct Counts {
    std::uint64_t received_bytes = 0;
    std::uint64_t bursts = 0;   // that senders were done with
    std::uint64_t skipped = 0;  // because the one before was not yet taken by the kernel
    double seconds = 0;         // since they began
    // Between an earlier count and this one.
    Counts since(const Counts& before) const {
      return {received_bytes - before.received_bytes, bursts - before.bursts, skipped - before.skipped,
              seconds - before.seconds};
    }
    double goodput_bps() const { return seconds > 0 ? 8 * static_cast<double>(received_bytes) / seconds : 0; }
  };
  // kRemote: one of the processes has ended.
  Result<Counts> counts() const;

 private:
  struct Shared;

  BackgroundTraffic() = default;
  Result<void> fork_into(const fabric::Fabric& fabric, int host, auto body);

  Shared* shared_ = nullptr;  // mapped; the processes count in it
  std::vector<pid_t> processes_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace clustar::bench::ab::suite
