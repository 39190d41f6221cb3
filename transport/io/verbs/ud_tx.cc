#include "transport/io/verbs/ud_tx.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "transport/io/verbs/registered.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {
namespace {

constexpr std::uint64_t kPathBits = 4;

}  // namespace

UdTx::UdTx(const UdTxOptions& options, std::vector<std::byte> headers, MemoryRegion region, CompletionQueue completions)
    : options_(options),
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
  std::unique_ptr<UdTx> made(new UdTx(options, std::move(headers), std::move(*region), std::move(*completions)));
  for (std::uint8_t path = 0; path < options.paths; ++path) {
    auto pair = QueuePair::make(domain, {.type = IBV_QPT_UD,
                                         .send_queue = &made->completions_,
                                         .recv_queue = &received,
                                         .shared_receives = &receives,
                                         .send_requests = options.send_requests,
                                         .send_sges = 2,
                                         .inline_bytes = options.inline_bytes});
    if (!pair) return tl::unexpected(pair.error());
    if (auto done = pair->to_init({.port = options.port, .q_key = options.q_key}); !done) {
      return tl::unexpected(done.error());
    }
    if (auto done = pair->to_rtr({}); !done) return tl::unexpected(done.error());
    if (auto done = pair->to_rts({}); !done) return tl::unexpected(done.error());
    made->paths_.push_back({.pair = std::move(*pair)});
  }
  return made;
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
  return path.outstanding + path.chained >= options_.send_requests || next_ - oldest_ >= options_.window;
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
    pieces[1] = memory.region().slice(packet.payload.offset, packet.payload.length);
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
    path.batches.push_back(batch);
    path.outstanding += std::exchange(path.chained, 0);
    ++taken.chains;
    if (auto posted = path.pair.post(*path.first); !posted) {
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
      const std::size_t path = one.wr_id & ((1u << kPathBits) - 1);
      if (one.status != IBV_WC_SUCCESS && !lost_) lost_ = paths_[path].pair.explain(one);
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

void UdTx::stop() {
  if (!lost_) {
    lost_ = Error{ErrorCode::kSystem,
                  fmt::format("verbs UD: queue pairs {} and its neighbours did not send for 1 s what they were given, "
                              "and were stopped: is the link down, or paused by the switch (PFC counters)?",
                              paths_[0].pair.number())};
  }
  // Without a queue pair that can be stopped there is nothing left to try.
  for (PathState& path : paths_) static_cast<void>(path.pair.to_error());
}

void UdTx::settle() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::seconds(1);
  const auto begin = Clock::now();
  std::uint64_t target = 0;
  for (bool first = true, stopped = false;; first = false) {
    {
      const std::lock_guard lock(mutex_);
      if (first) target = next_;
      static_cast<void>(reap());  // the next send() tells
      if (oldest_ >= target || given_up_) return;
      const auto waited = Clock::now() - begin;
      given_up_ = waited > 2 * kPatience;
      if (waited > kPatience && !std::exchange(stopped, true)) stop();
    }
    std::this_thread::yield();
  }
}

}  // namespace clustar::transport::io::verbs
