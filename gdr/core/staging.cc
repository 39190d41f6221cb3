#include "gdr/core/staging.h"

#include <algorithm>
#include <cassert>

namespace clustar::gdr {

Staging::Staging(const Options& options) : options_(options), messages_(options.max_messages) {
  assert(options.slice_bytes > 0 && options.max_messages > 0 && options.max_copies > 0);
  for (Id id = options.max_messages; id-- > 0;) free_.push_back(id);
}

std::uint32_t Staging::slices_of(std::size_t bytes) const {
  return static_cast<std::uint32_t>((bytes + options_.slice_bytes - 1) / options_.slice_bytes);
}

std::uint32_t Staging::needs(const Message& message) const {
  std::uint32_t slices = 0;
  for (std::uint32_t i = 0; i < message.parts; ++i) slices += slices_of(message.part[i].staged);
  return slices;
}

std::uint64_t Staging::slices_for(std::span<const std::size_t> staged) const {
  std::uint64_t slices = 0;
  for (const std::size_t bytes : staged) {
    slices += bytes / options_.slice_bytes + (bytes % options_.slice_bytes == 0 ? 0 : 1);
  }
  return slices;
}

std::optional<Staging::Id> Staging::open(std::span<const std::size_t> staged) {
  assert(!staged.empty() && staged.size() <= kMaxParts);
  if (free_.empty() || closed_) return std::nullopt;
  const Id id = free_.back();
  free_.pop_back();
  Message& message = messages_[id];
  message = {};
  message.state = State::kUnplaced;
  message.order = order_++;
  message.parts = static_cast<std::uint32_t>(staged.size());
  for (std::size_t i = 0; i < staged.size(); ++i) message.part[i].staged = staged[i];
  unplaced_.push_back(id);
  unhanded_.push_back(id);
  place_waiting();
  return id;
}

void Staging::arena_is(std::uint32_t slices) {
  assert(held_ == 0);
  used_.assign(slices, 0);
  place_waiting();
}

void Staging::place_waiting() {
  while (!failed_ && !unplaced_.empty()) {
    const Id id = unplaced_.front();
    Message& message = messages_[id];
    const std::uint32_t count = needs(message);
    if (count > 0) {
      const auto run = find_run(count);
      if (!run) return;
      std::uint32_t slice = *run;
      for (std::uint32_t i = 0; i < message.parts; ++i) {
        Part& part = message.part[i];
        part.slice = slice;
        slice += slices_of(part.staged);
        part.held_to = slice;
      }
      std::fill_n(used_.begin() + *run, count, std::uint8_t{1});
      held_ += count;
    }
    unplaced_.pop_front();
    message.state = State::kPlaced;
    if (options_.direction == Direction::kSend) want_copies(id);
  }
}

std::optional<std::uint32_t> Staging::find_run(std::uint32_t slices) const {
  std::uint32_t length = 0;
  for (std::uint32_t i = 0; i < used_.size(); ++i) {
    length = used_[i] == 0 ? length + 1 : 0;
    if (length == slices) return i + 1 - slices;
  }
  return std::nullopt;
}

void Staging::give_back(std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = first; i < first + count; ++i) {
    assert(used_[i] == 1);
    used_[i] = 0;
  }
  held_ -= count;
}

void Staging::give_back_all(Message& message) {
  for (std::uint32_t i = 0; i < message.parts; ++i) {
    Part& part = message.part[i];
    give_back(part.slice, part.held_to - part.slice);
    part.held_to = part.slice;
  }
}

// All that is staged of a send, what came of a receive.
void Staging::want_copies(Id id) {
  Message& message = messages_[id];
  for (std::uint32_t i = 0; i < message.parts; ++i) {
    if (options_.direction == Direction::kSend) message.part[i].to_copy = message.part[i].staged;
    message.uncopied += message.part[i].to_copy;
  }
  if (message.uncopied == 0) return;
  const auto older = [&](Id one, Id other) { return messages_[one].order < messages_[other].order; };
  copying_.insert(std::upper_bound(copying_.begin(), copying_.end(), id, older), id);
}

std::optional<Staging::Copy> Staging::next_copy() {
  if (failed_ || copying_.empty() || copies_ == options_.max_copies) return std::nullopt;
  const Id id = copying_.front();
  const Message& message = messages_[id];
  for (std::uint32_t i = 0; i < message.parts; ++i) {
    const Part& part = message.part[i];
    if (part.begun == part.to_copy) continue;
    return Copy{id, i, part.begun, part.slice * options_.slice_bytes + part.begun,
                std::min(options_.slice_bytes, part.to_copy - part.begun)};
  }
  return std::nullopt;
}

void Staging::begun(const Copy& copy) {
  Message& message = messages_[copy.message];
  message.part[copy.part].begun += copy.bytes;
  ++message.under_way;
  ++copies_;
  const auto parts = std::span(message.part).first(message.parts);
  if (std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.begun == part.to_copy; })) {
    assert(copying_.front() == copy.message);
    copying_.erase(copying_.begin());
  }
}

void Staging::copied(const Copy& copy) {
  Message& message = messages_[copy.message];
  --message.under_way;
  --copies_;
  message.uncopied -= copy.bytes;
  if (message.state != State::kDraining) return;
  give_back(static_cast<std::uint32_t>(copy.arena / options_.slice_bytes), 1);
  if (message.uncopied == 0) message.state = State::kComplete;
  place_waiting();
}

std::optional<Staging::Id> Staging::next_for_network() {
  if (failed_ || unhanded_.empty()) return std::nullopt;
  const Id id = unhanded_.front();
  const Message& message = messages_[id];
  if (message.state != State::kPlaced || message.uncopied > 0) return std::nullopt;
  return id;
}

void Staging::handed(Id id) {
  assert(unhanded_.front() == id);
  unhanded_.pop_front();
  messages_[id].state = State::kWithNetwork;
}

std::size_t Staging::place(Id message, std::uint32_t part) const {
  return messages_[message].part[part].slice * options_.slice_bytes;
}

void Staging::network_done(Id id, std::span<const std::size_t> bytes) {
  Message& message = messages_[id];
  assert(message.state == State::kWithNetwork);
  if (failed_) {
    message.state = State::kBroken;
    return;
  }
  if (options_.direction == Direction::kReceive) {
    for (std::uint32_t i = 0; i < message.parts; ++i) {
      Part& part = message.part[i];
      part.to_copy = std::min(part.staged, i < bytes.size() ? bytes[i] : 0);
      const std::uint32_t filled = part.slice + slices_of(part.to_copy);
      give_back(filled, part.held_to - filled);
      part.held_to = filled;
    }
    want_copies(id);
  } else {
    give_back_all(message);
  }
  message.state = message.uncopied > 0 ? State::kDraining : State::kComplete;
  place_waiting();
}

void Staging::network_failed(Id id) {
  assert(messages_[id].state == State::kWithNetwork);
  messages_[id].state = State::kBroken;
}

void Staging::close() {
  closed_ = true;
  while (!unplaced_.empty()) unplaced_.pop_front();
  while (!unhanded_.empty()) messages_[unhanded_.pop_front()].state = State::kBroken;
  std::erase_if(copying_, [&](Id id) { return messages_[id].state == State::kBroken; });
}

void Staging::fail() {
  close();
  failed_ = true;
  for (Message& message : messages_) {
    if (message.state != State::kFree && message.state != State::kComplete) message.state = State::kBroken;
  }
  copying_.clear();
}

bool Staging::broken(Id message) const { return messages_[message].state == State::kBroken; }

void Staging::release(Id id) {
  Message& message = messages_[id];
  assert((message.state == State::kComplete || message.state == State::kBroken) && message.under_way == 0);
  message.state = State::kFree;
  free_.push_back(id);
}

}  // namespace clustar::gdr
