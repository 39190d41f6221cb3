// Messages of GPU memory that a network carries from and to an arena of host memory: what is copied when, what the
// network gets when, and where in the arena. Pure: names copies and messages, moves nothing, knows no device.
//
// The arena is cut into slices. A message holds a run of neighbouring slices for all its staged bytes, because the
// network below takes a message whole; it is copied slice by slice, several copies at a time.
//   send:     a run -> copies from the device -> to the network -> the network is done -> the slices are free
//   receive:  a run -> to the network -> filled -> copies to the device, each of which frees its slice
//
// No deadlock among messages that share slices, by three rules: slices are given in the order of open(), to the oldest
// that waits or to none; a message gets all that it needs at once or nothing; and one that needs more than the whole
// arena waits until nothing is held: then the owner puts a larger arena in its place, which it has ready before it
// opens such a message. So a message that holds slices waits for copies and for the network only. (A network that fills
// a younger message first, and will not begin an older one before, is out of reach: the same peer would stop at any
// other bound on outstanding messages.)
//
// Messages go to the network in the order of open(), too: those without staged bytes wait their turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/ring.h"

namespace clustar::gdr {

class Staging {
 public:
  static constexpr std::size_t kMaxParts = 8;
  enum class Direction : std::uint8_t { kSend, kReceive };
  struct Options {
    Direction direction = Direction::kSend;
    std::size_t slice_bytes = 0;     // above 0
    std::uint32_t max_messages = 0;  // that are open, above 0
    std::uint32_t max_copies = 0;    // that are under way, above 0
  };
  using Id = std::uint32_t;  // below max_messages
  struct Copy {
    Id message = 0;
    std::uint32_t part = 0;
    std::size_t offset = 0;  // in the part
    std::size_t arena = 0;   // in the arena
    std::size_t bytes = 0;   // above 0, at most a slice
  };

  explicit Staging(const Options& options);

  // A message of 1 .. kMaxParts parts; of each, how many bytes are staged (0: none, or it is in host memory); of at
  // most as many slices_for() as the largest arena that the owner has. Nothing: max_messages are open, or it was closed
  // or failed.
  std::optional<Id> open(std::span<const std::size_t> staged);
  std::uint64_t slices_for(std::span<const std::size_t> staged) const;
  // The arena has so many slices now; before that, none. Only while held_slices() is 0.
  void arena_is(std::uint32_t slices);

  // What to do next. The owner asks again after each answer, until both say nothing.
  std::optional<Copy> next_copy();
  void begun(const Copy& copy);                             // what next_copy() named
  std::optional<Id> next_for_network();                     // all its parts have their place, and of a send their bytes
  void handed(Id message);                                  // what next_for_network() named
  std::size_t place(Id message, std::uint32_t part) const;  // in the arena, bytes; once it is for the network

  // What happened. Copies end in any order.
  void copied(const Copy& copy);
  // Bytes per part of a receive that the network filled, at most what is staged; nothing of a send.
  void network_done(Id message, std::span<const std::size_t> bytes = {});
  // Of a message that was handed: it ends so, and keeps its slices, where the network may still write.
  void network_failed(Id message);
  // The network takes no more: what was not handed is broken, what was goes on.
  void close();
  // Nothing begins any more; no message completes but those that have. Copies under way still end by copied().
  void fail();

  bool complete(Id message) const { return messages_[message].state == State::kComplete; }
  bool broken(Id message) const;  // it will never be complete
  void release(Id message);       // complete or broken, and no copy of it under way: the id may be given out again

  bool failed() const { return failed_; }
  bool unhanded() const { return !unhanded_.empty(); }  // messages wait for their turn
  std::size_t open_messages() const { return messages_.size() - free_.size(); }
  std::uint32_t copies_under_way() const { return copies_; }
  std::uint32_t slices() const { return static_cast<std::uint32_t>(used_.size()); }
  std::uint32_t held_slices() const { return held_; }
  bool waiting_for_slices() const { return !unplaced_.empty(); }

 private:
  enum class State : std::uint8_t { kFree, kUnplaced, kPlaced, kWithNetwork, kDraining, kComplete, kBroken };
  struct Part {
    std::size_t staged = 0;
    std::size_t to_copy = 0;    // of `staged`
    std::size_t begun = 0;      // bytes whose copies began
    std::uint32_t slice = 0;    // its first one
    std::uint32_t held_to = 0;  // slices of it beyond this are free again
  };
  struct Message {
    State state = State::kFree;
    std::uint64_t order = 0;
    std::uint32_t parts = 0;
    std::uint32_t under_way = 0;
    std::size_t uncopied = 0;  // bytes whose copies have not ended
    std::array<Part, kMaxParts> part{};
  };

  std::uint32_t slices_of(std::size_t bytes) const;
  std::uint32_t needs(const Message& message) const;
  void place_waiting();
  std::optional<std::uint32_t> find_run(std::uint32_t slices) const;
  void give_back(std::uint32_t first, std::uint32_t count);
  void give_back_all(Message& message);
  void want_copies(Id message);

  const Options options_;
  std::vector<std::uint8_t> used_;  // by slice
  std::uint32_t held_ = 0;
  std::uint32_t copies_ = 0;
  std::uint64_t order_ = 0;
  bool closed_ = false;
  bool failed_ = false;
  std::vector<Message> messages_;
  std::vector<Id> free_;
  Ring<Id> unplaced_;        // wait for slices, oldest first
  Ring<Id> unhanded_;        // wait for the network, oldest first
  std::vector<Id> copying_;  // have copies that did not begin, oldest first
};

}  // namespace clustar::gdr
