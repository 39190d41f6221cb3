#include "transport/io/udp/udp_io.h"

#include <poll.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <ctime>
#include <utility>

namespace clustar::transport::io::udp {
namespace {

constexpr std::size_t kLeastPacket = 64;
constexpr std::size_t kGroBuffer = 65536;
constexpr std::uint8_t kMostClass = 7;
// How long wait() sleeps when the kernel was out of memory: nothing tells when there is some again.
constexpr Duration kMemoryPause = std::chrono::microseconds(100);

// Of a message that the kernel stamped, and that was read at `read`. A clock that was set in between says nothing.
Duration waited(const timespec& stamp, const timespec& read) {
  if (stamp.tv_sec == 0) return {};
  const Duration time = std::chrono::seconds(read.tv_sec - stamp.tv_sec) + Duration(read.tv_nsec - stamp.tv_nsec);
  return time > Duration::zero() && time < std::chrono::seconds(10) ? time : Duration::zero();
}

Result<void> check_options(const UdpOptions& options) {
  const auto outside = [](const char* name, std::size_t value, std::size_t low, std::size_t high) {
    return fail(ErrorCode::kInvalidArgument, std::string("udp: ") + name + " is " + std::to_string(value) +
                                                 "; allowed is " + std::to_string(low) + " to " + std::to_string(high));
  };
  if (options.paths < 1 || options.paths > UdpIo::kMostPaths) return outside("paths", options.paths, 1, 32);
  if (options.send_batch < 1 || options.send_batch > 256) return outside("send_batch", options.send_batch, 1, 256);
  if (options.receive_batch < 1 || options.receive_batch > 256) {
    return outside("receive_batch", options.receive_batch, 1, 256);
  }
  if (options.receive_buffers < 1 || options.receive_buffers > 65536) {
    return outside("receive_buffers", options.receive_buffers, 1, 65536);
  }
  if (options.first_port > 65536 - options.paths) {
    return outside("first_port", options.first_port, 0, 65536u - options.paths);
  }
  if (options.max_packet > 0 && options.max_packet < kLeastPacket) {
    return outside("max_packet", options.max_packet, kLeastPacket, 65506);
  }
  return {};
}

// What the network, not this device, answers: reported once, and the socket goes on.
bool of_the_network(int error) {
  switch (error) {
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case ENONET:
    case EPROTO:
    case ENOPROTOOPT:  // ICMP "protocol unreachable"
    case ETIMEDOUT:
    case EACCES:  // an administrator's route or firewall
    case EPERM: return true;
    default: return false;
  }
}

}  // namespace

UdpIo::UdpIo(const UdpOptions& options, const IpAddress& local)
    : apart_(options.apart), tx_(options.send_batch, most_udp_payload(local.ipv6)), rx_(options.receive_batch) {
  local_.ip = local;
  capabilities_.paths = options.paths;
  capabilities_.marks = true;
}

Result<std::unique_ptr<UdpIo>> UdpIo::open(const UdpOptions& options) {
  if (auto valid = check_options(options); !valid) return tl::unexpected(valid.error());
  const auto local = resolve_local(options.local);
  if (!local) return tl::unexpected(local.error());
  std::unique_ptr<UdpIo> io(new UdpIo(options, *local));
  if (auto opened = io->open_sockets(options); !opened) return tl::unexpected(opened.error());
  const Link link = link_of(*local);
  io->set_limits(options, link);
  if (io->capabilities_.max_packet < kLeastPacket) {
    return fail(ErrorCode::kUnavailable, "udp: an MTU of " + std::to_string(link.mtu) + " bytes leaves no room");
  }
  const std::size_t buffer = io->gro_ ? kGroBuffer : std::min((link.mtu + 63) / 64 * 64, kGroBuffer);
  io->pool_.emplace(options.receive_buffers, buffer);
  return io;
}

Result<void> UdpIo::open_sockets(const UdpOptions& options) {
  const SocketSettings settings{options.send_buffer_bytes, options.receive_buffer_bytes, options.allow_gro};
  gso_ = options.allow_gso;
  gro_ = options.allow_gro;
  for (std::uint32_t k = 0; k < options.paths; ++k) {
    const auto port = static_cast<std::uint16_t>(options.first_port == 0 ? 0 : options.first_port + k);
    auto socket = open_path(local_.ip, port, settings);
    if (!socket) return tl::unexpected(socket.error());
    gso_ = gso_ && socket->gso;
    gro_ = gro_ && socket->gro;
    local_.ports.push_back(socket->port);
    fds_.push_back(socket->file.fd());
    paths_.push_back({std::move(*socket)});
  }
  receive_buffer_bytes_ = receive_buffer_of(paths_[0].socket.file);
  return {};
}

void UdpIo::set_limits(const UdpOptions& options, const Link& link) {
  link_ = LinkProfile::usual(LinkKind::kKernel, options.line_rate_bps.value_or(link.rate_bps));
  capabilities_.max_packet = most_udp_payload(local_.ip.ipv6) - kFrameBytes;
  if (options.max_packet > 0) capabilities_.max_packet = std::min(capabilities_.max_packet, options.max_packet);
  lower_mtu(link.mtu);
  counters_.mtu_changes = 0;
  once_ = capabilities_.max_packet;
}

bool UdpIo::lower_mtu(std::size_t mtu) {
  const std::size_t around = datagram_overhead(local_.ip.ipv6) + kFrameBytes;
  const std::size_t most = mtu > around ? mtu - around : 0;
  if (most >= capabilities_.max_packet) return false;
  capabilities_.max_packet = most;
  capabilities_.header_bytes = std::min(Header::kMax, most);
  ++counters_.mtu_changes;
  return true;
}

Result<std::unique_ptr<Mr>> UdpIo::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind != gdr::MemoryKind::kHost) {
    return fail(ErrorCode::kUnavailable, std::string("kernel UDP reaches host memory only; memory of kind '") +
                                             gdr::to_string(memory.kind) + "' cannot be registered");
  }
  if (memory.address == nullptr && memory.length > 0) {
    return fail(ErrorCode::kInvalidArgument, "memory to be registered has a length but no address");
  }
  return std::make_unique<Mr>(memory);
}

const SocketAddress* UdpIo::destination(const TxPacket& packet) const {
  const MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  const bool readable = slice.mr == nullptr ? slice.length == 0
                                            : slice.length <= slice.mr->memory().length &&
                                                  slice.offset <= slice.mr->memory().length - slice.length;
  const bool valid = readable && header > 0 && slice.length <= most() && header + slice.length <= most() &&
                     packet.path < paths_.size() && packet.traffic_class <= kMostClass;
  const auto* peer = valid ? peers_.find(packet.peer) : nullptr;
  return peer != nullptr ? &peer->address(packet.path) : nullptr;
}

std::string UdpIo::refusal(const TxPacket& packet) const {
  const MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  if (header == 0) return "udp: a packet needs a header of at least 1 byte";
  if (slice.length > most() || header + slice.length > most()) {
    return "udp: a packet of " + std::to_string(header) + " + " + std::to_string(slice.length) +
           " bytes was offered; the limit is now " + std::to_string(most());
  }
  if (packet.path >= paths_.size()) {
    return "udp: there is no path " + std::to_string(packet.path) + "; paths are below " +
           std::to_string(paths_.size());
  }
  if (packet.traffic_class > kMostClass) {
    return "udp: there is no traffic class " + std::to_string(packet.traffic_class) + "; classes are 0 to 7";
  }
  if (peers_.find(packet.peer) == nullptr) return "udp: there is no peer " + std::to_string(packet.peer);
  return "udp: a payload of " + std::to_string(slice.length) + " bytes at offset " + std::to_string(slice.offset) +
         " is outside of its registered memory";
}

void UdpIo::fill_batch(std::span<const TxPacket> packets) {
  tx_.clear();
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const TxPacket& packet = packets[i];
    if (packet.path != packets[0].path) return;  // another socket, so another call
    const SocketAddress* to = destination(packet);
    // The kernel joins only what fits, and what follows would be joined to the packet before.
    const bool cut = !fits(packet) || (i > 0 && !fits(packets[i - 1]));
    const bool alone = cut || (singly_ > 0 && i <= singly_);
    const TxBatch::Allowed allowed{alone ? 0 : kFrameBytes + capabilities_.max_packet, gso_ && !alone};
    if (to == nullptr || !tx_.add(packet, *to, allowed)) return;
  }
}

Result<std::size_t> UdpIo::send(std::span<const TxPacket> packets) {
  full_ = 0;
  no_memory_ = false;
  std::size_t taken = 0;
  while (taken < packets.size()) {
    const std::span<const TxPacket> rest = packets.subspan(taken);
    // What went before a failure is on its way; the next call tells of it.
    fill_batch(rest);
    if (tx_.empty()) {
      if (taken > 0) break;
      return fail(ErrorCode::kInvalidArgument, refusal(rest[0]));
    }
    const int sent = tx_.send(paths_[rest[0].path].socket.file.fd());
    const int error = sent < 0 ? errno : EAGAIN;
    ++counters_.send_calls;
    if (sent > 0) {
      const std::size_t packets_sent = after_sent(static_cast<std::size_t>(sent));
      if (fragments_) {
        counters_.fragmented += static_cast<std::uint64_t>(
            std::ranges::count_if(rest.first(packets_sent), [this](const TxPacket& packet) { return !fits(packet); }));
      }
      taken += packets_sent;
      continue;
    }
    const auto done = on_failure(error, rest[0]);
    if (!done) {
      if (taken > 0) break;
      return tl::unexpected(done.error());
    }
    if (!*done) break;
    taken += **done;
  }
  return taken;
}

std::size_t UdpIo::after_sent(std::size_t messages) {
  const std::size_t packets = tx_.packets_in(messages);
  counters_.messages_sent += messages;
  counters_.packets_sent += packets;
  counters_.bytes_sent += tx_.bytes_in(messages);
  pass_singly(packets);
  return packets;
}

void UdpIo::pass_singly(std::size_t packets) {
  retried_ = false;
  if (singly_ == 0) return;
  singly_ -= std::min(singly_, packets);
  if (singly_ > 0) return;
  if (gso_suspect_) gso_ = false;
  gso_suspect_ = false;
}

UdpIo::Failure UdpIo::classify(int error) const {
  const bool joined = tx_.packets_in(1) > 1;
  switch (error) {
    case EINTR: return Failure::kAgain;
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM: return Failure::kFull;
    case EMSGSIZE: return joined ? Failure::kJoined : Failure::kTooLong;
    case EFAULT: return joined ? Failure::kJoined : Failure::kMemory;
    case EIO:
    case EINVAL:
    case EOPNOTSUPP: return joined ? Failure::kJoined : Failure::kDevice;
    default: return of_the_network(error) ? Failure::kNoRoute : Failure::kDevice;
  }
}

Result<std::optional<std::size_t>> UdpIo::on_failure(int error, const TxPacket& first) {
  const std::size_t packets = tx_.packets_in(1);
  switch (classify(error)) {
    case Failure::kAgain: return 0;
    case Failure::kFull:
      ++counters_.back_pressure;
      if (error == EAGAIN) {
        full_ |= std::uint32_t{1} << first.path;
      } else {
        no_memory_ = true;
      }
      return std::nullopt;
    case Failure::kJoined:
      ++counters_.gso_fallbacks;
      singly_ = packets;
      // With fragments allowed an MTU that becomes smaller again shows here only, for single packets pass.
      gso_suspect_ = error != EFAULT && tx_.datagrams_in(1) > 1 &&
                     !(fragments_ && lower_to_route(peers_.find(first.peer)->address(first.path)));
      return 0;
    case Failure::kTooLong: return on_too_long(first);
    case Failure::kNoRoute:
      // An error of an earlier packet is reported in place of sending this one, once.
      ++counters_.refused;
      if (!std::exchange(retried_, true)) return 0;
      counters_.unreachable += packets;
      pass_singly(packets);
      return packets;
    case Failure::kMemory:
      gso_suspect_ = false;
      return fail(ErrorCode::kInvalidArgument, "udp: a packet's registered memory cannot be read");
    case Failure::kDevice: break;
  }
  return fail(ErrorCode::kSystem, "udp: sendmmsg from " + local_.ip.to_string() + ": " + describe_errno(error));
}

Result<std::optional<std::size_t>> UdpIo::on_too_long(const TxPacket& first) {
  const bool ipv6 = local_.ip.ipv6;
  const std::size_t length = kFrameBytes + first.header.bytes().size() + first.payload.length;
  const std::size_t mtu = route_mtu(local_.ip, peers_.find(first.peer)->address(first.path));
  const bool explains = mtu >= least_mtu(ipv6) && mtu < length + datagram_overhead(ipv6);
  // A route that takes the packet has changed meanwhile; one that says so twice lies.
  if (!explains && !std::exchange(retried_, true)) return 0;
  singly_ = 0;
  gso_suspect_ = retried_ = false;
  lower_mtu(explains ? mtu : least_mtu(ipv6));
  return fail(ErrorCode::kInvalidArgument, "udp: the route does not take a datagram of " + std::to_string(length) +
                                               " bytes any more; the limit of a packet is now " +
                                               std::to_string(capabilities_.max_packet));
}

// Not by epoll: with that each packet that arrives takes a lock for the list of those that are ready, which costs the
// sender of this host's packets, or its softirq, 8 to 14 % more than this does here.
std::uint32_t UdpIo::ready_paths() {
  pollfd watched[kMostPaths];
  for (std::size_t k = 0; k < paths_.size(); ++k) watched[k] = {paths_[k].socket.file.fd(), POLLIN, 0};
  const int count = ::poll(watched, paths_.size(), 0);
  ++counters_.poll_calls;
  std::uint32_t ready = 0;
  for (std::size_t k = 0; count > 0 && k < paths_.size(); ++k) {
    if (watched[k].revents != 0) ready |= std::uint32_t{1} << k;
  }
  return ready;
}

Result<std::size_t> UdpIo::receive(std::span<RxPacket> packets) {
  std::size_t filled = deliver(packets);
  if (filled == packets.size()) return filled;
  if (pool_->free() == 0) {
    ++counters_.pool_empty;
    return filled;
  }
  std::uint32_t ready = ready_paths();
  while (ready != 0 && filled < packets.size()) {
    const std::uint32_t from_next = ready >> next_path_;
    const auto path =
        static_cast<std::uint8_t>(from_next != 0 ? next_path_ + std::countr_zero(from_next) : std::countr_zero(ready));
    next_path_ = static_cast<std::uint8_t>((path + 1) % paths_.size());
    ready &= ~(std::uint32_t{1} << path);
    const auto read = read_path(path, packets.size() - filled);
    filled += deliver(packets.subspan(filled));
    if (read) continue;
    if (filled > 0) break;  // the next call tells
    return tl::unexpected(read.error());
  }
  return filled;
}

Result<void> UdpIo::read_path(std::uint8_t path, std::size_t most) {
  if (pool_->free() == 0) return {};
  const int received = rx_.receive(paths_[path].socket.file.fd(), *pool_, most);
  const int error = errno;
  ++counters_.receive_calls;
  if (received < 0) return on_receive_error(error);
  const TimePoint now = clock_.now();
  timespec real{};
  if (received > 0 && rx_.arrival(0).stamp.tv_sec != 0) ::clock_gettime(CLOCK_REALTIME, &real);
  for (std::size_t i = 0; i < static_cast<std::size_t>(received); ++i) {
    const Arrival arrival = rx_.arrival(i);
    accept(path, arrival, rx_.from(i), now, waited(arrival.stamp, real));
  }
  return {};
}

Result<void> UdpIo::on_receive_error(int error) {
  if (error == EAGAIN || error == EINTR || error == ENOBUFS || error == ENOMEM) return {};
  if (!of_the_network(error) && error != EMSGSIZE) {
    return fail(ErrorCode::kSystem, "udp: recvmmsg on " + local_.ip.to_string() + ": " + describe_errno(error));
  }
  ++counters_.refused;
  return {};
}

void UdpIo::accept(std::uint8_t path, const Arrival& arrival, const SocketAddress& from, TimePoint now,
                   Duration waited) {
  const std::size_t datagrams =
      arrival.segment > 0 ? (arrival.length + arrival.segment - 1) / arrival.segment : std::size_t{1};
  ++counters_.messages_received;
  if (arrival.tells_drops) {
    counters_.kernel_drops += arrival.drops - std::exchange(paths_[path].drops, arrival.drops);
  }
  const auto peer = peers_.sender(UdpPeer::origin_of(from, path));
  if (peer && !arrival.truncated && arrival.length > 0) {
    waiting_.push_back({arrival, 0, *peer, path, now, waited});
    return;
  }
  std::uint64_t& cause = !peer ? counters_.strangers : arrival.truncated ? counters_.truncated : counters_.malformed;
  cause += datagrams;
  pool_->drop(arrival.buffer);
}

std::size_t UdpIo::deliver(std::span<RxPacket> packets) {
  std::size_t filled = 0;
  while (filled < packets.size() && !waiting_.empty()) {
    Waiting& message = waiting_.front();
    const Arrival& arrival = message.arrival;
    const auto bytes = std::span<const std::byte>(pool_->bytes(arrival.buffer)).first(arrival.length);
    const bool known = peers_.find(message.peer) != nullptr;  // it may have been removed since
    while (filled < packets.size() && message.next < arrival.length) {
      const std::uint32_t end = std::min((message.next / arrival.segment + 1) * arrival.segment, arrival.length);
      const bool begins = message.next % arrival.segment == 0;
      if (!begins && bytes[message.next] == kPadding) {
        message.next = end;
        continue;
      }
      const auto frame = parse_frame(bytes.subspan(message.next, end - message.next));
      if (!known || !frame) {
        ++(known ? counters_.malformed : counters_.strangers);
        message.next = end;
        continue;
      }
      const std::size_t length = frame->length;
      message.next += static_cast<std::uint32_t>(length);
      pool_->hold(arrival.buffer);
      ++counters_.packets_received;
      counters_.bytes_received += length;
      packets[filled++] = {.peer = message.peer,
                           .path = message.path,
                           .traffic_class = class_of(arrival.tos),
                           .ecn = ecn_of(arrival.tos),
                           .rx_time = message.time,
                           .waited = message.waited,
                           .header = frame->header,
                           .payload = frame->payload,
                           .cookie = arrival.buffer};
    }
    if (message.next < arrival.length) break;
    pool_->drop(arrival.buffer);
    waiting_.pop_front();
  }
  return filled;
}

void UdpIo::release(std::span<const RxPacket> packets) {
  for (const RxPacket& packet : packets) {
    [[maybe_unused]] const bool held =
        packet.cookie < pool_->size() && pool_->drop(static_cast<BufferId>(packet.cookie));
    assert(held);
  }
}

// With the kernel's bookkeeping: more than travels.
std::uint64_t UdpIo::unsent_bytes() const {
  std::uint64_t sum = 0;
  for (const Path& path : paths_) sum += queued_bytes(path.socket.file);
  return sum;
}

void UdpIo::tell_waits() {
  for (const Path& path : paths_) stamp_arrivals(path.socket.file);
}

void UdpIo::wait(Duration timeout) {
  if (!waiting_.empty() || timeout <= Duration::zero()) return;
  if (no_memory_) timeout = std::min(timeout, kMemoryPause);
  pollfd watched[kMostPaths];
  nfds_t count = 0;
  for (std::size_t k = 0; k < paths_.size(); ++k) {
    const bool full = (full_ >> k & 1) != 0;
    const auto events = static_cast<short>((pool_->free() > 0 ? POLLIN : 0) | (full ? POLLOUT : 0));
    if (events != 0) watched[count++] = {paths_[k].socket.file.fd(), events, 0};
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{static_cast<std::time_t>(seconds.count()), static_cast<long>((timeout - seconds).count())};
  ::ppoll(watched, count, &limit, nullptr);
}

}  // namespace clustar::transport::io::udp
