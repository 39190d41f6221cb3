#include "paraexpress/communicator/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace clustar::paraexpress {
namespace {

constexpr int kNoteTag = 0, kDataTag = 1;

}  // namespace

Lines::Lines(Mesh& mesh, LinesOptions options) : mesh_(mesh), options_(std::move(options)), peers_(options_.ranks) {}

Result<std::unique_ptr<Lines>> Lines::open(Mesh& mesh, LinesOptions options) {
  std::unique_ptr<Lines> lines(new Lines(mesh, std::move(options)));
  const std::uint32_t ranks = lines->options_.ranks;
  const std::size_t bytes = ranks * 2 * kNotes * kMostNote;
  lines->memory_ = std::make_unique<std::byte[]>(bytes);
  auto registered = mesh.reg_mr(lines->memory_.get(), bytes);
  if (!registered) return tl::unexpected(registered.error());
  lines->registered_ = std::move(*registered);
  for (Member peer = 0; peer < ranks; ++peer) {
    if (peer == lines->options_.self) continue;
    for (std::size_t i = 0; i < kNotes; ++i) lines->peers_[peer].hearing.push_back({nullptr, i, nullptr});
  }
  return lines;
}

std::size_t Lines::offset_of(Member peer, bool out, std::size_t place) const {
  return ((peer * 2 + (out ? 1 : 0)) * kNotes + place) * kMostNote;
}

std::byte* Lines::place_of(Member peer, bool out, std::size_t place) const {
  return memory_.get() + offset_of(peer, out, place);
}

void Lines::end(Message& message, std::optional<Error> error) {
  message.ended = true;
  message.error = std::move(error);
  --open_;
}

void Lines::say(Member peer, const Note& note, Message* carried) {
  if (peers_[peer].gone) return;
  peers_[peer].notes.push_back({note, carried});
  ++open_;
}

void Lines::begin(Message& message) {
  ++open_;
  if (message.peer != kAnyMember && (message.peer >= options_.ranks || message.peer == options_.self)) {
    return end(message,
               Error{ErrorCode::kInvalidArgument,
                     fmt::format("a message {} rank {}; allowed: the ranks 0 to {} but {}, itself",
                                 message.sends ? "to" : "from", message.peer, options_.ranks - 1, options_.self)});
  }
  const bool any = message.peer == kAnyMember;
  const bool gone = any ? alone() : peers_[message.peer].gone || peers_[message.peer].left;
  if (message.sends) {
    Peer& peer = peers_[message.peer];
    if (gone)
      return end(message, peer.gone.value_or(Error{ErrorCode::kRemote, fmt::format("rank {} has left", message.peer)}));
    Note note{NoteKind::kOffer, message.bytes <= kMostCarried, message.key, ++peer.next_offer, message.bytes};
    if (!note.carries) peer.offered.emplace(note.id, &message);
    return say(message.peer, note, note.carries ? &message : nullptr);
  }
  const Want want{message.peer, message.key, ++next_want_};
  if (const Offer* const other = matching_.contradicts(want)) return contradicted(message, *other);
  if (auto offer = matching_.want(want)) return accept(message, std::move(*offer));
  if (gone) {
    matching_.withdraw(want.id);
    if (any) return end(message, Error{ErrorCode::kRemote, "all other ranks have left"});
    const Peer& peer = peers_[message.peer];
    return end(message, peer.gone.value_or(Error{ErrorCode::kRemote, fmt::format("rank {} has left", message.peer)}));
  }
  wanting_.emplace(want.id, &message);
}

void Lines::begun(std::uint64_t collective) {
  begun_ = std::max(begun_, collective);
  look_for_stray_offers();
}

void Lines::look_for_stray_offers() {
  const Offer* const stray = matching_.stray(begun_);
  if (stray == nullptr) return;
  options_.contradiction(fmt::format(
      "rank {} sends in its collective {}, {}, what this rank does not expect there; all ranks must start the same "
      "operations in the same order, with the same root",
      stray->from, stray->key.number, name_of(stray->key.use)));
}

bool Lines::alone() const {
  for (Member peer = 0; peer < options_.ranks; ++peer) {
    if (peer != options_.self && !peers_[peer].gone && !peers_[peer].left) return false;
  }
  return true;
}

bool Lines::withdraw(Message& message) {
  const auto at = std::ranges::find_if(wanting_, [&](const auto& one) { return one.second == &message; });
  if (at == wanting_.end()) return false;
  matching_.withdraw(at->first);
  wanting_.erase(at);
  --open_;
  return true;
}

void Lines::tell(const Standing& standing) {
  const Note note{NoteKind::kStanding, false, {Use::kMessage, standing.number}, standing.what, standing.count};
  for (Member peer = 0; peer < options_.ranks; ++peer) {
    if (peer != options_.self) say(peer, note);
  }
}

Message* Lines::wanted(std::uint64_t id) {
  const auto at = wanting_.find(id);
  Message* const message = at->second;
  wanting_.erase(at);
  return message;
}

void Lines::contradicted(Message& message, const Offer& offer) {
  end(message, Error{ErrorCode::kInvalidUsage,
                     fmt::format("rank {} is in its collective {}, {}, where this rank waits for it in {}, {}; all "
                                 "ranks must start the same operations in the same order",
                                 offer.from, offer.key.number, name_of(offer.key.use), message.key.number,
                                 name_of(message.key.use))});
}

void Lines::accept(Message& message, Offer offer) {
  message.peer = offer.from;
  if (offer.bytes != message.bytes) {
    if (!offer.carries) say(offer.from, {NoteKind::kRefusal, false, offer.key, offer.id, message.bytes});
    return end(message, Error{ErrorCode::kInvalidUsage, fmt::format("rank {} sent {} bytes, where this rank expects {}",
                                                                    offer.from, offer.bytes, message.bytes)});
  }
  if (offer.carries) {
    if (message.bytes > 0) std::memcpy(message.data, offer.carried.data(), message.bytes);
    return end(message);
  }
  if (peers_[offer.from].gone) return end(message, peers_[offer.from].gone);
  peers_[offer.from].to_receive.push_back(&message);
  say(offer.from, {NoteKind::kGo, false, offer.key, offer.id, offer.bytes});
}

void Lines::hear_offer(Member peer, const Note& note, std::span<const std::byte> carried) {
  Offer offer{peer, note.key, note.bytes, note.id, note.carries, {carried.begin(), carried.end()}};
  while (const auto vain = matching_.contradicted(offer)) {
    matching_.withdraw(vain->id);
    contradicted(*wanted(vain->id), offer);
  }
  if (const auto want = matching_.offer(offer)) return accept(*wanted(want->id), std::move(offer));
  look_for_stray_offers();
}

Result<void> Lines::hear(Member from, std::span<const std::byte> message) {
  const auto note = parse_note(message);
  if (!note) return fail(ErrorCode::kRemote, fmt::format("rank {} sent what is no note", from));
  Peer& peer = peers_[from];
  switch (note->kind) {
    case NoteKind::kOffer: hear_offer(from, *note, message.subspan(kNoteBytes)); return {};
    case NoteKind::kStanding: options_.heard(from, {note->key.number, note->id, note->bytes}); return {};
    case NoteKind::kBye: left(from); return {};
    case NoteKind::kGo:
    case NoteKind::kRefusal: break;
  }
  const auto at = peer.offered.find(note->id);
  if (at == peer.offered.end()) return fail(ErrorCode::kRemote, fmt::format("rank {} answers no offer", from));
  Message& offered = *at->second;
  peer.offered.erase(at);
  if (note->kind == NoteKind::kGo) {
    peer.to_send.push_back(&offered);
  } else {
    end(offered, Error{ErrorCode::kInvalidUsage, fmt::format("this rank sent {} bytes, where rank {} expects {}",
                                                             offered.bytes, from, note->bytes)});
  }
  return {};
}

// Done in the order of their posting; the channel answers out of order at most within what was posted.
Result<bool> Lines::finish(std::deque<Sending>& under_way) {
  bool moved = false;
  while (!under_way.empty()) {
    const auto progress = under_way.front().request->test();
    if (!progress) return tl::unexpected(progress.error());
    if (!progress->done) return moved;
    if (Message* const message = under_way.front().message; message != nullptr) {
      const bool whole = progress->sizes[0] == message->bytes;
      end(*message, whole ? std::nullopt
                          : std::optional(Error{ErrorCode::kRemote, fmt::format("{} of {} bytes came",
                                                                                progress->sizes[0], message->bytes)}));
    }
    under_way.pop_front();
    moved = true;
  }
  return moved;
}

Result<bool> Lines::send_notes(Member to) {
  Peer& peer = peers_[to];
  const std::size_t before = peer.sending_notes.size();
  // Taken as messages that are carried: they end when they are sent.
  auto finished = Result<bool>(false);
  while (!peer.sending_notes.empty()) {
    const auto progress = peer.sending_notes.front().request->test();
    if (!progress) return tl::unexpected(progress.error());
    if (!progress->done) break;
    if (Message* const carried = peer.sending_notes.front().message; carried != nullptr) end(*carried);
    peer.sending_notes.pop_front();
    --open_;
  }
  finished = peer.sending_notes.size() != before;
  while (!peer.notes.empty() && peer.sending_notes.size() < kNotes) {
    const Out& out = peer.notes.front();
    const std::size_t place = peer.next_place;
    std::byte* const at = place_of(to, true, place);
    encode_note(out.note, std::span<std::byte, kNoteBytes>(at, kNoteBytes));
    std::size_t length = kNoteBytes;
    if (out.carried != nullptr && out.carried->bytes > 0) {
      std::memcpy(at + kNoteBytes, out.carried->data, out.carried->bytes);
      length += out.carried->bytes;
    }
    const auto request = mesh_.to(to).send(*registered_->to_send[to], offset_of(to, true, place), length, kNoteTag, {});
    if (!request) return tl::unexpected(request.error());
    if (*request == nullptr) break;
    peer.sending_notes.push_back({*request, place, out.carried});
    peer.next_place = (place + 1) % kNotes;
    peer.notes.pop_front();
    finished = true;
  }
  return finished;
}

Result<bool> Lines::hear_notes(Member from) {
  Peer& peer = peers_[from];
  bool moved = false;
  for (std::size_t i = 0; i < kNotes; ++i) {
    Sending& note = peer.hearing[i];
    if (note.request != nullptr) continue;
    const transport::RecvPart part{registered_->to_receive[from].get(), offset_of(from, false, note.place), kMostNote,
                                   kNoteTag};
    const auto request = mesh_.from(from).recv({&part, 1});
    if (!request) return tl::unexpected(request.error());
    if (*request == nullptr) break;
    note.request = *request;
  }
  while (peer.hearing.front().request != nullptr) {
    const auto progress = peer.hearing.front().request->test();
    if (!progress) return tl::unexpected(progress.error());
    if (!progress->done) break;
    const std::size_t place = peer.hearing.front().place;
    const auto heard = hear(from, {place_of(from, false, place), progress->sizes[0]});
    if (!heard) return tl::unexpected(heard.error());
    peer.hearing.pop_front();
    peer.hearing.push_back({nullptr, place, nullptr});
    moved = true;
  }
  return moved;
}

Result<bool> Lines::move_data(Member with) {
  Peer& peer = peers_[with];
  auto moved = finish(peer.sending);
  if (!moved) return moved;
  const auto received = finish(peer.receiving);
  if (!received) return received;
  while (!peer.to_send.empty()) {
    const Message& message = *peer.to_send.front();
    transport::FlowTag flow;
    flow.bytes = message.bytes;
    const auto request = mesh_.to(with).send(*message.memory->to_send[with],
                                             static_cast<std::size_t>(message.data - message.memory->begin),
                                             message.bytes, kDataTag, flow);
    if (!request) return tl::unexpected(request.error());
    if (*request == nullptr) break;
    peer.sending.push_back({*request, 0, peer.to_send.front()});
    peer.to_send.pop_front();
    moved = true;
  }
  while (!peer.to_receive.empty()) {
    const Message& message = *peer.to_receive.front();
    const transport::RecvPart part{message.memory->to_receive[with].get(),
                                   static_cast<std::size_t>(message.data - message.memory->begin), message.bytes,
                                   kDataTag};
    const auto request = mesh_.from(with).recv({&part, 1});
    if (!request) return tl::unexpected(request.error());
    if (*request == nullptr) break;
    peer.receiving.push_back({*request, 0, peer.to_receive.front()});
    peer.to_receive.pop_front();
    moved = true;
  }
  return *moved || *received;
}

Result<bool> Lines::advance(Member peer) {
  const auto sent = send_notes(peer);
  if (!sent) return sent;
  const auto heard = hear_notes(peer);
  if (!heard) return heard;
  const auto data = move_data(peer);
  if (!data) return data;
  return *sent || *heard || *data;
}

bool Lines::advance() {
  bool moved = false;
  for (Member peer = 0; peer < options_.ranks; ++peer) {
    if (peer == options_.self || peers_[peer].gone) continue;
    const auto any = advance(peer);
    if (!any) lose(peer, any.error());
    moved = moved || !any || *any;
  }
  return moved;
}

// Its channels are closed first: nothing reads or writes the messages' memory any more.
void Lines::lose(Member from, Error error) {
  Peer& peer = peers_[from];
  if (peer.left) {
    error = {ErrorCode::kRemote, fmt::format("rank {} has left", from)};
  } else {
    error.message = fmt::format("rank {}: {}", from, error.message);
  }
  mesh_.drop(from);
  peer.gone = error;
  for (auto* queue : {&peer.sending, &peer.receiving}) {
    for (const Sending& one : *queue) end(*one.message, error);
    queue->clear();
  }
  for (auto* queue : {&peer.to_send, &peer.to_receive}) {
    for (Message* const one : *queue) end(*one, error);
    queue->clear();
  }
  for (const auto& [id, message] : peer.offered) end(*message, error);
  peer.offered.clear();
  for (const Out& one : peer.notes) {
    if (one.carried != nullptr) end(*one.carried, error);
  }
  for (const Sending& one : peer.sending_notes) {
    if (one.message != nullptr) end(*one.message, error);
  }
  open_ -= peer.notes.size() + peer.sending_notes.size();
  peer.notes.clear();
  peer.sending_notes.clear();
  peer.hearing.clear();
  for (const Want& want : matching_.take_wants_of(from, !peer.left)) end(*wanted(want.id), error);
}

// What it offered before it left still comes; nothing else does.
void Lines::left(Member from) {
  Peer& peer = peers_[from];
  peer.left = true;
  const Error error{ErrorCode::kRemote, fmt::format("rank {} has left", from)};
  for (const Want& want : matching_.take_wants_of(from, alone())) end(*wanted(want.id), error);
  for (const auto& [id, message] : peer.offered) end(*message, error);
  peer.offered.clear();
}

void Lines::leave() {
  for (Member peer = 0; peer < options_.ranks; ++peer) {
    if (peer != options_.self) say(peer, {NoteKind::kBye, false, {}, 0, 0});
  }
}

bool Lines::parted() const {
  for (Member peer = 0; peer < options_.ranks; ++peer) {
    const Peer& one = peers_[peer];
    if (peer == options_.self || one.gone) continue;
    if (!one.left || !one.notes.empty() || !one.sending_notes.empty()) return false;
  }
  return true;
}

}  // namespace clustar::paraexpress
