// The options of the protocol.
#pragma once

#include <cstdint>

#include "mlt/core/classes.h"
#include "mlt/core/send/congestion.h"
#include "mlt/core/send/paths.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class Recovery;

// Allowed ranges are in options.cc, whose errors name them. Both ends of a connection need the same paths,
// max_messages, max_staged, unscheduled_bytes and recovery. The rest may differ, the segment too: the sender's counts.
struct Options {
  const Recovery* recovery = nullptr;     // null: MLT's own; must outlive the connection
  std::uint16_t segment = 1408;           // payload bytes of a packet, kMinSegment ..
  std::uint8_t paths = 8;                 // 1 .. kMaxPaths
  std::uint32_t burst_bytes = 16 * 1024;  // consecutive packets on one path (UCCL-Tran: 16 KiB costs 4 %, 32 KiB 18 %)
  std::uint32_t pace_bytes = 0;           // may leave at once, however recent the last packet; 0: burst_bytes
  // Bytes of a message that are sent before its receive is known to be posted; at least a packet, unless 0. Without
  // credit a connection has at most this much, 16 KiB or one packet on its way, whichever is most; messages of one
  // packet that pass long ones count, too.
  std::uint32_t unscheduled_bytes = 4096;
  std::uint32_t max_messages = 256;        // of one connection, until they are forgotten
  std::uint32_t max_staged = 64;           // messages of a connection that arrived before their receives or records
  std::uint32_t max_tags = 4096;           // different tags that a connection may use
  std::uint32_t max_in_flight = 1u << 14;  // packets of one lane; tables grow only as far as needed
  std::uint8_t ack_every = 24;             // packets
  Duration ack_delay = std::chrono::microseconds(25);
  std::uint8_t reorder_packets = 3;  // later packets of a lane that make an earlier one lost (RFC 5681's three)
  Duration gap_floor = std::chrono::microseconds(20);  // silence before a receiver asks; at least 2 base_rtt
  Duration ask_cap = std::chrono::microseconds(250);   // longest silence before it asks, however slow the sender
  Duration probe_floor = std::chrono::microseconds(500);
  Duration probe_cap = std::chrono::milliseconds(100);
  Duration initial_rtt = std::chrono::microseconds(100);
  Duration base_rtt = std::chrono::microseconds(20);  // of the network without queues; sizes the credit
  Duration peer_timeout = std::chrono::seconds(30);   // probes unanswered for this long are an error
  // The most that a peer may ask to lose, in parts per million; a message that asks for more is reliable. 0: the
  // communicator did not opt in.
  std::uint32_t max_tolerance_ppm = 0;
  std::uint64_t line_rate = 12'500'000'000;  // bytes/s of the NIC
  std::uint32_t credit_slack = 32 * 1024;    // bytes of credit beyond line rate x round trip
  Congestion congestion;                     // its segment is set to ours
  PathOptions path;
  Classes classes;
  // True: a message longer than its receive arrives like any other, and the caller keeps what fits. False: the receive
  // ends at once, truncated, with nothing placed.
  bool cut_long = false;
  // Whether a sender may add parity and a receiver keeps it. The caller has a code, and both ends agree.
  bool parity = false;
  Duration parity_from = std::chrono::milliseconds(2);  // round trip without queues from which parity is sent
  std::uint32_t max_parity = 64;                        // parity packets that a receiver keeps for a connection
  std::uint32_t mouse_bytes = 16 * 1024;  // reliable messages up to this size pass the others in the switches

  void check() const;  // std::invalid_argument names the option and what is allowed

  // Size of a staging buffer: the unscheduled part of a message in whole packets.
  std::uint32_t staging_bytes() const { return (unscheduled_bytes + segment - 1) / segment * segment; }
};

}  // namespace clustar::mlt
