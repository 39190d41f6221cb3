// Two MLT endpoints with nothing between them but time, for measuring and counting what the core does by itself.
#pragma once

#include <cstdint>

#include "mlt/core/endpoint.h"

namespace clustar::bench::micro {

struct PairOptions {
  mlt::Options core;
  std::uint32_t connections = 1;
  std::uint32_t message_bytes = 1 << 20;
  std::uint32_t ahead = 4;             // messages of a connection that are under way, as NCCL keeps a few
  std::uint32_t lose_every = 0;        // each n-th data packet is lost; 0: none
  mlt::SendTerms terms;                // `collective` is counted up by the pair
  std::uint32_t collective_bytes = 0;  // of messages, after which the next collective begins; 0: all are one
};

// Headers are written and read as on a wire; payload, which the core never touches, is left out. Time is virtual and
// advances by a packet's time on the line, so that the pacer lets packets through as it would on a real one.
class MltPair {
 public:
  struct Counters {
    std::uint64_t packets = 0;  // data, handed to the receiver
    std::uint64_t lost = 0;     // data, not handed to it
    std::uint64_t control = 0;  // acknowledgements and the like, to the sender
    std::uint64_t probes = 0;
    std::uint64_t received = 0;  // messages
    std::uint64_t sent = 0;      // messages, settled at their sender
    std::uint64_t missing = 0;   // bytes given up
  };

  explicit MltPair(const PairOptions& options);

  // Until so many more data packets arrived, or messages were received and settled. False: it came to a standstill.
  bool run_packets(std::uint64_t count);
  bool run_messages(std::uint64_t count);
  void lose_every(std::uint32_t packets) { options_.lose_every = packets; }
  const Counters& counters() const { return counters_; }

 private:
  bool round();
  std::uint32_t move(mlt::Endpoint& from, mlt::Endpoint& to);
  void sender_events();
  void receiver_events();
  bool send(mlt::Endpoint::ConnectionId connection);

  PairOptions options_;
  TimePoint now_{std::chrono::seconds(1)};
  mlt::SendTerms terms_;
  std::uint64_t offered_ = 0;  // messages
  std::uint64_t data_ = 0;     // packets, with those that are lost
  Counters counters_;
  mlt::Endpoint from_;
  mlt::Endpoint to_;
  bool failed_ = false;
};

}  // namespace clustar::bench::micro
