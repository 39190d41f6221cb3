#include "libfabric_shim/dgram/ofi_io.h"

#include <fmt/format.h>
#include <poll.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <ctime>
#include <utility>

#include "libfabric_shim/dgram/socket_room.h"
#include "libfabric_shim/failure.h"
#include "transport/net/socket.h"

namespace clustar::transport::ofi {
namespace {

constexpr std::uint8_t kMostClass = 7;

std::size_t prefix_of(const fi_info& info, std::uint64_t mode) {
  return (mode & FI_MSG_PREFIX) != 0 ? info.ep_attr->msg_prefix_size : 0;
}

// What the network, not this device, answers: that datagram is lost, and the endpoint goes on.
bool of_the_network(ssize_t code) {
  switch (-code) {
    case FI_ECONNREFUSED:
    case FI_EHOSTUNREACH:
    case FI_ENETUNREACH:
    case FI_EHOSTDOWN:
    case FI_ENETDOWN:
    case FI_ETIMEDOUT:
    case FI_EMSGSIZE:
    case FI_EACCES:  // an administrator's route or firewall
    case FI_EPERM: return true;
    default: return false;
  }
}

bool is_full(ssize_t code) { return code == -FI_EAGAIN || code == -FI_ENOBUFS || code == -FI_ENOMEM; }

Result<void> check_options(const OfiIoOptions& options) {
  const auto outside = [](const char* name, std::size_t value, std::size_t low, std::size_t high) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("ofi: {} is {}; allowed is {} to {}", name, value, low, high));
  };
  if (options.paths < 1 || options.paths > kMostPaths) return outside("paths", options.paths, 1, kMostPaths);
  if (options.receives < 16 || options.receives > 4096) return outside("receives", options.receives, 16, 4096);
  if (options.held < 16 || options.held > 4096) return outside("held", options.held, 16, 4096);
  if (options.sends < 16 || options.sends > 4096) return outside("sends", options.sends, 16, 4096);
  return {};
}

}  // namespace

OfiIo::OfiIo(Domain domain, const OfiIoOptions& options)
    : options_(options),
      domain_(std::move(domain)),
      send_prefix_(prefix_of(domain_.info(), domain_.info().tx_attr->mode)),
      receive_prefix_(prefix_of(domain_.info(), domain_.info().rx_attr->mode)),
      most_(std::min({domain_.info().ep_attr->max_msg_size, std::size_t{65507},
                      options.most_bytes == 0 ? ~std::size_t{0} : options.most_bytes})),
      inject_(options.inject ? domain_.info().tx_attr->inject_size : 0) {
  capabilities_.paths = options.paths;
}

Result<std::unique_ptr<OfiIo>> OfiIo::open(Info info, const OfiIoOptions& options) {
  if (const auto valid = check_options(options); !valid) return tl::unexpected(valid.error());
  auto domain = Domain::open(std::move(info));
  if (!domain) return tl::unexpected(domain.error());
  std::unique_ptr<OfiIo> io(new OfiIo(std::move(*domain), options));
  if (io->most_ < kDatagramFrame + kLeastPacket) {
    return fail(ErrorCode::kUnavailable, fmt::format("ofi: {} has datagrams of {} bytes at most, which leaves no room",
                                                     io->domain_.name(), io->most_));
  }
  io->capabilities_.max_packet = io->most_ - kDatagramFrame;
  io->capabilities_.header_bytes = std::min(io::Header::kMax, io->capabilities_.max_packet);
  if (const auto opened = io->open_paths(); !opened) return tl::unexpected(opened.error());
  if (const auto announced = io->announce(); !announced) return tl::unexpected(announced.error());
  return io;
}

Result<void> OfiIo::open_paths() {
  auto addresses = AddressVector::open(domain_);
  if (!addresses) return tl::unexpected(addresses.error());
  addresses_.emplace(std::move(*addresses));
  auto sent = CompletionQueue::open(domain_);
  if (!sent) return tl::unexpected(sent.error());
  sent_.emplace(std::move(*sent));
  auto slots = Slots::make(domain_, options_.sends, send_prefix_ + most_);
  if (!slots) return tl::unexpected(slots.error());
  send_slots_.emplace(std::move(*slots));
  scratch_.resize(send_prefix_ + most_);
  paths_.reserve(options_.paths);
  for (std::size_t k = 0; k < options_.paths; ++k) {
    auto received = CompletionQueue::open(domain_, CompletionQueue::Wait::kDescriptor);
    if (!received) return tl::unexpected(received.error());
    // A byte more than a datagram of ours has: providers cut what is longer, and some say nothing.
    auto mine = Slots::make(domain_, std::size_t{options_.receives} + options_.held, receive_prefix_ + most_ + 1);
    if (!mine) return tl::unexpected(mine.error());
    auto endpoint = Endpoint::open(domain_, *sent_, *received, *addresses_);
    if (!endpoint) return tl::unexpected(endpoint.error());
    fds_.push_back(received->descriptor());
    const std::size_t room = widen_sockets(received->descriptor(), options_.socket_bytes);
    socket_room_ = k == 0 ? room : std::min(socket_room_, room);
    paths_.push_back({std::move(*received), std::move(*mine), std::move(*endpoint)});
    if (const auto posted = post(paths_.back()); !posted) return posted;
  }
  return {};
}

Result<void> OfiIo::post(Path& path) {
  const std::size_t most = std::min<std::size_t>(options_.receives, domain_.info().rx_attr->size);
  while (path.posted < most && !path.slots.empty()) {
    const std::uint32_t slot = path.slots.take();
    const auto bytes = path.slots.bytes(slot);
    const ssize_t code =
        path.endpoint.receive(bytes.data(), bytes.size(), path.slots.descriptor(), path.slots.context(slot));
    if (code == 0) {
      ++path.posted;
      continue;
    }
    path.slots.give_back(slot);
    // The provider has enough of them for now.
    if (is_full(code)) return {};
    return tl::unexpected(failure(domain_.name(), "fi_recv", code));
  }
  return {};
}

Result<std::unique_ptr<io::Mr>> OfiIo::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind != gdr::MemoryKind::kHost) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("libfabric's datagrams reach host memory only here; memory of kind '{}' cannot be registered",
                    gdr::to_string(memory.kind)));
  }
  if (memory.address == nullptr && memory.length > 0) {
    return fail(ErrorCode::kInvalidArgument, "memory to be registered has a length but no address");
  }
  return std::make_unique<io::Mr>(memory);
}

const Peers::Address* OfiIo::destination(const io::TxPacket& packet) const {
  const io::MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  const auto* peer = peers_.find(packet.peer);
  if (peer == nullptr) return nullptr;
  const std::size_t most = peer->most_bytes;
  const bool readable = slice.mr == nullptr ? slice.length == 0
                                            : slice.length <= slice.mr->memory().length &&
                                                  slice.offset <= slice.mr->memory().length - slice.length;
  const bool valid = readable && header > 0 && slice.length <= most && header + slice.length <= most &&
                     packet.path < paths_.size() && packet.traffic_class <= kMostClass;
  return valid ? &peer->paths[packet.path] : nullptr;
}

std::string OfiIo::refusal(const io::TxPacket& packet) const {
  const io::MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  const auto* peer = peers_.find(packet.peer);
  if (peer == nullptr) return fmt::format("ofi: there is no peer {}", packet.peer);
  const std::size_t most = peer->most_bytes;
  if (header == 0) return "ofi: a packet needs a header of at least 1 byte";
  if (slice.length > most || header + slice.length > most) {
    return fmt::format("ofi: a packet of {} + {} bytes was offered; the limit is {}{}", header, slice.length, most,
                       most < capabilities_.max_packet ? ", the peer's" : "");
  }
  if (packet.path >= paths_.size()) {
    return fmt::format("ofi: there is no path {}; paths are below {}", packet.path, paths_.size());
  }
  if (packet.traffic_class > kMostClass) {
    return fmt::format("ofi: there is no traffic class {}; classes are 0 to 7", packet.traffic_class);
  }
  return fmt::format("ofi: a payload of {} bytes at offset {} is outside of its registered memory", slice.length,
                     slice.offset);
}

Result<std::size_t> OfiIo::send(std::span<const io::TxPacket> packets) {
  pressure_.offered(true);
  if (late_) return tl::unexpected(*std::exchange(late_, std::nullopt));
  std::size_t taken = 0;
  for (; taken < packets.size(); ++taken) {
    // What went before a failure is on its way; the next call tells of it.
    const io::TxPacket& packet = packets[taken];
    const Peers::Address* const to = destination(packet);
    if (to == nullptr) {
      if (taken > 0) break;
      return fail(ErrorCode::kInvalidArgument, refusal(packet));
    }
    const auto outcome = send_one(packet, *to);
    if (!outcome) {
      if (taken > 0) {
        late_ = outcome.error();
        break;
      }
      return tl::unexpected(outcome.error());
    }
    if (*outcome == Outcome::kFull) {
      ++counters_.back_pressure;
      pressure_.offered(false);
      break;
    }
  }
  return taken;
}

Result<OfiIo::Outcome> OfiIo::send_one(const io::TxPacket& packet, Peers::Address to) {
  ssize_t code = hand_over(packet, to);
  if (is_full(code)) {
    // Completions that nobody has read may be what is in the way.
    if (const auto reaped = reap(); !reaped) return tl::unexpected(reaped.error());
    code = hand_over(packet, to);
    if (is_full(code)) return Outcome::kFull;
  }
  if (code == 0) {
    ++counters_.packets_sent;
    counters_.bytes_sent += packet.header.bytes().size() + packet.payload.length;
    return Outcome::kTaken;
  }
  if (!of_the_network(code)) return tl::unexpected(failure(domain_.name(), "a send", code));
  ++counters_.unreachable;
  return Outcome::kTaken;
}

ssize_t OfiIo::hand_over(const io::TxPacket& packet, Peers::Address to) {
  Endpoint& endpoint = paths_[packet.path].endpoint;
  const std::size_t length = kDatagramFrame + packet.header.bytes().size() + packet.payload.length;
  if (length <= inject_) {
    const ssize_t code = endpoint.inject(to, scratch_.data(), write(packet, scratch_));
    counters_.injected += code == 0 ? 1 : 0;
    return code;
  }
  if (send_slots_->empty()) return -FI_EAGAIN;
  const std::uint32_t slot = send_slots_->take();
  const auto into = send_slots_->bytes(slot);
  const ssize_t code =
      endpoint.send(to, into.data(), write(packet, into), send_slots_->descriptor(), send_slots_->context(slot));
  if (code != 0) send_slots_->give_back(slot);
  return code;
}

std::size_t OfiIo::write(const io::TxPacket& packet, std::span<std::byte> into) const {
  const auto header = packet.header.bytes();
  std::byte* at = into.data() + send_prefix_;
  write_frame(into.subspan(send_prefix_), key_, header.size(), packet.traffic_class);
  at = std::copy(header.begin(), header.end(), at + kDatagramFrame);
  if (packet.payload.length > 0) {
    std::memcpy(at, static_cast<const std::byte*>(packet.payload.mr->memory().address) + packet.payload.offset,
                packet.payload.length);
  }
  return static_cast<std::size_t>(at - into.data()) + packet.payload.length;
}

Result<void> OfiIo::reap() {
  for (;;) {
    const auto batch = sent_->read();
    if (!batch) return tl::unexpected(batch.error());
    for (const fi_cq_msg_entry& done : batch->done) send_slots_->give_back(send_slots_->of_context(done.op_context));
    if (batch->failed) {
      const auto failed = sent_->read_failure();
      if (!failed) continue;
      return tl::unexpected(failed->error);
    }
    if (batch->done.empty()) break;
  }
  if (!left_.empty()) forget_addresses();
  return {};
}

Result<std::size_t> OfiIo::receive(std::span<io::RxPacket> packets) {
  if (late_) return tl::unexpected(*std::exchange(late_, std::nullopt));
  std::size_t filled = deliver(packets);
  const auto count = static_cast<std::uint8_t>(paths_.size());
  busy_ |= std::uint32_t{1} << quiet_;
  quiet_ = static_cast<std::uint8_t>((quiet_ + 1) % count);
  for (std::uint8_t round = 0; round < count && filled < packets.size(); ++round) {
    const std::uint8_t path = next_path_;
    next_path_ = static_cast<std::uint8_t>((path + 1) % count);
    if ((busy_ >> path & 1) == 0) continue;
    const auto read = read_path(path, packets.size() - filled);
    filled += deliver(packets.subspan(filled));
    if (read) continue;
    if (filled > 0) {
      late_ = read.error();
      break;
    }
    return tl::unexpected(read.error());
  }
  return filled;
}

Result<void> OfiIo::read_path(std::uint8_t number, std::size_t most) {
  Path& path = paths_[number];
  if (path.posted == 0) ++counters_.slots_empty;
  busy_ &= ~(std::uint32_t{1} << number);
  TimePoint now{};
  for (std::size_t count = 0; count < most;) {
    const auto batch = path.received.read();
    if (!batch) return tl::unexpected(batch.error());
    if (batch->done.empty() && !batch->failed) break;
    if (now == TimePoint{}) now = clock_.now();
    busy_ |= std::uint32_t{1} << number;
    armed_ &= ~(std::uint32_t{1} << number);
    for (const fi_cq_msg_entry& done : batch->done) take(number, done, now);
    count += batch->done.size();
    if (batch->failed) {
      const auto failed = path.received.read_failure();
      if (failed) {
        if (const auto borne = on_receive_failed(number, *failed); !borne) return borne;
      }
      ++count;
    }
  }
  return post(path);
}

void OfiIo::take(std::uint8_t number, const fi_cq_msg_entry& done, TimePoint now) {
  Path& path = paths_[number];
  const std::uint32_t slot = path.slots.of_context(done.op_context);
  --path.posted;
  const auto whole = std::span<const std::byte>(path.slots.bytes(slot));
  std::uint64_t* cause = &counters_.malformed;
  if (done.len > receive_prefix_ + most_) {
    cause = &counters_.truncated;
  } else if (done.len > receive_prefix_) {
    const auto frame = parse_frame(whole.subspan(receive_prefix_, done.len - receive_prefix_));
    const auto peer = frame ? peers_.sender(frame->key) : std::nullopt;
    if (peer) {
      waiting_.push_back({*peer, number, slot, now, *frame});
      return;
    }
    if (frame) cause = &counters_.strangers;
  }
  ++*cause;
  path.slots.give_back(slot);
}

Result<void> OfiIo::on_receive_failed(std::uint8_t number, const CompletionQueue::Failure& failed) {
  if (failed.code != FI_ETRUNC || failed.context == nullptr) return tl::unexpected(failed.error);
  Path& path = paths_[number];
  --path.posted;
  path.slots.give_back(path.slots.of_context(failed.context));
  ++counters_.truncated;
  return {};
}

std::size_t OfiIo::deliver(std::span<io::RxPacket> packets) {
  std::size_t filled = 0;
  while (filled < packets.size() && !waiting_.empty()) {
    const Waiting one = waiting_.pop_front();
    if (peers_.find(one.peer) == nullptr) {  // removed since
      ++counters_.strangers;
      paths_[one.path].slots.give_back(one.slot);
      continue;
    }
    ++counters_.packets_received;
    counters_.bytes_received += one.frame.header.size() + one.frame.payload.size();
    packets[filled++] = {.peer = one.peer,
                         .path = one.path,
                         .traffic_class = one.frame.traffic_class,
                         .rx_time = one.time,
                         .header = one.frame.header,
                         .payload = one.frame.payload,
                         .cookie = one.slot};
  }
  return filled;
}

void OfiIo::release(std::span<const io::RxPacket> packets) {
  for (const io::RxPacket& packet : packets) {
    [[maybe_unused]] const bool held =
        packet.path < paths_.size() && paths_[packet.path].slots.give_back(static_cast<std::uint32_t>(packet.cookie));
    assert(held);
  }
}

bool OfiIo::look(Duration timeout) {
  std::array<pollfd, kMostPaths> watched{};
  for (std::size_t k = 0; k < fds_.size(); ++k) watched[k] = {fds_[k], POLLIN, 0};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{static_cast<std::time_t>(seconds.count()), static_cast<long>((timeout - seconds).count())};
  if (::ppoll(watched.data(), fds_.size(), &limit, nullptr) <= 0) return false;
  std::uint32_t told = 0;
  for (std::size_t k = 0; k < fds_.size(); ++k) told |= watched[k].revents != 0 ? std::uint32_t{1} << k : 0;
  busy_ |= told;
  armed_ &= ~told;
  return true;
}

Duration OfiIo::before_sleep() {
  if (!waiting_.empty()) return Duration::zero();
  for (std::size_t k = 0; k < paths_.size(); ++k) {
    const std::uint32_t path = std::uint32_t{1} << k;
    if ((armed_ & path) != 0) continue;
    if (!paths_[k].received.may_sleep()) {
      busy_ |= path;
      return Duration::zero();
    }
    armed_ |= path;
  }
  if (look(Duration::zero())) return Duration::zero();
  return pressure_.sleep();
}

void OfiIo::wait(Duration timeout) {
  if (timeout <= Duration::zero()) return;
  timeout = std::min(timeout, before_sleep());
  if (timeout > Duration::zero()) look(timeout);
}

}  // namespace clustar::transport::ofi
