#include "paraexpress/tolerant/carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::paraexpress::tolerant {
namespace {

// Farewells have tag 0.
constexpr int kNoteTag = 1, kContributionTag = 2, kResultTag = 3;
constexpr std::size_t kNotes = 8;           // of a peer, each way, at once
constexpr std::size_t kMessages = 8;        // elements to a peer at once, and from it of each kind
constexpr std::size_t kMostToReceive = 64;  // announced by a peer and not posted

int tag_of(NoteKind kind) { return kind == NoteKind::kContribution ? kContributionTag : kResultTag; }

std::vector<ElementRange> ranges_of(std::span<const transport::MissingRange> missing) {
  std::vector<ElementRange> ranges;
  ranges.reserve(missing.size());
  for (const transport::MissingRange& one : missing) ranges.push_back({one.offset, one.offset + one.length});
  return ranges;
}

}  // namespace

Carrier::Carrier(Mesh& mesh, const CarrierOptions& options)
    : mesh_(mesh),
      options_(options),
      staging_(
          [this](Staging::Block& block) -> Result<void> {
            auto registered = mesh_.reg_mr(block.memory.get(), block.bytes);
            if (!registered) return tl::unexpected(registered.error());
            block.registered = std::move(*registered);
            return {};
          },
          [](Staging::Block& block) { block.registered.reset(); }),
      peers_(options.ranks) {}

Result<std::unique_ptr<Carrier>> Carrier::open(Mesh& mesh, const CarrierOptions& options) {
  std::unique_ptr<Carrier> carrier(new Carrier(mesh, options));
  const std::size_t bytes = options.ranks * 2 * kNotes * kNoteBytes;
  carrier->notes_ = std::make_unique<std::byte[]>(bytes);
  auto registered = mesh.reg_mr(carrier->notes_.get(), bytes);
  if (!registered) return tl::unexpected(registered.error());
  carrier->notes_mr_ = std::move(*registered);
  for (Member peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.self) continue;
    for (std::size_t place = 0; place < kNotes; ++place) carrier->peers_[peer].hearing.emplace_back(place, nullptr);
  }
  return carrier;
}

std::size_t Carrier::place_of(Member peer, bool out, std::size_t place) const {
  return ((peer * 2 + (out ? 1 : 0)) * kNotes + place) * kNoteBytes;
}

Block Carrier::take(std::size_t bytes) {
  const std::size_t rounded = Staging::rounded(bytes);
  if (rounded > options_.most_bytes || taken_ > options_.most_bytes - rounded) return nullptr;
  auto block = staging_.take(bytes);
  if (!block) return nullptr;
  std::byte* const memory = (*block)->memory.get();
  taken_ += (*block)->bytes;
  blocks_.emplace(memory, *block);
  return {memory, [this](std::byte* at) {
            const auto found = blocks_.find(at);
            taken_ -= found->second->bytes;
            staging_.give_back(found->second);
            blocks_.erase(found);
          }};
}

void Carrier::say(Member to, const Note& note) {
  if (!peers_[to].gone) peers_[to].to_send.push_back({note, nullptr, 0, {}});
}

void Carrier::send(Member to, Block block, std::size_t bytes, const Ticket& ticket) {
  if (!peers_[to].gone) peers_[to].to_send.push_back({std::nullopt, std::move(block), bytes, ticket});
}

void Carrier::receive(Member from, Block block, std::size_t bytes, const Ticket& ticket) {
  peers_[from].to_receive.push_back({nullptr, std::move(block), bytes, ticket});
}

// Contributions to one part of one round are an exchange: all ranks give its root equally much.
transport::FlowTag Carrier::flow_of(const Ticket& ticket, std::size_t bytes) const {
  transport::FlowTag flow;
  flow.bytes = bytes;
  if (ticket.kind != NoteKind::kContribution || options_.tolerance_ppm == 0) return flow;
  flow.loss.communicator = options_.communicator;
  flow.loss.collective = static_cast<std::uint32_t>(ticket.round * options_.buckets + ticket.bucket);
  flow.loss.collective_bytes = bytes;
  flow.loss.ranks = static_cast<std::uint16_t>(options_.ranks);
  flow.loss.edges = 1;
  flow.loss.tolerance_ppm = options_.tolerance_ppm;
  flow.loss.exchange = true;
  return flow;
}

Result<bool> Carrier::begin_sends(Member to) {
  Peer& peer = peers_[to];
  bool moved = false;
  while (!peer.to_send.empty()) {
    Outgoing& next = peer.to_send.front();
    auto& queue = next.note ? peer.notes : peer.elements;
    if (queue.size() >= (next.note ? kNotes : kMessages)) break;
    transport::Request* request = nullptr;
    if (next.note) {
      const std::size_t at = place_of(to, true, peer.next_place);
      encode_note(*next.note, std::span<std::byte, kNoteBytes>(notes_.get() + at, kNoteBytes));
      transport::FlowTag flow;
      flow.urgency = transport::Urgency::kBlocking;
      const auto sent = mesh_.to(to).send(*notes_mr_->to_send[to], at, kNoteBytes, kNoteTag, flow);
      if (!sent) return tl::unexpected(sent.error());
      request = *sent;
      if (request != nullptr) peer.next_place = (peer.next_place + 1) % kNotes;
    } else {
      const auto& mr = *blocks_.at(next.block.get())->registered->to_send[to];
      const auto sent =
          mesh_.to(to).send(mr, 0, next.bytes, tag_of(next.ticket.kind), flow_of(next.ticket, next.bytes));
      if (!sent) return tl::unexpected(sent.error());
      request = *sent;
    }
    if (request == nullptr) break;
    queue.push_back({request, std::move(next.block), next.bytes, next.ticket});
    peer.to_send.pop_front();
    moved = true;
  }
  return moved;
}

Result<bool> Carrier::end_sends(Member to, Listener& listener) {
  Peer& peer = peers_[to];
  bool moved = false;
  for (auto* queue : {&peer.notes, &peer.elements}) {
    while (!queue->empty()) {
      const auto progress = queue->front().request->test();
      if (!progress) return tl::unexpected(progress.error());
      if (!progress->done) break;
      const auto missing = ranges_of(progress->missing);
      const UnderWay ended = std::move(queue->front());
      queue->pop_front();
      moved = true;
      if (ended.block == nullptr) continue;
      bytes_sent_ += ended.bytes;
      ++messages_sent_;
      listener.sent(to, ended.ticket, missing);
    }
  }
  return moved;
}

Result<bool> Carrier::receive_some(Member from, Listener& listener, std::optional<Blame>& blame) {
  Peer& peer = peers_[from];
  bool moved = false;
  while (!peer.to_receive.empty()) {
    UnderWay& next = peer.to_receive.front();
    auto& queue = peer.receiving[static_cast<std::size_t>(next.ticket.kind)];
    if (queue.size() >= kMessages) break;
    const transport::RecvPart part{blocks_.at(next.block.get())->registered->to_receive[from].get(), 0, next.bytes,
                                   tag_of(next.ticket.kind)};
    const auto request = mesh_.from(from).recv({&part, 1});
    if (!request) return tl::unexpected(request.error());
    if (*request == nullptr) break;
    next.request = *request;
    queue.push_back(std::move(next));
    peer.to_receive.pop_front();
    moved = true;
  }
  for (auto& queue : peer.receiving) {
    while (!queue.empty() && !blame) {
      const auto progress = queue.front().request->test();
      if (!progress) return tl::unexpected(progress.error());
      if (!progress->done) break;
      const auto missing = ranges_of(progress->missing);
      const std::size_t bytes = progress->sizes[0];
      const UnderWay ended = std::move(queue.front());
      queue.pop_front();
      moved = true;
      if (bytes != ended.bytes) {
        return fail(ErrorCode::kRemote, fmt::format("it sent {} bytes where it announced {}", bytes, ended.bytes));
      }
      bytes_received_ += bytes;
      ++messages_received_;
      blame = listener.came(from, ended.ticket, missing);
    }
  }
  return moved;
}

Result<bool> Carrier::hear(Member from, Listener& listener, std::optional<Blame>& blame) {
  Peer& peer = peers_[from];
  bool moved = false;
  for (auto& [place, request] : peer.hearing) {
    if (request != nullptr) continue;
    const transport::RecvPart part{notes_mr_->to_receive[from].get(), place_of(from, false, place), kNoteBytes,
                                   kNoteTag};
    const auto posted = mesh_.from(from).recv({&part, 1});
    if (!posted) return tl::unexpected(posted.error());
    if (*posted == nullptr) break;
    request = *posted;
  }
  while (!blame && peer.hearing.front().second != nullptr && peer.to_receive.size() < kMostToReceive) {
    const auto progress = peer.hearing.front().second->test();
    if (!progress) return tl::unexpected(progress.error());
    if (!progress->done) break;
    const std::size_t place = peer.hearing.front().first;
    blame = listener.heard(from, {notes_.get() + place_of(from, false, place), progress->sizes[0]});
    peer.hearing.pop_front();
    peer.hearing.emplace_back(place, nullptr);
    moved = true;
  }
  return moved;
}

Result<bool> Carrier::advance(Member peer, Listener& listener, std::optional<Blame>& blame) {
  const auto ended = end_sends(peer, listener);
  if (!ended) return ended;
  const auto heard = hear(peer, listener, blame);
  if (!heard) return heard;
  const auto received = receive_some(peer, listener, blame);
  if (!received) return received;
  const auto begun = begin_sends(peer);
  if (!begun) return begun;
  return *ended || *heard || *received || *begun;
}

std::optional<Blame> Carrier::advance(Listener& listener, const Others& others, bool& moved) {
  for (Member peer = 0; peer < options_.ranks; ++peer) {
    if (peer == options_.self || peers_[peer].gone) continue;
    std::optional<Blame> blame;
    const auto any = advance(peer, listener, blame);
    if (blame) return blame;
    if (any) {
      moved = moved || *any;
      continue;
    }
    moved = true;
    if (!others.has_left(peer)) {
      const Blame found = others.failed(peer, any.error());
      if (!others.has_left(peer)) return found;
    }
    lose(peer, listener);
  }
  return std::nullopt;
}

// It has all that it needs of this rank, and this rank all that it needs of it. What was on its way to it has arrived,
// or nobody waits for it.
void Carrier::lose(Member peer, Listener& listener) {
  mesh_.drop(peer);
  const Peer gone = std::exchange(peers_[peer], Peer{});
  peers_[peer].gone = true;
  for (const UnderWay& one : gone.elements) listener.sent(peer, one.ticket, {});
}

bool Carrier::is_sending(const std::function<bool(Member)>& has_left) const {
  for (Member member = 0; member < options_.ranks; ++member) {
    const Peer& peer = peers_[member];
    const bool sends = !peer.to_send.empty() || !peer.notes.empty() || !peer.elements.empty();
    if (sends && !has_left(member)) return true;
  }
  return false;
}

void Carrier::release() {
  for (Peer& peer : peers_) {
    peer = Peer{};
    peer.gone = true;
  }
}

EngineTraffic Carrier::traffic() const { return {bytes_sent_, bytes_received_, messages_sent_, messages_received_}; }

}  // namespace clustar::paraexpress::tolerant
