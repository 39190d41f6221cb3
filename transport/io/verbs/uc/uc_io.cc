#include "transport/io/verbs/uc/uc_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs::uc {
namespace {

constexpr std::size_t kBurst = 64;
// Between looks at what tells of nothing by a descriptor: binds, the thread, room on a pair.
constexpr Duration kPause = std::chrono::microseconds(100);

}  // namespace

struct UcIo::Parts {
  CompletionQueue send_queue;
  CompletionQueue recv_queue;
  SharedReceiveQueue receives;
  PairParts pairs{};
  std::unique_ptr<Outbox> outbox{};
  std::unique_ptr<Windows> windows{};
};

Result<std::unique_ptr<UcIo>> UcIo::open(std::unique_ptr<PacketIo> datagrams, const Device& device,
                                         const ProtectionDomain& domain, const GidEntry& gid,
                                         const UcOptions& options) {
  const auto most_completions = static_cast<std::uint64_t>(device.limits().max_cqe);
  const std::uint64_t sends = std::uint64_t{options.most_pairs} * options.send_requests;
  const bool power = options.join_window > 0 && (options.join_window & (options.join_window - 1)) == 0;
  if (sends == 0 || sends > most_completions || options.receives == 0 || options.receives > most_completions ||
      !power || datagrams->capabilities().paths > kMostPaths) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("verbs UC: {} pairs of {} writes, {} receives, a window of {}, {} paths; allowed are {} "
                            "writes (max_cqe of {}) and as many receives, a power of two, and {} paths",
                            options.most_pairs, options.send_requests, options.receives, options.join_window,
                            datagrams->capabilities().paths, most_completions, device.name(), kMostPaths));
  }
  const auto port = device.port(options.port);
  if (!port) return tl::unexpected(port.error());
  auto send_queue = CompletionQueue::make(device, static_cast<int>(sends));
  if (!send_queue) return tl::unexpected(send_queue.error());
  auto recv_queue = CompletionQueue::make(device, static_cast<int>(options.receives), true);
  if (!recv_queue) return tl::unexpected(recv_queue.error());
  auto receives = SharedReceiveQueue::make(domain, options.receives);
  if (!receives) return tl::unexpected(receives.error());
  auto outbox = Outbox::make(*datagrams);
  if (!outbox) return tl::unexpected(outbox.error());
  auto windows = Windows::make(device, domain, gid, options.port, options.windows);
  if (!windows && options.warn) options.warn(windows.error().message);
  Parts parts{std::move(*send_queue), std::move(*recv_queue), std::move(*receives)};
  parts.pairs = {.domain = &domain,
                 .send_requests = options.send_requests,
                 .port = options.port,
                 .gid_index = static_cast<int>(gid.index),
                 .lid = port->lid,
                 .mtu = port->active_mtu,
                 .marks = options.marks};
  parts.outbox = std::move(*outbox);
  if (windows) parts.windows = std::move(*windows);
  std::unique_ptr<UcIo> io(new UcIo(std::move(datagrams), device, options, std::move(parts)));
  if (!windows) io->problem_ = windows.error().message;
  return io;
}

UcIo::UcIo(std::unique_ptr<PacketIo> datagrams, const Device& device, const UcOptions& options, Parts parts)
    : options_(options),
      device_(device),
      datagrams_(std::move(datagrams)),
      headers_(options.headers),
      send_queue_(std::move(parts.send_queue)),
      recv_queue_(std::move(parts.recv_queue)),
      receives_(std::move(parts.receives)),
      pair_parts_([&] {
        PairParts pairs = parts.pairs;
        pairs.send_queue = &send_queue_;
        pairs.recv_queue = &recv_queue_;
        pairs.receives = &receives_;
        return pairs;
      }()),
      missing_receives_(options.receives),
      outbox_(std::move(parts.outbox)),
      windows_(std::move(parts.windows)),
      writer_(send_queue_, options.send_requests),
      maker_(pair_parts_),
      tx_(kBurst),
      rx_(kBurst) {
  capabilities_ = datagrams_->capabilities();
  capabilities_.max_packet -= 1;
  capabilities_.header_bytes = std::min(capabilities_.header_bytes, Header::kMax) - 1;
  capabilities_.landing = capabilities_.rewrites_until_cancel = windows_ != nullptr;
  capabilities_.copies = false;
  capabilities_.in_flight = std::max(capabilities_.in_flight, options.most_pairs * options.send_requests);
  fds_.assign(datagrams_->ready_fds().begin(), datagrams_->ready_fds().end());
  fds_.push_back(recv_queue_.fd());
  post_receives();
}

UcIo::~UcIo() {
  while (landings_.size() > 0) cancel({targets_.begin()->first});
  datagrams_->release(std::span(rx_).subspan(rx_next_, rx_count_ - rx_next_));
}

Peer* UcIo::find(PeerId peer) {
  const auto found = peers_.find(peer);
  return found != peers_.end() ? &found->second : nullptr;
}

Join& UcIo::join_of(Peer& peer) {
  if (!peer.join) peer.join = std::make_unique<Join>(headers_, options_.join_window);
  return *peer.join;
}

void UcIo::add_peer(PeerId peer, const Gid& gid) {
  forget_peer(peer);
  if (++next_session_ == 0) ++next_session_;
  peers_.emplace(std::piecewise_construct, std::forward_as_tuple(peer),
                 std::forward_as_tuple(peer, gid, next_session_));
  // Who knew us before, or has waited for us, tells what we need to know.
  say(peers_.at(peer), Kind::kSession, {});
}

Result<PeerId> UcIo::add_peer(const AddressBlob& address, const net::Endpoint& control) {
  const auto parsed = UdAddress::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  // They judge the address, too.
  auto added = datagrams_->add_peer(address, control);
  if (added) add_peer(*added, parsed->gid);
  return added;
}

Result<void> UcIo::remove_peer(PeerId peer) {
  forget_peer(peer);
  return datagrams_->remove_peer(peer);
}

void UcIo::forget_peer(PeerId id) {
  Peer* peer = find(id);
  if (peer == nullptr) return;
  for (const std::uint32_t landing : landings_.of(id)) cancel({landing});
  post_chain();
  reset(*peer);
  outbox_->forget(id);
  peers_.erase(id);
}

// Nothing that was agreed with it holds any longer, at its side either. Landings stay open: they are ours.
void UcIo::reset(Peer& peer) {
  peer.granted.clear();
  peer.next_number = 1;
  peer.join.reset();
  for (auto& [key, pair] : peer.out) {
    if (pair.state == OutPair::State::kUp) writer_.remove(pair.writer);
    --out_pairs_;
  }
  peer.out.clear();
  for (auto& [key, pair] : peer.in) {
    if (pair.pair) in_by_number_.erase(pair.pair->number());
  }
  peer.in.clear();
}

Result<std::unique_ptr<Mr>> UcIo::reg_mr(const gdr::MemoryRef& memory) {
  auto made = datagrams_->reg_mr(memory);
  if (!made) return made;
  if (auto* registered = dynamic_cast<Registered*>(made->get())) {
    registered->also_quiesce([this] { writer_.quiesce(); });
  }
  return made;
}

const Registered* UcIo::registered(const Mr* mr) const { return registered_in(pair_parts_.domain->get(), mr); }

PlacementHint UcIo::expect(PeerId id, std::uint64_t slot, const MemorySlice& target, std::size_t segment_bytes) {
  Peer* peer = find(id);
  const Registered* memory_here = registered(target.mr);
  if (peer == nullptr || windows_ == nullptr || memory_here == nullptr || target.length == 0) return {};
  const gdr::MemoryRef& memory = target.mr->memory();
  if (target.offset > memory.length || target.length > memory.length - target.offset) return {};
  if (memory.kind == gdr::MemoryKind::kDmaBuf) return {};  // the kernel binds no windows in them
  if (segment_bytes == 0 || segment_bytes > mtu_bytes(pair_parts_.mtu) || !windows_->problem().empty()) return {};
  Landings::Target wanted{.peer = id,
                          .slot = slot,
                          .bytes = {memory.address + target.offset, target.length},
                          .segment_bytes = static_cast<std::uint32_t>(segment_bytes)};
  const std::uint32_t landing = landings_.add(wanted);
  if (landing == 0) return {};
  const auto window =
      windows_->bind(memory_here->region(), memory_here->in_region(target.offset), target.length, landing);
  if (!window) {
    static_cast<void>(landings_.remove(landing));
    if (!windows_->problem().empty()) warn_once(windows_said_, windows_->problem());
    return {};
  }
  landings_.set_window(landing, *window);
  targets_[landing] = target;
  return {landing};
}

void UcIo::cancel(PlacementHint landing) {
  const auto id = static_cast<std::uint32_t>(landing.id);
  const Landings::Target* found = landing.id == id ? landings_.find(id) : nullptr;
  if (found == nullptr) return;
  const Landings::Target target = *found;
  const MemorySlice slice = targets_[id];
  const bool tell = landings_.remove(id);
  targets_.erase(id);
  if (!windows_->unbind(target.window, registered(slice.mr)->region())) {
    // No pair, no writes, and none is accepted from now on; who wrote on them is told at its next headers.
    ++counters_.unsure;
    for (auto& [peer, state] : peers_) {
      for (auto& [key, pair] : state.in) {
        if (pair.pair) in_by_number_.erase(pair.pair->number());
      }
      state.in.clear();
    }
  }
  if (!windows_->problem().empty()) warn_once(windows_said_, windows_->problem());
  const Peer* peer = find(target.peer);
  if (!tell || peer == nullptr) return;
  std::array<std::byte, Grant::kSize> body;
  Grant{.slot = target.slot, .id = id, .length = 1, .segment_bytes = 1}.serialize_to(body);
  say(*peer, Kind::kRevoke, body);
}

void UcIo::quiesce() {
  datagrams_->quiesce();
  writer_.quiesce();
}

void UcIo::say(const Peer& peer, Kind kind, std::span<const std::byte> body, std::uint8_t path, std::uint16_t number) {
  if (!outbox_->room()) return;  // as if it were lost
  const Preamble preamble{kind, number, peer.session, peer.peer_session};
  outbox_->say(peer.id, path, preamble, body);
}

void UcIo::warn_once(bool& said, const std::string& what) {
  if (problem_.empty()) problem_ = what;
  if (!said && options_.warn) options_.warn(what);
  said = true;
}

std::size_t UcIo::pairs_up(PeerId peer) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      found->second.out, [](const auto& each) { return each.second.state == OutPair::State::kUp; }));
}

Join::Counters UcIo::join_counters() const {
  Join::Counters sum;
  for (const auto& [id, peer] : peers_) {
    if (!peer.join) continue;
    const Join::Counters& one = peer.join->counters();
    sum.joined += one.joined;
    sum.duplicate_writes += one.duplicate_writes;
    sum.lost_writes += one.lost_writes;
    sum.lost_headers += one.lost_headers;
    sum.late += one.late;
    sum.no_block += one.no_block;
  }
  return sum;
}

std::string UcIo::describe() const {
  return fmt::format(
             "verbs UC on {}: {} packets written into place and {} placed here, {} by datagrams and {} received so; {} "
             "pairs "
             "were up, {} failed; {} grants told, {} heard; {} headers in {} batches, of which {} were sent again "
             "alone; {} binds of windows",
             device_.place(options_.port).to_string(), counters_.packets_written, counters_.packets_placed,
             counters_.datagrams_sent, counters_.datagrams_received, counters_.pairs_up, counters_.pairs_failed,
             counters_.grants_told, counters_.grants_heard, counters_.packets_written, outbox_->batches(),
             outbox_->alone(), windows_ ? windows_->binds() : 0) +
         (problem_.empty() ? "" : "; first problem: " + problem_) + "; " + datagrams_->describe();
}

void UcIo::wait(Duration timeout) {
  const TimePoint now = clock_.now();
  const auto done = step(now);
  const bool ready =
      std::ranges::any_of(peers_, [](const auto& each) { return each.second.join && each.second.join->has_ready(); });
  if (!done || rx_next_ < rx_count_ || ready) return;
  const bool half =
      std::ranges::any_of(peers_, [](const auto& each) { return each.second.join && each.second.join->waiting() > 0; });
  if (half || took_less_) timeout = std::min(timeout, kPause);
  datagrams_->wait(std::min(timeout, until_due(now)));
  writer_.poll();
}

// How long nothing is to be done of which no descriptor tells.
Duration UcIo::until_due(TimePoint now) const {
  if (maker_.open() > 0 || !outbox_->empty() || outbox_->owes() || (windows_ != nullptr && windows_->pending()))
    return kPause;
  const TimePoint next = std::min(landings_.next_timeout(), pairs_due_);
  return next == TimePoint::max() ? Duration::max() : std::max<Duration>(next - now, kPause);
}

Result<Duration> UcIo::arm() {
  if (rx_next_ < rx_count_) return Duration(0);
  // Events of what was taken meanwhile would end the next sleep.
  if (const auto drained = recv_queue_.wait(Duration(0)); !drained) return tl::unexpected(drained.error());
  if (const auto armed = recv_queue_.arm(); !armed) return tl::unexpected(armed.error());
  // What came before it was armed tells of itself by nothing.
  if (const auto taken = take_writes(); !taken) return tl::unexpected(taken.error());
  const bool ready =
      std::ranges::any_of(peers_, [](const auto& each) { return each.second.join && each.second.join->has_ready(); });
  return ready ? Duration(0) : until_due(clock_.now());
}

// Both are armed in any case: what one has may be nothing for us.
Duration UcIo::before_sleep() {
  const Duration datagrams = datagrams_->before_sleep();
  return std::min(datagrams, arm().value_or(Duration(0)));
}

}  // namespace clustar::transport::io::verbs::uc
