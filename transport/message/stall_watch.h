// Tells a silent peer from a quiet one, in given time: warns after 10 s without progress while work is outstanding,
// then at doubling intervals; fails only when a limit was set. A dead host is not its business (see detect_dead_host).
#pragma once

#include <cstdint>

#include "transport/base/time.h"

namespace clustar::transport {

class StallWatch {
 public:
  explicit StallWatch(Duration fail_after) : fail_after_(fail_after) {}

  enum class Verdict : std::uint8_t { kFine, kWarn, kFail };
  // `progress` is any count that changes whenever the peer did something.
  Verdict check(bool outstanding, std::uint64_t progress, TimePoint now);
  Duration silent() const { return silent_; }

 private:
  static constexpr Duration kFirstWarning = std::chrono::seconds(10);

  Duration fail_after_;
  Duration silent_{0};
  Duration next_warning_ = kFirstWarning;
  TimePoint since_{};
  std::uint64_t progress_ = 0;
  bool watching_ = false;
};

}  // namespace clustar::transport
