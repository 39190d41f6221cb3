#include "transport/api/counters.h"

#include <fmt/format.h>

#include <algorithm>

namespace clustar::transport {

ChannelTraffic& ChannelTraffic::operator+=(const ChannelTraffic& other) {
  sent += other.sent;
  received += other.received;
  missing_bytes += other.missing_bytes;
  waits += other.waits;
  return *this;
}

std::uint64_t DeviceCounters::number(const std::string& name) const {
  const auto found = std::find_if(own.begin(), own.end(), [&](const OwnNumber& one) { return one.name == name; });
  return found == own.end() ? 0 : found->value;
}

std::string Counters::summary() const {
  std::string text = transport + ":";
  for (const DeviceCounters& device : devices) {
    text += fmt::format(" {} sent {} messages / {} bytes, received {} / {}", device.device, device.total.sent.messages,
                        device.total.sent.bytes, device.total.received.messages, device.total.received.bytes);
    if (device.packets_sent + device.packets_received > 0) {
      text += fmt::format(", {} packets sent, {} of them again, {} received, {} with CE", device.packets_sent,
                          device.retransmitted, device.packets_received, device.marked);
    } else if (device.retransmitted > 0) {
      text += fmt::format(", {} packets sent again", device.retransmitted);
    }
    for (const OwnNumber& one : device.own) text += fmt::format(", {} {}", one.value, one.meaning);
    if (device.classes.size() > 1) {
      text += ", bytes sent by class";
      for (const ClassTraffic& one : device.classes) {
        text += fmt::format(" {}: {}", one.traffic_class < 0 ? "-" : std::to_string(one.traffic_class),
                            one.traffic.sent.bytes);
      }
    }
    if (!device.note.empty()) text += ", " + device.note;
    text += ";";
  }
  if (devices.empty()) text += " nothing was sent or received";
  if (!note.empty()) text += " " + note;
  return text;
}

}  // namespace clustar::transport
