// Out-of-band exchange between ranks, as NCCL's bootstrap: rank 0 listens on TCP, everyone else connects.
// Used for handles, barriers and verdicts; never on a timed path.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::rendezvous {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  static constexpr std::chrono::milliseconds kGrace{5000};

  struct Options {
    int rank = 0;
    int size = 1;
    // host:port of rank 0 (IPv4, or [IPv6]:port). Rank 0 binds it; port 0 is not allowed here.
    std::string root;
    // How long to wait for the others to appear; afterwards each call is bounded by `call_timeout`.
    std::chrono::milliseconds join_timeout{30000};
    std::chrono::milliseconds call_timeout{120000};
    // Ranks from this one on may be missing, or go: the others wait half of `join_timeout` for them to appear, then
    // kGrace in a call, and have zeros instead of what they would say. 0: none may.
    int required = 0;
  };
  static Result<std::unique_ptr<Bootstrap>> join(const Options& options);
  // A free loopback "127.0.0.1:port" for processes that the caller is about to start.
  static Result<std::string> pick_loopback_root();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Every rank gives the same number of bytes; returns size() * mine.size() bytes in rank order.
  // A rank that died or timed out is an error that names it.
  virtual Result<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  virtual Result<void> barrier() = 0;
};

}  // namespace clustar::rendezvous
