// The folder /run/clustar: one lock for everything that changes fabrics, and one small file per fabric with what was
// asked for. The kernel knows what there is; the file only lets a difference be seen, and may be missing.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "bench/fabric/signals.h"
#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

// Held by one process that makes or removes fabrics, or by any number that only look. Tools inherit the descriptor,
// so that the lock outlives a process that is killed for as long as its tool still runs.
class StateLock {
 public:
  enum class Mode { kChange, kLook };
  // Waits up to 30 s for others; kUnavailable then, kSystem when `signals` (null: none) says that it was interrupted.
  static Result<StateLock> take(Mode mode, const HeldSignals* signals = nullptr);
  ~StateLock();
  StateLock(StateLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), mode_(other.mode_) {}
  StateLock& operator=(StateLock&&) = delete;

  int fd() const { return fd_; }

 private:
  StateLock(int fd, Mode mode) : fd_(fd), mode_(mode) {}

  int fd_ = -1;
  Mode mode_;
};

std::string state_path(const std::string& fabric);
// Its owner is the one that it had, unless the caller takes it over.
Result<void> write_state(const FabricSpec& spec, bool takes_over = false);
std::optional<FabricSpec> read_state(const std::string& fabric);  // nothing when missing or unreadable
bool remove_state(const std::string& fabric);                     // true if there was one

}  // namespace clustar::bench::fabric
