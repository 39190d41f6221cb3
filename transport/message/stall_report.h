// Tells people of a peer that does nothing while work waits for it: a warning in the log, and an error once
// CLUSTAR_STALL_TIMEOUT is over.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "transport/base/log.h"
#include "transport/base/time.h"
#include "transport/message/stall_watch.h"

namespace clustar::transport {

// What a warning says: "<peer> <has sent nothing> for 10 s (<3 receives outstanding>); its host answers".
struct Stall {
  std::string peer;
  std::string silence;
  std::string waiting;
};

class StallReport {
 public:
  // `transport` begins the warning: "tcp".
  StallReport(const char* transport, Duration fail_after, const Clock& clock, const Log& log)
      : transport_(transport), clock_(clock), log_(log), watch_(fail_after) {}

  // As StallWatch::check. `describe` gives the Stall, and is asked only when there is something to say. The text of the
  // error when it is over; nothing while it is not.
  template <typename Describe>
  std::optional<std::string> check(bool outstanding, std::uint64_t progress, Describe describe) {
    const auto verdict = watch_.check(outstanding, progress, clock_.now());
    if (verdict == StallWatch::Verdict::kFine) return std::nullopt;
    const Stall stall = describe();
    std::string text = fmt::format("{} {} for {:.0f} s ({}); its host answers", stall.peer, stall.silence,
                                   std::chrono::duration<double>(watch_.silent()).count(), stall.waiting);
    if (verdict == StallWatch::Verdict::kFail) return text + "; CLUSTAR_STALL_TIMEOUT is over";
    log_.warn(fmt::format("{}: straggler: {}", transport_, text));
    return std::nullopt;
  }

 private:
  const char* const transport_;
  const Clock& clock_;
  const Log& log_;
  StallWatch watch_;
};

}  // namespace clustar::transport
