// Catches what a plugin writes through ncclDebugLogger_t. That callback carries no user pointer, so each open plugin
// takes one of a fixed number of slots, and each slot is a function of its own. With NCCL_DEBUG=INFO (or WARN, TRACE)
// the lines that NCCL would print then also go to standard error, as NCCL prints them.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "bench/proxy/net_plugin.h"
#include "nccl_plugin/abi/types.h"

namespace clustar::bench::proxy {

// Thread-safe. A library that is opened twice shares its statics, so its lines may all reach the capture that was given
// to its init last. Lines that arrive after destruction (a plugin thread still alive) are dropped.
class LogCapture {
 public:
  static constexpr std::size_t kMaxLines = 4096;
  static constexpr std::size_t kMaxLineBytes = 2048;
  static constexpr int kSlots = 64;

  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  // Never null. When all slots are taken the lines are lost, which no caller needs to treat as an error.
  nccl_abi::DebugLogger logger() const { return logger_; }

  void add(int level, unsigned long flags, std::string text);
  std::vector<LogLine> take();
  std::string last_warning() const;
  // NAME of the first information ": transport NAME, ...", by which a plugin says what carries its bytes; otherwise "".
  std::string transport() const;

 private:
  mutable std::mutex mutex_;
  std::deque<LogLine> lines_;
  std::string last_warning_;
  std::string transport_;
  int slot_ = -1;
  nccl_abi::DebugLogger logger_ = nullptr;
};

}  // namespace clustar::bench::proxy
