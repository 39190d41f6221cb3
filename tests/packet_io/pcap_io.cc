#include "tests/packet_io/pcap_io.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "transport/base/bytes.h"

namespace clustar::transport::io {
namespace {

constexpr std::size_t kIp = 20;
constexpr std::size_t kUdp = 8;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFirstSourcePort = 49152;
constexpr std::uint32_t kThisEnd = 0xc0000201;  // 192.0.2.1, RFC 5737
constexpr std::uint32_t kPeers = 0x0a000000;    // 10.0.0.0/8

struct Envelope {
  std::uint32_t source;
  std::uint32_t destination;
  std::uint8_t path;
  std::uint8_t traffic_class;
  Ecn ecn;
  std::uint16_t port;
};

std::uint32_t address_of(PeerId peer) { return kPeers | (peer & 0xffffff); }

// IP, UDP, the byte of length and the packet's header, in front of a payload of `payload` bytes.
class Front {
 public:
  Front(const Envelope& envelope, std::span<const std::byte> header, std::size_t payload) {
    header = header.first(std::min(header.size(), Header::kMax));
    size_ = kIp + kUdp + 1 + header.size();
    length_ = size_ + payload;
    // A packet of a simulation can be longer than IP's field tells.
    const auto length = static_cast<std::uint16_t>(std::min<std::size_t>(length_, 0xffff));
    WireWriter ip{std::span(bytes_).first<kIp>()};
    ip.store<0>(std::uint8_t{0x45});  // version 4, no options
    ip.store<1>(static_cast<std::uint8_t>((envelope.traffic_class & 7) << 5 | static_cast<std::uint8_t>(envelope.ecn)));
    ip.store<2>(length);
    ip.store<6>(kDontFragment);
    ip.store<8>(std::uint8_t{64});
    ip.store<9>(std::uint8_t{17});  // UDP
    ip.store<12>(envelope.source);
    ip.store<16>(envelope.destination);
    ip.store<10>(ip_checksum());
    WireWriter udp{std::span(bytes_).subspan<kIp, kUdp>()};  // a checksum of 0: not computed
    udp.store<0>(static_cast<std::uint16_t>(kFirstSourcePort + envelope.path));
    udp.store<2>(envelope.port);
    udp.store<4>(static_cast<std::uint16_t>(length - kIp));
    bytes_[kIp + kUdp] = static_cast<std::byte>(header.size());
    std::ranges::copy(header, bytes_.begin() + kIp + kUdp + 1);
  }
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }
  std::size_t length() const { return length_; }  // with the payload

 private:
  std::uint16_t ip_checksum() const {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < kIp; i += 2) {
      sum += std::to_integer<std::uint32_t>(bytes_[i]) << 8 | std::to_integer<std::uint32_t>(bytes_[i + 1]);
    }
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
  }

  std::array<std::byte, kIp + kUdp + 1 + Header::kMax> bytes_{};
  std::size_t size_ = 0;
  std::size_t length_ = 0;
};

}  // namespace

PcapIo::PcapIo(std::unique_ptr<PacketIo> inner, const PcapIoOptions& options)
    : ForwardingIo(std::move(inner)),
      options_(options),
      clock_(options.clock != nullptr ? options.clock : &system_clock_),
      writer_(options.file) {
  if (options.clock == nullptr) {
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    options_.epoch = std::chrono::duration_cast<Duration>(since_1970) - clock_->now().time_since_epoch();
  }
}

Result<std::size_t> PcapIo::send(std::span<const TxPacket> packets) {
  auto taken = inner().send(packets);
  if (!taken || *taken == 0) return taken;
  const Duration time = options_.epoch + clock_->now().time_since_epoch();
  for (const TxPacket& packet : packets.first(*taken)) record(packet, time);
  return taken;
}

Result<std::size_t> PcapIo::receive(std::span<RxPacket> packets) {
  auto received = inner().receive(packets);
  if (!received || *received == 0) return received;
  const TimePoint now = clock_->now();
  for (const RxPacket& packet : packets.first(*received)) {
    // A backend without times of arrival leaves 0.
    const TimePoint at = packet.rx_time == TimePoint{} ? now : packet.rx_time;
    record(packet, options_.epoch + at.time_since_epoch());
  }
  return received;
}

void PcapIo::record(const TxPacket& packet, Duration time) {
  const Envelope envelope{.source = kThisEnd,
                          .destination = address_of(packet.peer),
                          .path = packet.path,
                          .traffic_class = packet.traffic_class,
                          .ecn = packet.ect ? Ecn::kEct0 : Ecn::kNotEct,
                          .port = options_.port};
  const Front front(envelope, packet.header.bytes(), packet.payload.length);
  writer_.write(time, PcapngWriter::Direction::kOutbound, front.bytes(), host_bytes(packet.payload), front.length());
}

void PcapIo::record(const RxPacket& packet, Duration time) {
  const Envelope envelope{.source = address_of(packet.peer),
                          .destination = kThisEnd,
                          .path = packet.path,
                          .traffic_class = packet.traffic_class,
                          .ecn = packet.ecn,
                          .port = options_.port};
  const Front front(envelope, packet.header, packet.payload.size());
  writer_.write(time, PcapngWriter::Direction::kInbound, front.bytes(), packet.payload, front.length());
}

}  // namespace clustar::transport::io
