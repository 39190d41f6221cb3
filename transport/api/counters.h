// What a transport has done since it was made, in numbers: for exporters and tools, and for the line that people read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace clustar::transport {

// Payload of messages that are done: of a send, once its receiver or the kernel has all of it that it will ever have;
// of a receive, once it came, without what is missing.
struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;

  Traffic& operator+=(const Traffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

// What went over some channels.
struct ChannelTraffic {
  Traffic sent, received;
  std::uint64_t missing_bytes = 0;  // of messages received, and lost for good
  // Sends that could not leave whole when they were posted: the receive was not known, and they were too long to go
  // ahead of it, or found no room there.
  std::uint64_t waits = 0;

  ChannelTraffic& operator+=(const ChannelTraffic& other);
  bool operator==(const ChannelTraffic&) const = default;
};

struct ClassTraffic {
  int traffic_class = -1;  // ChannelOptions::traffic_class; -1 = undefined
  ChannelTraffic traffic{};
};

struct PeerTraffic {
  std::string host;            // as the network names it; empty: those that found no place of their own
  int rank = -1;               // what it said of itself; -1 = unknown
  std::uint32_t channels = 0;  // open
  ChannelTraffic traffic{};
};

// A number that only one transport has.
struct OwnNumber {
  std::string name;     // for machines: strangers_dropped
  std::string meaning;  // for people, behind the number: "strangers dropped"
  std::uint64_t value = 0;
};

struct DeviceCounters {
  std::string device;
  ChannelTraffic total{};
  std::vector<ClassTraffic> classes{};  // that were seen, in ascending order
  std::vector<PeerTraffic> peers{};
  // Packets, where the transport sees them; otherwise 0, except what the kernel or the NIC tells of them.
  std::uint64_t packets_sent = 0, packets_received = 0;
  std::uint64_t retransmitted = 0;  // packets
  std::uint64_t marked = 0;         // packets that came, or of whom the peer said that they came, with CE
  // Now: of sends that may leave, and neither with the NIC nor the kernel; not of those that wait for their receives.
  std::uint64_t queued_bytes = 0;
  std::vector<OwnNumber> own{};
  std::string note{};  // for people: what no number says

  // 0: it has none of that name.
  std::uint64_t number(const std::string& name) const;
};

struct Counters {
  std::string transport;
  std::vector<DeviceCounters> devices{};
  std::string note{};  // for people, of all devices

  // "tcp: eth0 sent 2 messages / 8 bytes, received 0 / 0, 1 strangers dropped;"
  std::string summary() const;
};

}  // namespace clustar::transport
