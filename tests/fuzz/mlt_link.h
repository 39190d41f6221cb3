// One connection between two endpoints, with the memory of both its users: what was sent and posted, where every byte
// went, and what must hold of it. Of a connection whose peer lies only that nothing leaves its place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "mlt/core/endpoint.h"
#include "tests/fuzz/input.h"

namespace clustar::fuzz {

enum class Way : std::uint8_t { kForth, kBack };  // to the receiver, to the sender

// A packet on its way; its payload is a part of a message.
struct Wire {
  std::vector<std::byte> header;
  std::uint32_t payload = 0;
  std::uint32_t message = 0;
  std::uint32_t offset = 0;
};

class Link {
 public:
  static constexpr std::uint32_t kTags = 3;
  struct End {
    mlt::Endpoint& endpoint;
    mlt::Options options;
  };

  Link(End sends, End receives, std::uint64_t secret, bool honest, TimePoint now)
      : sends_(std::move(sends)), receives_(std::move(receives)), secret_(secret), honest_(honest) {
    from_ = sends_.endpoint.open_sender(1, secret_, now, sends_.options);
    to_ = receives_.endpoint.open_receiver(2, secret_, now, receives_.options);
    staging_.assign(receives_.options.max_staged, std::vector<std::uint8_t>(receives_.options.staging_bytes()));
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() {
    sends_.endpoint.close(from_);
    receives_.endpoint.close(to_);
  }

  std::vector<Wire>& wires(Way way) { return wires_[way == Way::kForth ? 0 : 1]; }
  std::uint64_t secret() const { return secret_; }
  bool honest() const { return honest_; }
  std::uint16_t segment() const { return sends_.options.segment; }
  bool is(const mlt::Endpoint& endpoint, mlt::Endpoint::ConnectionId id, Way& way) const {
    way = &endpoint == &sends_.endpoint && id == from_ ? Way::kForth : Way::kBack;
    return way == Way::kForth || (&endpoint == &receives_.endpoint && id == to_);
  }
  mlt::Receiver& receiver() { return receives_.endpoint.receiver(to_); }

  // False: refused, or it would take the places of those whose turn it is.
  bool send(std::uint32_t tag, std::uint32_t bytes, std::uint32_t terms, TimePoint now);
  bool post(std::uint32_t tag, std::uint32_t length, TimePoint now);
  // Sends and posts what the other side waits for.
  void level(TimePoint now);
  void release_all();
  // Grows with every byte and message that came.
  std::uint64_t progress() { return receiver().counters().placed_bytes + sends_done_ + received_; }
  // Everything that was sent and posted has ended.
  bool over() const;

  void arrive(Way way, const Wire& wire, bool marked, bool can_stage, TimePoint now);
  void on_event(Way way, const mlt::Endpoint::Event& event, TimePoint now);

 private:
  struct Sent {
    std::uint32_t bytes = 0;
    bool tolerant = false;
    bool important = false;  // every third packet
    bool done = false;
    mlt::Identity identity;
  };
  struct Posted {
    std::uint32_t tag = 0;
    std::uint32_t seq = 0;
    std::vector<std::uint8_t> memory;
  };

  // What the sender's user has there: a part of what looks random, another one for each message.
  std::span<const std::uint8_t> content(std::uint32_t message, std::uint32_t offset, std::size_t length) const;
  // A connection holds so many messages and receives: if some tags had all, those whose turn it is had none.
  bool crowded() const { return sent_.size() - received_ + ahead_ >= receives_.options.max_messages; }
  bool cuts() const { return receives_.options.cut_long; }
  std::span<std::uint8_t> room(std::uint32_t receive, std::uint32_t offset, std::uint32_t length);
  void unstage(std::uint32_t receive);
  void rebuild(TimePoint now);
  void on_done(const mlt::ReceiveDone& done);
  void on_done(const mlt::SendDone& done);
  using Ranges = std::vector<mlt::Receiver::Range>;
  Ranges missing(const mlt::ReceiveDone& done);
  void check_message(const mlt::ReceiveDone& done, const Posted& posted, const Ranges& missing);
  void check_losses(const mlt::ReceiveDone& done, const Sent& sent, const Ranges& missing);

  End sends_;
  End receives_;
  std::uint64_t secret_;
  bool honest_;
  mlt::Endpoint::ConnectionId from_ = 0;
  mlt::Endpoint::ConnectionId to_ = 0;
  std::array<std::vector<Wire>, 2> wires_;
  std::vector<Sent> sent_;                                  // by message
  std::array<std::vector<std::uint32_t>, kTags> messages_;  // by tag, in order
  std::array<std::uint32_t, kTags> posts_{};                // by tag
  std::map<std::uint32_t, Posted> open_;                    // by receive
  std::vector<std::uint32_t> ended_;                        // receives not released yet
  std::vector<std::vector<std::uint8_t>> staging_;
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> parity_;  // by buffer: message, index
  std::uint64_t sends_done_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t ahead_ = 0;  // receives whose messages are not sent yet
};

}  // namespace clustar::fuzz
