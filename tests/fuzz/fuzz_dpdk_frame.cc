// What a frame's parser shows lies within the frame; what is written is read as it was; what a neighbour claims changes
// its own entry only.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/input.h"
#include "transport/io/dpdk/core/ethernet.h"
#include "transport/io/dpdk/core/neighbours.h"

namespace {

using namespace clustar::transport::io::dpdk;
using clustar::fuzz::require;
using Bytes = std::span<const std::byte>;

bool within(Bytes inner, Bytes outer) {
  return inner.empty() || (inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size());
}

void check_udp_frame(const ParsedFrame& parsed) {
  require(parsed.message.size() == parsed.payload.size() + kUdpBytes);
  std::vector<std::byte> again(kUdpHeaderBytes + parsed.payload.size());
  std::ranges::copy(parsed.payload, again.begin() + kUdpHeaderBytes);
  write_udp(again, {parsed.source, parsed.destination, parsed.from, parsed.to, parsed.from_port, parsed.to_port},
            parsed.payload.size(), parsed.tos);
  finish_udp(again);
  const ParsedFrame read = parse_ethernet(again);
  require(read.kind == FrameKind::kUdp && check_udp(read) == Checksum::kGood);
  require(read.from == parsed.from && read.to == parsed.to && read.tos == parsed.tos);
  require(read.from_port == parsed.from_port && read.to_port == parsed.to_port);
  require(std::ranges::equal(read.payload, parsed.payload));
}

void check_echo(const ParsedFrame& request) {
  std::vector<std::byte> reply(kEthernetBytes + kIpv4Bytes + request.message.size());
  require(write_echo_reply(reply, request) == reply.size());
  const ParsedFrame read = parse_ethernet(reply);
  require(read.kind == FrameKind::kForeign && read.from == request.to && read.to == request.from);
}

void check_claim(const Arp& arp) {
  Neighbours neighbours({});
  const clustar::TimePoint now{};
  const auto id = neighbours.want(0x0a000002, now).value();
  const auto news = neighbours.on_claim(arp.sender_ip, arp.sender, now);
  require(!news || (*news == id && arp.sender_ip == 0x0a000002));
  require((neighbours.mac(id) != nullptr) == news.has_value());
  require(neighbours.is_consistent());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that a sanitizer sees a read behind it.
  const std::vector<std::byte> frame(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const ParsedFrame parsed = parse_ethernet(frame);
  require(within(parsed.message, frame) && within(parsed.payload, frame));
  switch (parsed.kind) {
    case FrameKind::kUdp:
      static_cast<void>(check_udp(parsed));
      check_udp_frame(parsed);
      break;
    case FrameKind::kEcho: check_echo(parsed); break;
    case FrameKind::kArp: check_claim(parsed.arp); break;
    default: break;
  }
  return 0;
}
