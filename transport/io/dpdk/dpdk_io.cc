#include "transport/io/dpdk/dpdk_io.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <ctime>
#include <utility>

#include "transport/io/udp/frame.h"

namespace clustar::transport::io::dpdk {
namespace {

constexpr std::size_t kLeastPacket = 64;
constexpr std::size_t kMostDatagram = 65535 - kIpv4Bytes - kUdpBytes;
constexpr std::uint8_t kMostClass = 7;
// Below that a copy is cheaper than a second buffer.
constexpr std::size_t kLeastBorrowed = 512;
constexpr std::uint32_t kBorrowed = 256;
// Of one call, for which the other ends of the port wait.
constexpr std::size_t kMostTaken = 1024;

std::uint8_t tos_for(const TxPacket& packet) {
  const Ecn ecn = packet.ect ? Ecn::kEct0 : Ecn::kNotEct;
  if (packet.dscp == 0) return udp::tos_of(packet.traffic_class, ecn);
  return static_cast<std::uint8_t>(packet.dscp | static_cast<std::uint8_t>(ecn));
}

// Behind the last packet of a datagram there may be padding.
bool holds_packet(std::span<const std::byte> rest) { return !rest.empty() && rest[0] != udp::kPadding; }

// Memory that frames may show.
class ShownMr final : public Mr {
 public:
  ShownMr(const gdr::MemoryRef& memory, DpdkIo& io) : Mr(memory), io_(io) {}
  ~ShownMr() override { io_.quiesce(); }

 private:
  DpdkIo& io_;
};

}  // namespace

DpdkIo::DpdkIo(std::shared_ptr<Host> host, const DpdkIoOptions& options)
    : host_(std::move(host)), options_(options), inbox_(options.inbox) {
  const std::size_t around = kIpv4Bytes + kUdpBytes + udp::kFrameBytes;
  const std::size_t mtu = std::min(host_->device().mtu(), kMostDatagram + kIpv4Bytes + kUdpBytes);
  capabilities_.max_packet = mtu > around ? mtu - around : 0;
  capabilities_.header_bytes = std::min(Header::kMax, capabilities_.max_packet);
  capabilities_.paths = options.paths;
  capabilities_.marks = true;
}

Result<std::unique_ptr<DpdkIo>> DpdkIo::open(std::shared_ptr<Host> host, const DpdkIoOptions& options) {
  if (options.paths < 1 || options.paths > Host::kMostPaths) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("dpdk: paths is {}; allowed is 1 to {}", options.paths, Host::kMostPaths));
  }
  std::unique_ptr<DpdkIo> io(new DpdkIo(std::move(host), options));
  if (io->capabilities_.max_packet < kLeastPacket) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: an MTU of {} bytes leaves no room", io->host_->device().mtu()));
  }
  if (io->host_->device().gathers()) {
    constexpr std::size_t kNoRoom = 0;
    auto pool = make_pool(kBorrowed, kNoRoom, io->host_->device().numa_node());
    if (!pool) return tl::unexpected(pool.error());
    io->borrowed_.emplace(kBorrowed, std::move(*pool));
    io->capabilities_.copies = false;
    io->capabilities_.in_flight = kBorrowed;
  }
  if (io->inbox_.fd() >= 0) io->ready_ = io->host_->ready_fds();
  if (!io->ready_.empty()) io->ready_.push_back(io->inbox_.fd());
  const auto lock = io->host_->lock();
  const auto first = io->host_->bind(io->inbox_, options.paths);
  if (!first) return tl::unexpected(first.error());
  io->first_port_ = *first;
  return io;
}

DpdkIo::~DpdkIo() {
  const auto lock = host_->lock();
  if (current_) drop_current();
  inbox_.clear();
  if (first_port_ == 0) return;
  drop_borrowed();
  host_->unbind(first_port_);
  peers_.for_each([this](const Peer& peer) { host_->leave_way(peer.way); });
}

Result<std::unique_ptr<Mr>> DpdkIo::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind != gdr::MemoryKind::kHost) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("packets over DPDK reach host memory only; memory of kind '{}' cannot be registered",
                            gdr::to_string(memory.kind)));
  }
  if (memory.address == nullptr && memory.length > 0) {
    return fail(ErrorCode::kInvalidArgument, "memory to be registered has a length but no address");
  }
  if (borrowed_) return std::make_unique<ShownMr>(memory, *this);
  return std::make_unique<Mr>(memory);
}

void DpdkIo::quiesce() {
  if (!borrowed_) return;
  const auto lock = host_->lock();
  drop_borrowed();
}

// Those frames that the device has no room for yet. Packets may be lost, and some of other ends with them.
void DpdkIo::drop_borrowed() {
  if (!borrowed_) return;
  host_->flush();
  if (borrowed_->any()) host_->drop_waiting();
}

bool DpdkIo::is_valid(const TxPacket& packet, const Peer* peer) const {
  const MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  const std::size_t most = capabilities_.max_packet;
  const bool readable = slice.mr == nullptr ? slice.length == 0
                                            : slice.length <= slice.mr->memory().length &&
                                                  slice.offset <= slice.mr->memory().length - slice.length;
  return peer != nullptr && readable && header > 0 && slice.length <= most && header + slice.length <= most &&
         packet.path < options_.paths && packet.traffic_class <= kMostClass;
}

std::string DpdkIo::refusal(const TxPacket& packet) const {
  const MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  const std::size_t most = capabilities_.max_packet;
  if (peers_.find(packet.peer) == nullptr) return fmt::format("dpdk: there is no peer {}", packet.peer);
  if (header == 0) return "dpdk: a packet needs a header of at least 1 byte";
  if (slice.length > most || header + slice.length > most) {
    return fmt::format("dpdk: a packet of {} + {} bytes was offered; the limit is {}", header, slice.length, most);
  }
  if (packet.path >= options_.paths) {
    return fmt::format("dpdk: there is no path {}; paths are below {}", packet.path, options_.paths);
  }
  if (packet.traffic_class > kMostClass) {
    return fmt::format("dpdk: there is no traffic class {}; classes are 0 to 7", packet.traffic_class);
  }
  return fmt::format("dpdk: a payload of {} bytes at offset {} is outside of its registered memory", slice.length,
                     slice.offset);
}

Result<std::size_t> DpdkIo::send(std::span<const TxPacket> packets) {
  const auto lock = host_->lock();
  const std::size_t most = std::min(packets.size(), kMostTaken);
  std::size_t taken = 0;
  while (taken < most) {
    // What was taken before goes first; a device that has no room for it has none for more.
    if (taken % 64 == 0 && !host_->flush()) break;
    const TxPacket& packet = packets[taken];
    const Peer* const peer = peers_.find(packet.peer);
    if (!is_valid(packet, peer)) {
      if (taken > 0) break;
      return fail(ErrorCode::kInvalidArgument, refusal(packet));
    }
    if (borrowed_ && !borrowed_->has_place()) break;
    if (!send_one(packet, *peer)) break;
    if (borrowed_) borrowed_->pass();
    ++taken;
  }
  host_->flush();
  counters_.packets_sent += taken;
  counters_.back_pressure += taken < most ? 1u : 0u;
  return taken;
}

bool DpdkIo::send_one(const TxPacket& packet, const Peer& peer) {
  const auto header = packet.header.bytes();
  const SendTo to{peer.way, peer.ip, static_cast<std::uint16_t>(first_port_ + packet.path), peer.ports[packet.path],
                  tos_for(packet)};
  std::span<const std::byte> payload;
  if (packet.payload.length > 0) {
    payload = {static_cast<const std::byte*>(packet.payload.mr->memory().address) + packet.payload.offset,
               packet.payload.length};
  }
  const bool shown = borrowed_ && payload.size() >= kLeastBorrowed && host_->leaves_at_once(to);
  Buffer frame = host_->take(udp::kFrameBytes + header.size() + (shown ? 0 : payload.size()));
  if (!frame) return false;
  std::byte* at = frame_of(*frame).data() + kUdpHeaderBytes;
  *at++ = static_cast<std::byte>(header.size());
  at = std::ranges::copy(header, at).out;
  if (shown) {
    if (!borrowed_->attach(*frame, payload)) return false;
  } else {
    std::ranges::copy(payload, at);
  }
  host_->send(std::move(frame), to);
  return true;
}

bool DpdkIo::next_datagram() {
  while (!current_ && !inbox_.empty()) {
    Datagram datagram = inbox_.take();
    const auto peer = peers_.sender(Peer::origin_of(datagram.from, datagram.from_port, datagram.path));
    if (peer && holds_packet(datagram.payload)) {
      current_ = datagram;
      current_peer_ = *peer;
      break;
    }
    ++(peer ? counters_.malformed : counters_.strangers);
    rte_pktmbuf_free(datagram.buffer);
  }
  return current_.has_value();
}

void DpdkIo::drop_current() {
  rte_pktmbuf_free(current_->buffer);
  current_.reset();
}

// Each packet holds the buffer that it lies in once; the last of a datagram takes over the datagram's own hold.
std::size_t DpdkIo::deliver(std::span<RxPacket> packets) {
  std::size_t filled = 0;
  while (filled < packets.size() && next_datagram()) {
    Datagram& datagram = *current_;
    const bool known = peers_.find(current_peer_) != nullptr;  // it may have been removed since
    const auto frame = known ? udp::parse_frame(datagram.payload) : std::nullopt;
    if (!frame) {
      ++(known ? counters_.malformed : counters_.strangers);
      drop_current();
      continue;
    }
    packets[filled++] = {.peer = current_peer_,
                         .path = datagram.path,
                         .traffic_class = udp::class_of(datagram.tos),
                         .ecn = udp::ecn_of(datagram.tos),
                         .rx_time = datagram.time,
                         .header = frame->header,
                         .payload = frame->payload,
                         .cookie = reinterpret_cast<std::uintptr_t>(datagram.buffer)};
    datagram.payload = datagram.payload.subspan(frame->length);
    if (holds_packet(datagram.payload)) {
      rte_mbuf_refcnt_update(datagram.buffer, 1);
    } else {
      current_.reset();
    }
  }
  counters_.packets_received += filled;
  return filled;
}

Result<std::size_t> DpdkIo::receive(std::span<RxPacket> packets) {
  const auto lock = host_->lock();
  host_->poll(&inbox_);
  return deliver(packets);
}

// Under the lock, as all that takes buffers and gives them back: for a pool's own lock, a caller would spin while the
// thread that has it does not run.
void DpdkIo::release(std::span<const RxPacket> packets) {
  if (packets.empty()) return;
  const auto lock = host_->lock();
  std::array<rte_mbuf*, 64> buffers;
  while (!packets.empty()) {
    const auto some = packets.first(std::min(packets.size(), buffers.size()));
    std::ranges::transform(some, buffers.begin(), [](const RxPacket& packet) {
      auto* const buffer = reinterpret_cast<rte_mbuf*>(static_cast<std::uintptr_t>(packet.cookie));
      assert(buffer != nullptr && rte_mbuf_refcnt_read(buffer) > 0);
      return buffer;
    });
    rte_pktmbuf_free_bulk(buffers.data(), static_cast<unsigned>(some.size()));
    packets = packets.subspan(some.size());
  }
}

std::uint64_t DpdkIo::unsent_bytes() const {
  const auto lock = host_->lock();
  return host_->waiting_bytes();
}

Duration DpdkIo::before_sleep() {
  const auto lock = host_->lock();
  host_->poll(&inbox_);
  inbox_.calm();
  if (current_ || !inbox_.empty()) return Duration::zero();
  if (ready_.empty()) return Duration::max();
  // An interface that went down is an error of its socket, readable until somebody asks for it.
  for (const int socket : std::span(ready_).first(ready_.size() - 1)) {
    int error = 0;
    socklen_t length = sizeof error;
    static_cast<void>(::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length));
  }
  const Duration left = host_->time_left();
  // Nothing tells when the device has room.
  return host_->waiting_bytes() > 0 ? std::min(left, options_.link.wake_cost) : left;
}

void DpdkIo::wait(Duration timeout) {
  const TimePoint end = clock_.now() + timeout;
  std::vector<pollfd> watched;
  for (const int fd : ready_) watched.push_back({fd, POLLIN, 0});
  for (;;) {
    const Duration most = before_sleep();
    if (most == Duration::zero()) return;
    const TimePoint now = clock_.now();
    if (now >= end) return;
    const Duration rest = std::min<Duration>(end - now, ready_.empty() ? options_.link.blind_sleep() : most);
    const timespec limit{rest / std::chrono::seconds(1), (rest % std::chrono::seconds(1)).count()};
    ::ppoll(watched.data(), watched.size(), &limit, nullptr);
  }
}

}  // namespace clustar::transport::io::dpdk
