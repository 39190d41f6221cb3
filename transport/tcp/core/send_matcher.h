// Sender's half of the matching protocol: gives each message its per-tag number and says when it may leave.
// A message leaves at once when the peer's receive is known (clear to send) or when it is small enough to go ahead of
// the receive (eager) within a window of bytes; otherwise it waits for its clear-to-send. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "transport/base/ring.h"
#include "transport/tcp/core/wire.h"

namespace clustar::transport::tcp {

class SendMatcher {
 public:
  // One message cleared to leave: `cookie` is the caller's, `header` lacks only offset and length of its chunks.
  struct Departure {
    std::uint32_t cookie;
    ChunkHeader header;
  };

  explicit SendMatcher(const SharedSettings& settings) : settings_(settings) {}

  // nullopt: the message waits; on_clear_to_send() will hand it out.
  std::optional<Departure> submit(std::uint32_t cookie, int tag, std::uint64_t bytes);

  enum class Verdict : std::uint8_t { kNoted, kDeparture, kProtocolError };
  struct ClearResult {
    Verdict verdict;
    Departure departure{};
  };
  ClearResult on_clear_to_send(const ClearToSend& clear);

  // Messages whose departure depends on the peer's next clear-to-send.
  std::size_t waiting() const { return waiting_; }
  // The receive of the next message with this tag is known.
  bool has_clear(int tag) const;
  // True when a message of `bytes` could not leave eagerly now.
  bool needs_clear(std::uint64_t bytes) const { return !fits_window(bytes); }

 private:
  static constexpr std::uint32_t kMaxEagerMessages = 1024;

  struct Sent {  // numbered, and its receive not known yet
    std::uint32_t cookie;
    std::uint64_t bytes;
    bool eager;
  };
  // Invariant: not both `unmatched` and `clears` hold something.
  struct Tag {
    std::uint32_t next_seq = 0;        // of the next message
    std::uint32_t next_clear_seq = 0;  // of the next clear-to-send
    Ring<Sent> unmatched;
    Ring<ClearToSend> clears;
  };

  bool fits_window(std::uint64_t bytes) const;
  static Departure matched(std::uint32_t cookie, std::uint64_t bytes, const ClearToSend& clear);

  SharedSettings settings_;
  // Grows with the caller's tags, and with the peer's by no more than the clear-to-sends that may be held.
  std::unordered_map<int, Tag> tags_;
  std::uint64_t eager_bytes_ = 0;  // sent ahead of receives that are not known yet
  std::uint32_t eager_messages_ = 0;
  std::size_t waiting_ = 0;
  std::size_t clears_held_ = 0;
};

}  // namespace clustar::transport::tcp
