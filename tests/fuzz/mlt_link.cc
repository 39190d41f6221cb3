#include "tests/fuzz/mlt_link.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "mlt/core/recovery.h"

namespace clustar::fuzz {

std::span<const std::uint8_t> Link::content(std::uint32_t message, std::uint32_t offset, std::size_t length) const {
  constexpr std::uint32_t kSpan = 1 << 16;
  static const std::vector<std::uint8_t> all = [] {
    std::vector<std::uint8_t> bytes(3 * kSpan);
    std::mt19937 random(1);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
  }();
  const std::uint64_t mixed = (secret_ + message) * 0x9e3779b97f4a7c15;
  return std::span(all).subspan((mixed >> 48) + offset % kSpan, length);
}

bool Link::send(std::uint32_t tag, std::uint32_t bytes, std::uint32_t bits, TimePoint now) {
  Sent sent;
  sent.bytes = bytes;
  sent.tolerant = bits % 2 == 1;
  mlt::SendTerms terms;
  mlt::PacketBitmap important;
  if (sent.tolerant) {
    terms.tolerant = true;
    terms.communicator = 1;
    terms.collective = bits / 2 % 2;
    terms.ranks = terms.edges = 4;
    terms.stage = static_cast<std::uint16_t>(bits / 4 % 4);
    terms.collective_bytes = 1 << 20;
    terms.tolerance_ppm = 100'000;
    require(important.reset(mlt::packet_count(bytes, segment())));
    for (std::uint32_t i = 0; i < important.size(); i += 3) important.set(i);
    sent.important = bits / 16 % 2 == 0;
    if (sent.important) terms.important = &important;
  }
  if (bits / 32 % 2 == 1) {
    terms.identity.known = true;
    terms.identity.number = sent_.size();
    terms.identity.channel = static_cast<std::uint8_t>(bits);
  }
  sent.identity = terms.identity;
  const bool awaited = posts_[tag] > messages_[tag].size();
  if (honest_ && !awaited && crowded()) return false;
  const auto message = sends_.endpoint.send(from_, bytes, static_cast<std::int32_t>(tag), terms, now);
  if (!message) return false;
  require(*message == sent_.size());
  if (awaited) --ahead_;
  messages_[tag].push_back(*message);
  sent_.push_back(sent);
  return true;
}

bool Link::post(std::uint32_t tag, std::uint32_t length, TimePoint now) {
  const bool ahead = posts_[tag] >= messages_[tag].size();
  if (honest_ && ahead && crowded()) return false;
  const auto receive = receives_.endpoint.post(to_, static_cast<std::int32_t>(tag), length, now);
  if (!receive) return false;
  require(*receive < receives_.options.max_messages && !open_.contains(*receive));
  if (ahead) ++ahead_;
  open_[*receive] = {tag, posts_[tag]++, std::vector<std::uint8_t>(length)};
  return true;
}

void Link::level(TimePoint now) {
  constexpr std::uint32_t kLong = 64 * 1024;
  for (std::uint32_t tag = 0; tag < kTags; ++tag) {
    while (posts_[tag] < messages_[tag].size() && post(tag, kLong, now)) {
    }
    while (posts_[tag] > messages_[tag].size() && send(tag, 100, 0, now)) {
    }
  }
}

void Link::release_all() {
  for (const std::uint32_t receive : ended_) receives_.endpoint.release(to_, receive);
  ended_.clear();
}

bool Link::over() const {
  if (!open_.empty() || sent_.size() != sends_done_) return false;
  for (std::uint32_t tag = 0; tag < kTags; ++tag) {
    if (posts_[tag] != messages_[tag].size()) return false;
  }
  return true;
}

void Link::arrive(Way way, const Wire& wire, bool marked, bool can_stage, TimePoint now) {
  using Kind = mlt::Placement::Kind;
  mlt::Endpoint& endpoint = way == Way::kForth ? receives_.endpoint : sends_.endpoint;
  const auto arrival = endpoint.on_packet(wire.header, wire.payload, marked, now, can_stage);
  const mlt::Placement& place = arrival.placement;
  if (place.kind == Kind::kDrop) return;
  require(way == Way::kForth && arrival.connection == to_ && place.length == wire.payload);
  if (place.kind == Kind::kParity) {
    require(place.id < receives_.options.max_parity && place.length <= receives_.options.segment);
    const auto header = mlt::parse(wire.header);
    parity_[place.id] = {std::get<mlt::DataHeader>(*header).message, std::get<mlt::DataHeader>(*header).index};
    return;
  }
  std::span<std::uint8_t> to;
  if (place.kind == Kind::kPlace) {
    to = room(place.id, place.offset, place.length);
  } else {
    require(can_stage && place.id < staging_.size());
    require(std::uint64_t{place.offset} + place.length <= staging_[place.id].size());
    to = std::span(staging_[place.id]).subspan(place.offset, place.length);
  }
  std::ranges::copy(content(wire.message, wire.offset, to.size()), to.begin());
}

// Where a part of a message belongs: as much of it as the receive has room for.
std::span<std::uint8_t> Link::room(std::uint32_t receive, std::uint32_t offset, std::uint32_t length) {
  const auto entry = open_.find(receive);
  require(entry != open_.end());
  const std::span<std::uint8_t> memory = entry->second.memory;
  const std::uint64_t end = std::uint64_t{offset} + length;
  require(end <= memory.size() || cuts());
  const std::size_t from = std::min<std::size_t>(offset, memory.size());
  return memory.subspan(from, std::min<std::size_t>(end, memory.size()) - from);
}

void Link::on_event(Way way, const mlt::Endpoint::Event& event, TimePoint now) {
  if (const auto* unstaged = std::get_if<mlt::Endpoint::Unstage>(&event.what)) {
    require(way == Way::kBack);
    unstage(unstaged->receive);
  } else if (std::holds_alternative<mlt::Endpoint::Rebuildable>(event.what)) {
    require(way == Way::kBack);
    rebuild(now);
  } else if (const auto* received = std::get_if<mlt::ReceiveDone>(&event.what)) {
    require(way == Way::kBack);
    on_done(*received);
  } else if (const auto* sent = std::get_if<mlt::SendDone>(&event.what)) {
    require(way == Way::kForth);
    on_done(*sent);
  } else {
    require(way == Way::kForth && !honest_);  // no honest peer is silent for so long
  }
}

void Link::unstage(std::uint32_t receive) {
  std::uint32_t before = 0;
  for (auto part = receiver().staged(receive, 0); part; part = receiver().staged(receive, part->number + 1)) {
    require(part->number >= before && part->buffer < staging_.size());
    before = part->number + 1;
    require(std::uint64_t{part->buffer_offset} + part->length <= staging_[part->buffer].size());
    const std::span<std::uint8_t> to = room(receive, part->offset, part->length);
    std::copy_n(staging_[part->buffer].begin() + part->buffer_offset, to.size(), to.begin());
  }
  receiver().unstaged(receive);
}

// Within its receive, and by an honest peer's parity of that block, each row once.
void Link::rebuild(TimePoint now) {
  while (const auto what = receiver().poll_rebuild()) {
    require(what->count > 0 && what->count <= what->block_packets());
    require(what->bytes <= open_.at(what->receive).memory.size());
    for (const mlt::Rebuild::Missing& missing : std::span(what->missing).first(what->count)) {
      const auto held = parity_.at(missing.buffer);
      require(held == std::pair(what->message, what->block * mlt::kMaxParity + missing.row));
      require(missing.place < what->block_packets());
      const std::uint32_t index = what->index(missing.place);
      const std::uint32_t offset = index * what->segment;
      const std::span<std::uint8_t> to =
          room(what->receive, offset, mlt::packet_bytes(index, what->bytes, what->segment));
      std::ranges::copy(content(what->message, offset, to.size()), to.begin());
    }
    receives_.endpoint.rebuilt(to_, *what, now);
  }
}

// What they say of a message's missing parts must agree with itself.
Link::Ranges Link::missing(const mlt::ReceiveDone& done) {
  Ranges ranges;
  std::uint64_t total = 0;
  std::uint32_t before = 0;
  for (auto range = receiver().missing(done.receive, 0); range;
       range = receiver().missing(done.receive, range->offset + range->length)) {
    require(range->length > 0 && range->offset >= before);
    before = range->offset + range->length;
    require(std::uint64_t{range->offset} + range->length <= done.bytes);
    total += range->length;
    ranges.push_back(*range);
  }
  require(total == done.missing);
  return ranges;
}

void Link::on_done(const mlt::ReceiveDone& done) {
  const auto entry = open_.find(done.receive);
  require(entry != open_.end());
  const Posted& posted = entry->second;
  require(done.bytes <= posted.memory.size() || done.truncated || cuts());
  require(!done.truncated || done.missing == 0);
  if (!done.truncated) {
    const Ranges ranges = missing(done);
    if (honest_) check_message(done, posted, ranges);
  } else if (honest_) {
    require(done.bytes == sent_.at(messages_[posted.tag].at(posted.seq)).bytes);
    require(done.bytes > posted.memory.size() && !cuts());
  }
  open_.erase(entry);
  ++received_;
  ended_.push_back(done.receive);
}

void Link::check_message(const mlt::ReceiveDone& done, const Posted& posted, const Ranges& missing) {
  const std::uint32_t message = messages_[posted.tag].at(posted.seq);
  const Sent& sent = sent_.at(message);
  require(done.bytes == sent.bytes && receiver().opened(done.receive).identity == sent.identity);
  const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(done.bytes, posted.memory.size()));
  const std::span<const std::uint8_t> memory = posted.memory;
  std::uint32_t from = 0;
  const auto same_up_to = [&](std::uint32_t to) {
    to = std::min(to, bytes);
    if (from < to) require(std::ranges::equal(memory.subspan(from, to - from), content(message, from, to - from)));
  };
  for (const mlt::Receiver::Range& range : missing) {
    same_up_to(range.offset);
    from = range.offset + range.length;
  }
  same_up_to(bytes);
  if (done.missing > 0) check_losses(done, sent, missing);
}

void Link::check_losses(const mlt::ReceiveDone& done, const Sent& sent, const Ranges& missing) {
  if (mlt::gives_up(receives_.options.recovery)) return;
  require(sent.tolerant && receives_.options.recovery == nullptr);
  require(receiver().tolerates(done.receive));
  std::uint32_t lost = 0;
  for (const mlt::Receiver::Range& range : missing) {
    for (std::uint32_t i = range.offset / segment(); i * segment() < range.offset + range.length; ++i) {
      ++lost;
      require(!sent.important || i % 3 != 0);
    }
  }
  require(lost <= mlt::message_cap_packets(mlt::packet_count(done.bytes, segment())));
}

void Link::on_done(const mlt::SendDone& done) {
  require(done.message < sent_.size() && !sent_[done.message].done);
  Sent& sent = sent_[done.message];
  sent.done = true;
  ++sends_done_;
  const mlt::PacketBitmap& delivered = sends_.endpoint.sender(from_).delivered(done.message);
  require(delivered.size() == mlt::packet_count(sent.bytes, segment()) && delivered.missing() == done.missing_packets);
  const bool may_miss = sent.tolerant || mlt::gives_up(sends_.options.recovery);
  require(!honest_ || may_miss || done.missing_packets == 0);
}

}  // namespace clustar::fuzz
