#include "transport/io/verbs/ud_io.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/registered.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {
namespace {

constexpr std::uint8_t kMostClass = 7;
constexpr Duration kEventInterval = std::chrono::milliseconds(1);
// How long wait() sleeps when address handles are awaited, of which nothing tells.
constexpr Duration kHandlePause = std::chrono::milliseconds(1);

Result<void> check_options(const UdOptions& options) {
  const auto outside = [](const char* name, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs UD: {} is {}; allowed is {} to {}", name, value, low, high));
  };
  if (options.paths < 1 || options.paths > UdIo::kMostPaths) {
    return outside("paths", options.paths, 1, UdIo::kMostPaths);
  }
  if (options.send_requests < 16 || options.send_requests > 4096) {
    return outside("send_requests", options.send_requests, 16, 4096);
  }
  if (options.window < 16 || options.window > 32768) return outside("window", options.window, 16, 32768);
  if (options.receive_slots < 64 || options.receive_slots > 32768) {
    return outside("receive_slots", options.receive_slots, 64, 32768);
  }
  if (options.inline_bytes > 512) return outside("inline_bytes", options.inline_bytes, 0, 512);
  return {};
}

// Below 0x80000000: the upper half is for the privileged, and no request may name it.
Result<std::uint32_t> random_q_key() {
  std::uint32_t key = 0;
  if (::getrandom(&key, sizeof key, 0) != sizeof key) {
    return fail(ErrorCode::kSystem, "verbs UD: no random number: " + describe_errno(errno));
  }
  return key & 0x7fffffff;
}

std::size_t mtu_bytes(ibv_mtu mtu) { return std::size_t{128} << mtu; }

// A datagram that is longer than its slot stops the queue pair, and anybody who knows the Q_Key may send one. rdma_rxe
// takes what its network device takes, though its MTU is the next power of two below; 0: not known.
std::size_t interface_mtu(const std::string& interface) {
  const FileDescriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return ::ioctl(probe.fd(), SIOCGIFMTU, &request) == 0 ? static_cast<std::size_t>(std::max(request.ifr_mtu, 0)) : 0;
}

std::size_t slot_bytes(std::size_t mtu, const std::string& interface) {
  return std::max({mtu, std::min<std::size_t>(2 * mtu, mtu_bytes(IBV_MTU_4096)), interface_mtu(interface)});
}

Result<ibv_port_attr> active_port(const Device& device, std::uint8_t number) {
  auto port = device.port(number);
  if (!port) return port;
  if (port->state != IBV_PORT_ACTIVE) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("verbs UD: {} is not active; check cable, switch port and `ip link`, or choose another",
                            device.place(number).to_string()));
  }
  if (port->link_layer != IBV_LINK_LAYER_ETHERNET) {
    return fail(ErrorCode::kUnavailable, fmt::format("verbs UD: {} is InfiniBand; UD runs on RoCE v2 ports only",
                                                     device.place(number).to_string()));
  }
  return port;
}

}  // namespace

struct UdIo::Parts {
  Device device;
  ProtectionDomain domain;
  GidEntry gid;
  ibv_port_attr port;
};

UdIo::UdIo(const UdOptions& options, Parts parts)
    : options_(options),
      device_(std::move(parts.device)),
      domain_(std::move(parts.domain)),
      registrar_({&domain_}, options_.memory, options_.log),
      registrations_(registrar_, options_.memory.pages()),
      gid_(std::move(parts.gid)),
      peers_(domain_, options.port, static_cast<int>(gid_.index), options.paths, options.marks) {
  capabilities_.max_packet = mtu_bytes(parts.port.active_mtu);
  capabilities_.paths = options.paths;
  capabilities_.marks = true;
  capabilities_.copies = false;
  capabilities_.in_flight = options.window;
  // RDMA in software is the kernel's network stack, and what virtual interfaces say of their speed is made up.
  const bool hardware = !device_pci_path("/sys", device_.name()).empty();
  const int mbps = hardware ? speed_mbps(parts.port.active_speed, parts.port.active_width) : 0;
  link_ =
      LinkProfile::usual(hardware ? LinkKind::kNic : LinkKind::kKernel, static_cast<std::uint64_t>(mbps) * 1'000'000);
}

UdIo::~UdIo() = default;

Result<std::unique_ptr<UdIo>> UdIo::open(const UdOptions& given) {
  if (auto valid = check_options(given); !valid) return tl::unexpected(valid.error());
  auto device = Device::open(given.device);
  if (!device) return tl::unexpected(device.error());
  const auto port = active_port(*device, given.port);
  if (!port) return tl::unexpected(port.error());
  const auto table = device->gids(given.port);
  if (!table) return tl::unexpected(table.error());
  const GidChoice choice = choose_gid(*table, given.gid);
  if (!choice.chosen) return fail(ErrorCode::kUnavailable, "verbs UD: " + choice.summary());
  auto domain = ProtectionDomain::make(*device);
  if (!domain) return tl::unexpected(domain.error());
  const auto q_key = random_q_key();
  if (!q_key) return tl::unexpected(q_key.error());

  UdOptions options = given;
  const auto limit = [](std::uint32_t wanted, int most) { return std::min(wanted, static_cast<std::uint32_t>(most)); };
  options.send_requests = limit(given.send_requests, device->limits().max_qp_wr);
  options.window = limit(given.window, device->limits().max_cqe);
  options.receive_slots = limit(limit(given.receive_slots, device->limits().max_srq_wr), device->limits().max_cqe);
  std::unique_ptr<UdIo> io(new UdIo(options, {std::move(*device), std::move(*domain), *choice.chosen, *port}));
  auto rx = UdRx::make(io->device_, io->domain_, options.receive_slots,
                       slot_bytes(io->capabilities_.max_packet, io->gid_.interface));
  if (!rx) return tl::unexpected(rx.error());
  io->rx_ = std::move(*rx);
  auto tx = UdTx::make(io->device_, io->domain_, io->rx_->receives(), io->rx_->queue(),
                       {.port = options.port,
                        .paths = options.paths,
                        .q_key = *q_key,
                        .send_requests = options.send_requests,
                        .window = options.window,
                        .inline_bytes = options.inline_bytes,
                        .link_patience = options.link_patience});
  if (!tx) return tl::unexpected(tx.error());
  io->tx_ = std::move(*tx);
  io->local_ = {io->gid_.gid, *q_key, io->tx_->numbers()};
  io->fds_ = {io->rx_->queue().fd(), io->device_.event_fd()};
  const DeviceMemory& memory = options.memory;
  io->reach_ = {memory.kinds, memory.text, memory.any() && (memory.force_flush || options.force_flush)};
  if (!memory.any()) return io;
  // Host memory goes on without one.
  auto writer = DeviceWriter::make(
      io->device_, io->domain_,
      {.peer = io->gid_.gid, .port = options.port, .gid_index = static_cast<int>(io->gid_.index), .lid = port->lid},
      port->active_mtu);
  if (writer) {
    io->writer_ = std::move(*writer);
  } else {
    io->reach_ = {.why = "off: " + io->device_.name() +
                         " cannot be connected to itself, as GPU memory needs: " + writer.error().message};
  }
  return io;
}

Result<std::unique_ptr<Mr>> UdIo::reg_mr(const gdr::MemoryRef& memory) {
  const bool known = memory.kind == gdr::MemoryKind::kHost || memory.kind == gdr::MemoryKind::kCuda ||
                     memory.kind == gdr::MemoryKind::kDmaBuf;
  const bool there =
      memory.kind == gdr::MemoryKind::kDmaBuf ? memory.fd >= 0 : memory.address != nullptr || memory.length == 0;
  if (!known || !there) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("verbs UD: memory to be registered is of kind {} and has no {}", gdr::to_string(memory.kind),
                    memory.kind == gdr::MemoryKind::kDmaBuf ? "descriptor" : "address that is known"));
  }
  if (!options_.memory.has(memory.kind)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs UD: {} does not register {} memory ({})", device_.name(),
                            gdr::to_string(memory.kind), options_.memory.text));
  }
  const bool emulated = memory.kind != gdr::MemoryKind::kHost && options_.memory.facts.emulated;
  if (emulated && memory.kind == gdr::MemoryKind::kDmaBuf && ::fcntl(memory.fd, F_GETFD) < 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("verbs UD: emulated memory of kind dma-buf needs an open descriptor; {} is none", memory.fd));
  }
  int access = options_.access;
  if (memory.kind != gdr::MemoryKind::kHost) access |= DeviceWriter::kAccess;
  if (memory.kind == gdr::MemoryKind::kDmaBuf) access &= ~IBV_ACCESS_MW_BIND;  // which the kernel refuses
  auto lease = registrations_.acquire(memory, static_cast<std::uint32_t>(access));
  if (!lease) return tl::unexpected(lease.error());
  return std::make_unique<Registered>(memory, domain_, std::move(*lease), [this] {
    tx_->quiesce();
    if (writer_) writer_->quiesce();
  });
}

bool UdIo::invalid(const TxPacket& packet) const {
  const MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  const bool readable = slice.mr == nullptr ? slice.length == 0
                                            : slice.length <= slice.mr->memory().length &&
                                                  slice.offset <= slice.mr->memory().length - slice.length &&
                                                  registered_in(domain_.get(), slice.mr) != nullptr;
  return !readable || header == 0 || slice.length > capabilities_.max_packet ||
         header + slice.length > capabilities_.max_packet || packet.path >= options_.paths ||
         packet.traffic_class > kMostClass || !peers_.known(packet.peer);
}

Error UdIo::refusal(const TxPacket& packet) const {
  const MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  std::string text;
  if (header == 0) {
    text = "a packet needs a header of at least 1 byte";
  } else if (slice.length > capabilities_.max_packet || header + slice.length > capabilities_.max_packet) {
    text = fmt::format("a packet of {} + {} bytes was offered; the limit is {}, the MTU of {}", header, slice.length,
                       capabilities_.max_packet, device_.place(options_.port).to_string());
  } else if (packet.path >= options_.paths) {
    text = fmt::format("there is no path {}; paths are below {}", packet.path, options_.paths);
  } else if (packet.traffic_class > kMostClass) {
    text = fmt::format("there is no traffic class {}; classes are 0 to 7", packet.traffic_class);
  } else if (!peers_.known(packet.peer)) {
    text = fmt::format("there is no peer {}", packet.peer);
  } else {
    text = fmt::format(
        "a payload of {} bytes at offset {} is outside of its memory, or that is not registered with this device",
        slice.length, slice.offset);
  }
  return {ErrorCode::kInvalidArgument, "verbs UD: " + text};
}

Result<std::size_t> UdIo::send(std::span<const TxPacket> packets) {
  took_less_ = unresolved_ = false;
  if (lost_) return tl::unexpected(*lost_);
  const auto bad = std::find_if(packets.begin(), packets.end(), [this](const TxPacket& one) { return invalid(one); });
  const auto good = static_cast<std::size_t>(bad - packets.begin());
  if (good == 0 && !packets.empty()) return tl::unexpected(refusal(packets[0]));
  const auto taken = tx_->send(packets.first(good), peers_, clock_.now());
  if (!taken) {
    lost_ = taken.error();
    return tl::unexpected(*lost_);
  }
  counters_.packets_sent += taken->packets - taken->lost - taken->down;
  counters_.bytes_sent += taken->bytes;
  counters_.post_calls += taken->chains;
  counters_.unresolved += taken->lost;
  took_less_ = taken->packets < good;
  unresolved_ = taken->unresolved;
  if (took_less_) {
    ++counters_.back_pressure;
    completed_ = taken->completed;
  }
  if (peers_.retiring()) peers_.finished(tx_->finished());
  return taken->packets;
}

// One slot's datagram; false: it is nobody's.
bool UdIo::deliver(const ibv_wc& done, TimePoint now, RxPacket& packet) {
  const auto slot = rx_->slot(done.wr_id);
  const auto path = tx_->path_of(done.qp_num);
  const bool framed = (done.wc_flags & IBV_WC_GRH) != 0 && (done.wc_flags & IBV_WC_WITH_IMM) != 0 &&
                      done.byte_len >= kNetworkHeader && done.byte_len <= slot.size() && path.has_value();
  const auto network =
      framed ? parse_network_header(slot.first<kNetworkHeader>(), gid_.gid.ipv4()) : std::optional<NetworkHeader>();
  const std::size_t length = framed ? done.byte_len - kNetworkHeader : 0;
  const auto header = header_bytes_of(ntohl(done.imm_data), length);
  if (!network || !header || length > capabilities_.max_packet) {
    ++counters_.malformed;
    return false;
  }
  const UdPeers::Origin* origin = peers_.origin(network->source, done.src_qp);
  if (origin == nullptr || origin->path != *path) {
    ++counters_.strangers;
    return false;
  }
  const auto bytes = slot.subspan(kNetworkHeader, length);
  packet = {.peer = origin->peer,
            .path = *path,
            .traffic_class = class_of(network->tos),
            .ecn = ecn_of(network->tos),
            .rx_time = now,
            .header = bytes.first(*header),
            .payload = bytes.subspan(*header),
            .cookie = done.wr_id};
  counters_.bytes_received += length;
  return true;
}

// A queue pair that failed by its sends gives back the receives that it had taken.
void UdIo::on_failed_receive(const ibv_wc& done) {
  const auto path = tx_->path_of(done.qp_num);
  rx_->give_back(done.wr_id);
  if (done.status == IBV_WC_WR_FLUSH_ERR && path) {
    tx_->on_flushed_receive(*path);
  } else if (!lost_) {
    lost_ = tx_->pair(path.value_or(0)).explain(done);
  }
}

Result<std::size_t> UdIo::receive(std::span<RxPacket> packets) {
  const TimePoint now = clock_.now();
  if (!lost_ && now >= events_at_) look_for_events(now);
  if (lost_) return tl::unexpected(*lost_);
  std::size_t count = 0;
  while (count < packets.size()) {
    const bool all_out = rx_->empty();
    const auto taken = rx_->take(packets.size() - count);
    if (!taken) {
      lost_ = taken.error();
      break;
    }
    if (taken->empty() && all_out) ++counters_.slots_empty;
    for (const ibv_wc& done : *taken) {
      if (done.status != IBV_WC_SUCCESS) {
        on_failed_receive(done);
      } else if (deliver(done, now, packets[count])) {
        ++count;
      } else {
        rx_->give_back(done.wr_id);
      }
    }
    if (const auto swept = sweep_.on_taken(taken->size(), now)) tx_->resume(*swept, now);
    if (taken->empty()) break;
  }
  if (auto posted = rx_->post(); !posted) lost_ = posted.error();
  counters_.packets_received += count;
  // What came before the device's end is given out; the next call tells of it.
  if (count == 0 && lost_) return tl::unexpected(*lost_);
  return count;
}

void UdIo::release(std::span<const RxPacket> packets) {
  for (const RxPacket& packet : packets) rx_->give_back(packet.cookie);
  if (lost_) return;
  if (auto posted = rx_->post(); !posted) lost_ = posted.error();
}

// 0: the device itself.
bool UdIo::is_ours(std::uint32_t queue_pair) const {
  return queue_pair == 0 || tx_->path_of(queue_pair) || (writer_ && writer_->queue_pair() == queue_pair);
}

void UdIo::look_for_events(TimePoint now) {
  events_at_ = now + kEventInterval;
  // quiesce() stops queue pairs, which receive no more either, and completes nothing that a receiver would see.
  const auto trouble = tx_->maintain(now);
  if (!trouble) {
    lost_ = trouble.error();
    return;
  }
  counters_.link_lost = trouble->lost;
  counters_.restarts = trouble->restarts;
  counters_.renewed += peers_.maintain(tx_->taken(), now);
  for (;;) {
    const auto event = device_.poll_event();
    if (!event) {
      lost_ = event.error();
      return;
    }
    if (!*event) return;
    const bool ours = (*event)->port == 0 || (*event)->port == options_.port;
    if ((*event)->type == IBV_EVENT_PORT_ERR) {
      // Peers are silent until it is active again, which the layer above must be able to bear.
      if (ours) ++counters_.port_errors;
    } else if ((*event)->fatal && is_ours((*event)->queue_pair)) {
      lost_ = Error{ErrorCode::kSystem, (*event)->text};
    } else if (ours && ((*event)->type == IBV_EVENT_PORT_ACTIVE || (*event)->type == IBV_EVENT_GID_CHANGE)) {
      peers_.renew_all();
    }
  }
}

Result<Duration> UdIo::arm() {
  const Duration most = tx_->until_due();
  if (!lost_) lost_ = tx_->lost();
  if (lost_) return tl::unexpected(*lost_);
  const auto armed = rx_->arm();
  if (armed) return *armed ? most : Duration(0);
  lost_ = armed.error();
  return tl::unexpected(*lost_);
}

void UdIo::wait(Duration timeout) {
  const auto most = arm();
  if (!most || *most == Duration(0)) return;
  timeout = std::min(timeout, *most);
  std::array<pollfd, 3> waited{{{.fd = rx_->queue().fd(), .events = POLLIN, .revents = 0},
                                {.fd = device_.event_fd(), .events = POLLIN, .revents = 0},
                                {.fd = tx_->completions().fd(), .events = POLLIN, .revents = 0}}};
  nfds_t count = 2;
  if (took_less_ && unresolved_) {
    timeout = std::min(timeout, kHandlePause);
  } else if (took_less_) {
    const auto drained = tx_->completions().wait(Duration(0));
    const auto ready = drained ? tx_->completions().arm() : Result<void>(tl::unexpected(drained.error()));
    if (!ready) lost_ = ready.error();
    if (!ready || tx_->completed() > completed_) return;
    count = 3;
  }
  timeout = std::max(timeout, Duration::zero());
  const timespec limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  // An interruption is an early return, as by something to receive.
  ::ppoll(waited.data(), count, &limit, nullptr);
}

}  // namespace clustar::transport::io::verbs
