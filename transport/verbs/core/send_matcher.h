// Sender's half of the matching protocol: gives each message its per-tag number and says how it leaves. When the
// peer's receive is known, straight to its memory (direct); otherwise, if it is small, ahead of its receive into a
// place of the peer's (eager); otherwise it waits for the receive's descriptor. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "transport/base/ring.h"
#include "transport/verbs/core/wire.h"

namespace clustar::transport::verbs {

class SendMatcher {
 public:
  // `eager_bytes`: the receiver's.
  explicit SendMatcher(std::uint32_t eager_bytes) : eager_bytes_(eager_bytes) {}

  struct Departure {
    std::uint32_t cookie = 0;  // the caller's
    std::uint64_t bytes = 0;   // of the message, cut to its receive
    int tag = 0;
    std::uint32_t seq = 0;
    bool eager = false;
    std::uint32_t place = 0;  // eager: below kEagerSlots
    Descriptor descriptor{};  // direct
  };
  // nullopt: the message waits; on_descriptor() will hand it out.
  std::optional<Departure> submit(std::uint32_t cookie, int tag, std::uint64_t bytes);

  enum class Verdict : std::uint8_t { kNoted, kDeparture, kProtocolError };
  struct Outcome {
    Verdict verdict = Verdict::kNoted;
    Departure departure{};
  };
  // Descriptor number consumed(), and so on in order.
  Outcome on_descriptor(const Descriptor& descriptor);
  // The peer has taken so many eager messages out of their places since the beginning. Old numbers are ignored.
  void on_freed(std::uint32_t freed);

  std::uint32_t consumed() const { return consumed_; }
  // The peer must hear of consumed() in time, otherwise it runs out of room in the ring; every header says it for
  // nothing.
  bool must_tell() const { return consumed_ - told_ >= kRing / 4; }
  void told() { told_ = consumed_; }
  // Messages whose departure depends on the peer's next descriptor.
  std::size_t waiting() const { return waiting_; }

 private:
  struct Waiting {
    std::uint32_t cookie = 0;
    std::uint32_t seq = 0;
    std::uint64_t bytes = 0;
  };
  // Both rings grow in the order of seq; what `known` holds was not submitted yet.
  struct Tag {
    std::uint32_t next_seq = 0;
    Ring<Waiting> waiting{};
    Ring<Descriptor> known{};
  };

  static Departure direct(std::uint32_t cookie, std::uint64_t bytes, const Descriptor& descriptor);

  const std::uint32_t eager_bytes_;
  // Grows with the caller's tags, and with the peer's by no more than the descriptors that may be held.
  std::unordered_map<int, Tag> tags_;
  std::size_t waiting_ = 0;
  std::size_t known_ = 0;
  std::uint32_t consumed_ = 0;
  std::uint32_t told_ = 0;
  std::uint32_t eager_sent_ = 0;
  std::uint32_t eager_freed_ = 0;
};

}  // namespace clustar::transport::verbs
