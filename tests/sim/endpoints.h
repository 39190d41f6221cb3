// Endpoints that the simulator's tests put on hosts.
#pragma once

#include <vector>

#include "transport/sim/host.h"

namespace clustar::transport::sim {

inline TimePoint ns(std::int64_t count) { return TimePoint(Duration(count)); }

// Keeps all that arrives.
struct Recorder final : Endpoint {
  struct Arrival {
    SimPacket packet;
    TimePoint at;
  };
  std::vector<Arrival> arrivals;
  std::vector<TimePoint> wakes;
  std::vector<TimePoint> rooms;

  void on_packet(SimPacket& packet, TimePoint now) override { arrivals.push_back({packet, now}); }
  TimePoint on_wake(TimePoint now) override {
    wakes.push_back(now);
    return kNever;
  }
  void on_room(TimePoint now) override { rooms.push_back(now); }
  std::vector<std::uint64_t> tags() const {
    std::vector<std::uint64_t> all;
    for (const Arrival& arrival : arrivals) all.push_back(arrival.packet.payload_tag);
    return all;
  }
};

inline SimPacket packet_to(HostId destination, std::uint32_t payload_bytes, std::uint64_t tag = 0,
                           std::uint8_t traffic_class = 0) {
  SimPacket packet;
  packet.destination = destination;
  packet.payload_bytes = payload_bytes;
  packet.payload_tag = tag;
  packet.traffic_class = traffic_class;
  return packet;
}

}  // namespace clustar::transport::sim
