// One end of an arm's connections within a worker: host 0 receives from everybody, every other host sends to it.
// Two kinds: plain sockets (tcp_endpoint.h) and waist 1 (transport_endpoint.h). Nothing blocks but connect(), accept()
// and sleep(). One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/lossy/arm.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

using SteadyClock = std::chrono::steady_clock;

// What both ends of a crew agree on.
struct Terms {
  Arm arm;
  int senders = 1;
  std::size_t message_bytes = 0;
  int messages = 1;  // of each sender in a round
  int window = 1;    // at most at a time
  std::uint64_t rate_bps = 0;
  std::int64_t deadline_ns = 0;  // of a message, for MltMode::kStaticDeadline

  // What a round brings to the receiver: the collective's bytes, of which p may be missing.
  std::uint64_t round_bytes() const {
    return static_cast<std::uint64_t>(message_bytes) * static_cast<std::uint64_t>(senders * messages);
  }
};

// A message that is done at this end.
struct Ended {
  int peer = 0;  // at the receiver, the sender's index; 0 at a sender
  int slot = 0;
  std::vector<transport::MissingRange> missing = {};  // at the receiver
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Receiver: one text per sender, for its connect().
  virtual Result<std::vector<std::string>> listen(const std::string& own_address) = 0;
  virtual Result<void> accept(SteadyClock::time_point deadline) = 0;
  // Sender number `index`.
  virtual Result<void> connect(const std::string& where, int index, SteadyClock::time_point deadline) = 0;

  // Where the message in `slot` (0 .. window - 1) lies.
  virtual std::span<std::byte> memory(int peer, int slot) = 0;
  // Sends, or receives, one message. `round` numbers the collective.
  virtual Result<void> post(int peer, int slot, std::uint32_t round) = 0;
  // Moves what can be moved and appends what ended.
  virtual Result<void> progress(std::vector<Ended>& ended) = 0;
  // Until something may be moved again; at most some tens of microseconds where nobody tells.
  virtual void sleep() = 0;
  // What was asked for and is so, read back from the kernel or the transport.
  virtual Result<nlohmann::json> facts() = 0;
};

}  // namespace clustar::bench::lossy
