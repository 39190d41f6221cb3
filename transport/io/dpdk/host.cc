#include "transport/io/dpdk/host.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <string>

#include "transport/io/dpdk/steering/steer.h"
#include "transport/net/socket.h"

namespace clustar::transport::io::dpdk {
namespace {

constexpr std::size_t kFrames = 64;
constexpr std::size_t kMostBursts = 4;  // in one poll, so that a caller gets its turn
// Per neighbour that has not answered yet.
constexpr std::size_t kMostWaiting = 64;

bool is_broken(const rte_mbuf& frame) {
  const std::uint64_t ip = frame.ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
  const std::uint64_t udp = frame.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
  return ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || udp == RTE_MBUF_F_RX_L4_CKSUM_BAD;
}

struct OpenHosts {
  struct Entry {
    std::weak_ptr<Host> host;
    bool has_device = false;  // also while the last end's host closes it
  };
  std::mutex mutex;
  std::condition_variable closed;
  std::map<std::string, Entry> by_device;
};
OpenHosts& open_hosts() {
  static OpenHosts all;
  return all;
}

}  // namespace

Result<std::shared_ptr<Host>> Host::open(const DeviceSpec& spec, const Subnet& subnet, const PortOptions& options) {
  OpenHosts& all = open_hosts();
  std::unique_lock lock(all.mutex);
  OpenHosts::Entry& known = all.by_device[spec.name];
  std::shared_ptr<Host> host;
  all.closed.wait(lock, [&] { return (host = known.host.lock()) != nullptr || !known.has_device; });
  if (host != nullptr) {
    if (host->subnet_.address == subnet.address) return host;
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("dpdk: {} is {} in this process already, and cannot be {}, too", spec.name,
                            to_text(host->subnet_.address), to_text(subnet.address)));
  }
  PortOptions with = options;
  with.beside_kernel = kernel_has(subnet.address);
  auto device = EthernetDevice::open(spec, with);
  if (!device) return tl::unexpected(device.error());
  std::uint32_t random = 0;
  if (const auto filled = net::fill_random(std::as_writable_bytes(std::span(&random, 1))); !filled) {
    return tl::unexpected(filled.error());
  }
  std::optional<FileDescriptor> arp;
  if ((*device)->is_steered()) {
    auto heard = hear_arp_on(spec.argument("iface").value_or(""));
    if (!heard) return tl::unexpected(heard.error());
    arp = std::move(*heard);
  }
  host.reset(new Host(spec.name, subnet, with.beside_kernel, std::move(*device), random));
  if (arp) host->arp_ = std::move(*arp);
  known = {host, true};
  return host;
}

Host::~Host() {
  waiting_.clear();
  device_.reset();
  OpenHosts& all = open_hosts();
  const std::lock_guard lock(all.mutex);
  all.by_device[name_].has_device = false;
  all.closed.notify_all();
}

Result<std::uint16_t> Host::bind(Inbox& inbox, std::uint8_t paths) {
  constexpr std::size_t kFirst = kFirstPort / kPortsApart;
  const std::size_t count = bindings_.size() - kFirst;
  std::string reason = "all are in use";
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t slot = kFirst + (random_ + i) % count;
    Binding& binding = bindings_[slot];
    if (binding.inbox != nullptr) continue;
    const auto first = static_cast<std::uint16_t>(slot * kPortsApart);
    if (kernel_owns_) {
      auto held = HeldPorts::hold(subnet_.address, first, paths, device_->is_steered() ? STEER_MARK : 0);
      if (!held) {
        reason = held.error().message;
        continue;
      }
      binding.held.emplace(std::move(*held));
    }
    binding.inbox = &inbox;
    binding.paths = paths;
    return first;
  }
  return fail(ErrorCode::kUnavailable, fmt::format("dpdk: no UDP ports for {} paths: {}", paths, reason));
}

void Host::unbind(std::uint16_t first) { bindings_[first / kPortsApart] = {}; }

Result<Neighbours::Id> Host::find_way(Ipv4 to) {
  const auto hop = subnet_.next_hop(to);
  if (!hop) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: no way from {}/{} to {}: another subnet, and CLUSTAR_DPDK_DEVICES names no gateway "
                            "(>GATEWAY)",
                            to_text(subnet_.address), subnet_.prefix, to_text(to)));
  }
  const auto way = neighbours_.want(*hop, clock_.now());
  if (!way) return fail(ErrorCode::kUnavailable, "dpdk: there are too many neighbours");
  ask();
  return *way;
}

void Host::leave_way(Neighbours::Id way) {
  neighbours_.forget(way);
  if (neighbours_.state(way) == Neighbours::State::kUnused) waiting_.erase(way);
}

void Host::address(rte_mbuf& frame, const Mac& mac) const { std::memcpy(head_of(frame).data(), mac.data(), 6); }

void Host::send(Buffer frame, const SendTo& to) {
  const std::span<std::byte> bytes = head_of(*frame);
  const Mac* mac = neighbours_.mac(to.way);
  const bool is_own = to.ip == subnet_.address;
  const UdpRoute route{device_->mac(),  mac != nullptr ? *mac : is_own ? device_->mac() : Mac{},
                       subnet_.address, to.ip,
                       to.from_port,    to.to_port};
  write_udp(bytes, route, frame->pkt_len - kUdpHeaderBytes, to.tos);
  ++counters_.frames_sent;
  // Between ends of this process, which no switch would send back.
  if (is_own) return on_frame(std::move(frame), clock_.now(), true);
  device_->seal(*frame);
  // A path's packets, whatever their peer, are one flow.
  const std::size_t flow = to.from_port;
  if (mac != nullptr) return device_->send(std::move(frame), flow);
  std::vector<WaitingFrame>& waiting = waiting_[to.way];
  if (neighbours_.state(to.way) == Neighbours::State::kSilent || waiting.size() >= kMostWaiting) {
    ++counters_.unreachable;
    return;
  }
  waiting.push_back({std::move(frame), flow});
}

bool Host::flush() { return device_->flush(); }

Duration Host::time_left() const {
  const TimePoint next = neighbours_.next_timeout();
  return next == Neighbours::kNever ? Duration::max() : std::max(next - clock_.now(), Duration::zero());
}

void Host::hear_arp(TimePoint now) {
  constexpr auto kApart = std::chrono::milliseconds(1);
  constexpr int kMost = 64;
  if (!arp_ || now < arp_due_) return;
  arp_due_ = now + kApart;
  std::array<std::byte, 128> frame;
  for (int i = 0; i < kMost; ++i) {
    const ssize_t length = ::recv(arp_.fd(), frame.data(), frame.size(), MSG_DONTWAIT);
    if (length <= 0) return;
    const ParsedFrame parsed = parse_ethernet(std::span(frame).first(static_cast<std::size_t>(length)));
    if (parsed.kind == FrameKind::kArp && parsed.source != device_->mac()) on_arp(parsed.arp, now);
  }
}

std::vector<int> Host::ready_fds() const {
  const auto sockets = device_->ready_fds();
  std::vector<int> all(sockets.begin(), sockets.end());
  if (!all.empty() && arp_) all.push_back(arp_.fd());
  return all;
}

void Host::poll(const Inbox* reader) {
  reader_ = reader;
  const TimePoint now = clock_.now();
  std::array<rte_mbuf*, kFrames> frames;
  for (std::size_t round = 0; round < kMostBursts; ++round) {
    const std::size_t count = device_->receive(frames);
    counters_.frames_received += count;
    for (std::size_t i = 0; i < count; ++i) on_frame(Buffer(frames[i]), now, false);
    if (count < kFrames) break;
  }
  hear_arp(now);
  if (now >= neighbours_.next_timeout()) do_due(now);
  device_->flush();
  reader_ = nullptr;
}

void Host::on_frame(Buffer frame, TimePoint now, bool is_own) {
  const std::span<const std::byte> bytes = frame_of(*frame);
  const ParsedFrame parsed = parse_ethernet(bytes);
  // A device that shares an interface with the kernel also shows what this host sends.
  if (!is_own && parsed.source == device_->mac()) return;
  const bool is_for_us = parsed.destination == device_->mac();
  const bool is_for_all = parsed.destination == kBroadcast;
  switch (parsed.kind) {
    case FrameKind::kArp:
      if (is_for_us || is_for_all) return on_arp(parsed.arp, now);
      break;
    case FrameKind::kEcho:
      if (is_for_us && parsed.to == subnet_.address) return on_echo(parsed);
      break;
    case FrameKind::kUdp:
      if (is_for_us && parsed.to == subnet_.address) return on_udp(std::move(frame), parsed, now, is_own);
      break;
    case FrameKind::kFragment:
      if (is_for_us && parsed.to == subnet_.address) ++counters_.fragments;
      return;
    case FrameKind::kDamaged:
      if (is_for_us || bytes.empty()) ++counters_.damaged;
      return;
    case FrameKind::kForeign: break;
  }
  ++counters_.foreign;
}

bool Host::is_sound(const ParsedFrame& parsed, const rte_mbuf& frame) const {
  if (is_broken(frame)) return false;
  if ((frame.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD) return true;
  const Checksum checksum = check_udp(parsed);
  return checksum != Checksum::kWrong && (checksum != Checksum::kPartial || device_->is_virtual());
}

void Host::on_udp(Buffer frame, const ParsedFrame& parsed, TimePoint now, bool is_own) {
  const Binding& binding = bindings_[parsed.to_port / kPortsApart];
  const auto path = static_cast<std::uint8_t>(parsed.to_port % kPortsApart);
  std::uint64_t* cause = nullptr;
  if (binding.inbox == nullptr || path >= binding.paths) {
    // The kernel has sockets of its own on an address that it owns.
    cause = kernel_owns_ ? &counters_.foreign : &counters_.unbound;
  } else if (!is_own && !is_sound(parsed, *frame)) {
    cause = &counters_.damaged;
  } else if (!binding.inbox->put({frame.get(), parsed.from, parsed.from_port, path, parsed.tos, now, parsed.payload})) {
    cause = &counters_.full;
  } else if (binding.inbox != reader_ && !device_->ready_fds().empty()) {
    binding.inbox->wake();
  }
  if (cause != nullptr) {
    ++*cause;
    return;
  }
  static_cast<void>(frame.release());
}

void Host::on_arp(const Arp& arp, TimePoint now) {
  if (arp.sender_ip == subnet_.address) return;  // somebody else claims our address: his loss or ours
  if (const auto way = neighbours_.on_claim(arp.sender_ip, arp.sender, now)) release_waiting(*way);
  if (arp.reply || kernel_owns_ || arp.target_ip != subnet_.address) return;
  Buffer frame = device_->take(kArpFrameBytes);
  if (!frame) return;
  write_arp(frame_of(*frame), {true, device_->mac(), subnet_.address, arp.sender, arp.sender_ip}, arp.sender);
  device_->send(std::move(frame));
  ++counters_.answered;
}

void Host::on_echo(const ParsedFrame& request) {
  if (kernel_owns_) return;
  Buffer frame = device_->take(kEthernetBytes + kIpv4Bytes + request.message.size());
  if (!frame) return;
  write_echo_reply(frame_of(*frame), request);
  device_->send(std::move(frame));
  ++counters_.answered;
}

void Host::ask() {
  while (const auto one = neighbours_.poll_ask()) {
    Buffer frame = device_->take(kArpFrameBytes);
    if (!frame) continue;  // it is asked again
    const Mac to = one->mac.value_or(kBroadcast);
    write_arp(frame_of(*frame), {false, device_->mac(), subnet_.address, one->mac.value_or(Mac{}), one->ip}, to);
    device_->send(std::move(frame));
    ++counters_.asked;
  }
  device_->flush();
}

void Host::do_due(TimePoint now) {
  neighbours_.on_timeout(now);
  ask();
  while (const auto way = neighbours_.poll_silent()) drop_waiting(*way);
}

void Host::release_waiting(Neighbours::Id way) {
  const auto found = waiting_.find(way);
  if (found == waiting_.end()) return;
  for (WaitingFrame& waiting : found->second) {
    address(*waiting.frame, *neighbours_.mac(way));
    device_->send(std::move(waiting.frame), waiting.flow);
  }
  waiting_.erase(found);
}

void Host::drop_waiting(Neighbours::Id way) {
  const auto found = waiting_.find(way);
  if (found == waiting_.end()) return;
  counters_.unreachable += found->second.size();
  waiting_.erase(found);
}

}  // namespace clustar::transport::io::dpdk
