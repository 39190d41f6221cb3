// What an engine counts.
#pragma once

#include <cstdint>

namespace clustar::mlt::driver {

struct EngineCounters {
  std::uint64_t missing_packets = 0;  // of messages sent: what their receivers did without
  std::uint64_t eligible_bytes = 0;   // LedgerBook::totals(): of messages received that may lose,
  std::uint64_t charged = 0;          // contribution-bytes that were given up,
  std::uint64_t refused = 0;          // and how often the bound did not allow it
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t marked = 0;           // of them: with CE
  std::uint64_t retransmissions = 0;  // packets
  std::uint64_t parity = 0;           // packets of it that were sent
  std::uint64_t rebuilt = 0;          // packets, by parity
  std::uint64_t strangers = 0;        // packets of no connection, and greetings without the token
  std::uint64_t unauthenticated = 0;  // Sealing::Counters
  std::uint64_t replayed = 0;
  std::uint64_t queued_bytes = 0;  // now: of messages whose receive is known, never sent

  EngineCounters& operator+=(const EngineCounters& other);
};

}  // namespace clustar::mlt::driver
