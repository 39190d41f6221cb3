#include "transport/io/verbs/ud_tx.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/io/verbs/registered.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {
namespace {

constexpr std::uint64_t kPathBits = 4;

}  // namespace

UdTx::UdTx(const Device& device, const UdTxOptions& options, std::vector<std::byte> headers, MemoryRegion region,
           CompletionQueue completions)
    : device_(device),
      options_(options),
      headers_(std::move(headers)),
      region_(std::move(region)),
      completions_(std::move(completions)) {}

Result<std::unique_ptr<UdTx>> UdTx::make(const Device& device, const ProtectionDomain& domain,
                                         const SharedReceiveQueue& receives, const CompletionQueue& received,
                                         const UdTxOptions& options) {
  std::vector<std::byte> headers(options.window * Header::kMax);
  auto region = MemoryRegion::make(domain, gdr::MemoryRef::host(headers.data(), headers.size()), 0);
  if (!region) return tl::unexpected(region.error());
  // No more completions than chains, no more chains than packets.
  auto completions = CompletionQueue::make(device, static_cast<int>(options.window), true);
  if (!completions) return tl::unexpected(completions.error());
  std::unique_ptr<UdTx> made(
      new UdTx(device, options, std::move(headers), std::move(*region), std::move(*completions)));
  for (std::uint8_t path = 0; path < options.paths; ++path) {
    auto pair = QueuePair::make(domain, {.type = IBV_QPT_UD,
                                         .send_queue = &made->completions_,
                                         .recv_queue = &received,
                                         .shared_receives = &receives,
                                         .send_requests = options.send_requests,
                                         .send_sges = 2,
                                         .inline_bytes = options.inline_bytes});
    if (!pair) return tl::unexpected(pair.error());
    if (auto done = made->start(*pair); !done) return tl::unexpected(done.error());
    made->paths_.push_back({.pair = std::move(*pair), .cycle = UdCycle(options.link_patience)});
  }
  return made;
}

Result<void> UdTx::start(QueuePair& pair) const {
  auto done = pair.to_init({.port = options_.port, .q_key = options_.q_key});
  if (done) done = pair.to_rtr({});
  if (done) done = pair.to_rts({});
  return done;
}

std::vector<std::uint32_t> UdTx::numbers() const {
  std::vector<std::uint32_t> all;
  for (const PathState& path : paths_) all.push_back(path.pair.number());
  return all;
}

std::optional<std::uint8_t> UdTx::path_of(std::uint32_t queue_pair) const {
  for (std::size_t path = 0; path < paths_.size(); ++path) {
    if (paths_[path].pair.number() == queue_pair) return static_cast<std::uint8_t>(path);
  }
  return std::nullopt;
}

bool UdTx::full(const PathState& path) const {
  // What is lost takes no request, but counts for the window, whose oldest payload may still be read.
  const bool requests = !path.problem && path.outstanding + path.chained >= options_.send_requests;
  return requests || next_ - oldest_ >= options_.window;
}

Result<UdTx::Taken> UdTx::send(std::span<const TxPacket> packets, UdPeers& peers, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Taken taken;
  if (auto reaped = reap(); !reaped) return tl::unexpected(reaped.error());
  while (taken.packets < packets.size()) {
    taken.completed = completed_;
    const std::size_t filled = fill(packets.subspan(taken.packets), peers, now, taken);
    if (auto posted = post(taken); !posted) return tl::unexpected(posted.error());
    taken.packets += filled;
    if (filled > 0) continue;
    if (taken.unresolved) return taken;
    // The rest may have found room meanwhile, also by what was lost: that completes nowhere.
    const std::uint64_t before = oldest_;
    if (auto reaped = reap(); !reaped) return tl::unexpected(reaped.error());
    if (completed_ == taken.completed && oldest_ == before) return taken;
  }
  return taken;
}

// One burst of requests, not yet posted; returns how many packets it takes.
std::size_t UdTx::fill(std::span<const TxPacket> packets, UdPeers& peers, TimePoint now, Taken& taken) {
  std::size_t used = 0;
  std::size_t count = 0;
  for (; count < packets.size() && used < kBurst; ++count) {
    const TxPacket& packet = packets[count];
    const UdPeers::Route route = peers.route(packet, now);
    if (route.kind == UdPeers::Route::Kind::kWait) {
      taken.unresolved = true;
      break;
    }
    if (full(paths_[packet.path])) break;
    if (route.kind == UdPeers::Route::Kind::kLose) {
      ++taken.lost;
    } else if (paths_[packet.path].problem) {
      ++taken.down;
      ++trouble_.lost;
    } else {
      chain(packet, route, used++);
    }
    taken.bytes += packet.header.bytes().size() + packet.payload.length;
    ++next_;  // lost ones, too: Capabilities::in_flight counts what is taken
  }
  return count;
}

void UdTx::chain(const TxPacket& packet, const UdPeers::Route& route, std::size_t index) {
  const auto header = packet.header.bytes();
  const std::size_t slot = next_ % options_.window * Header::kMax;
  std::memcpy(headers_.data() + slot, header.data(), header.size());
  auto& pieces = pieces_[index];
  pieces[0] = region_.slice(slot, header.size());
  ibv_send_wr& request = requests_[index];
  request = {};
  request.wr_id = next_ << kPathBits | packet.path;
  request.sg_list = pieces.data();
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(immediate_of(header.size()));
  request.wr.ud = {.ah = route.handle, .remote_qpn = route.queue_pair, .remote_qkey = route.q_key};
  bool host = true;
  if (packet.payload.length > 0) {
    const auto& memory = static_cast<const Registered&>(*packet.payload.mr);
    pieces[1] = memory.slice(packet.payload.offset, packet.payload.length);
    request.num_sge = 2;
    host = memory.memory().kind == gdr::MemoryKind::kHost;
  }
  if (host && header.size() + packet.payload.length <= options_.inline_bytes) request.send_flags = IBV_SEND_INLINE;
  PathState& path = paths_[packet.path];
  if (path.chained++ == 0) {
    path.first = &request;
    path.first_number = next_;
  } else {
    path.last->next = &request;
  }
  path.last = &request;
}

Result<void> UdTx::post(Taken& taken) {
  for (PathState& path : paths_) {
    if (path.chained == 0) continue;
    path.last->send_flags |= IBV_SEND_SIGNALED;
    const Batch batch{path.first_number, path.last->wr_id >> kPathBits, path.chained};
    ibv_send_wr* refused = nullptr;
    const auto posted = path.pair.post(*path.first, &refused);
    const std::uint32_t requests = std::exchange(path.chained, 0);
    if (!posted && refused == path.first) {
      trouble_.lost += requests;
      fail_path(path, posted.error());
      continue;
    }
    path.batches.push_back(batch);
    path.outstanding += requests;
    ++taken.chains;
    if (!posted) {
      // Nobody would tell of what went before the refused one.
      lost_ = posted.error();
      return posted;
    }
  }
  return {};
}

void UdTx::complete(std::uint64_t id) {
  PathState& path = paths_[id & ((1u << kPathBits) - 1)];
  const std::uint64_t number = id >> kPathBits;
  while (!path.batches.empty() && path.batches.front().last <= number) {
    path.outstanding -= path.batches.pop_front().requests;
  }
}

Result<void> UdTx::reap() {
  std::array<ibv_wc, 32> done;
  std::size_t count = done.size();
  while (count == done.size()) {
    const auto polled = completions_.poll(done);
    if (!polled) {
      lost_ = polled.error();
      break;
    }
    count = *polled;
    completed_ += count;
    for (const ibv_wc& one : std::span(done).first(count)) {
      PathState& path = paths_[one.wr_id & ((1u << kPathBits) - 1)];
      if (one.status == IBV_WC_SUCCESS) {
        path.sent = true;
      } else {
        on_failed(path, one);
      }
      complete(one.wr_id);
    }
  }
  oldest_ = next_;
  for (PathState& path : paths_) {
    if (!path.batches.empty()) oldest_ = std::min(oldest_, path.batches.front().first);
  }
  if (lost_) return tl::unexpected(*lost_);
  return {};
}

std::uint64_t UdTx::taken() {
  const std::lock_guard lock(mutex_);
  return next_;
}

std::uint64_t UdTx::finished() {
  const std::lock_guard lock(mutex_);
  return oldest_;
}

std::uint64_t UdTx::completed() {
  const std::lock_guard lock(mutex_);
  static_cast<void>(reap());
  return completed_;
}

std::optional<Error> UdTx::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace clustar::transport::io::verbs
