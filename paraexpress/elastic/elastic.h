// Ranks that join and leave between operations: an engine per membership, and the agreements that lead from one to the
// next.
//
// All ranks call resize() at the same place among their operations, as in elastic training (torchelastic, Elastic
// Horovod): the number of ranks and the own one are then known where the program divides by them or cuts by them. Where
// nobody joins or leaves it costs an all-reduce of a few bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "paraexpress/core/membership.h"
#include "paraexpress/engine/engine.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::rendezvous {
class Door;
}

namespace clustar::paraexpress {

struct ElasticOptions {
  // `rank` and `ranks` are those of the first membership. To resize: no helpers, and regions empty or probed, as a
  // map's numbers would change. And a stall time of kLeastStall or more.
  EngineOptions engine{};
  // HOST:PORT, where newcomers knock: rank 0 listens there from its first resize() on. Empty: nobody can join.
  std::string door{};
  // How long newcomers may hold up the members in one resize(), in all; half the stall time if that is less.
  Duration patience = std::chrono::seconds(5);
};

// Newcomers make one member late: by half the stall time at most, and a second for farewells.
inline constexpr Duration kLeastStall = std::chrono::seconds(5);
// Tried at once.
inline constexpr std::uint32_t kMostNewcomers = 16;

struct Resized {
  Place place{};
  std::uint32_t left = 0, joined = 0;
  // Newcomers that were tried in vain, as one of them did not come through; those that live knock again. After it one
  // is tried at a time, until one got in: then a silent one keeps nobody else out.
  std::uint32_t refused = 0;
  // Why rank 0 could not open its door: nobody can join, it is tried again at the next resize(). Of rank 0 alone.
  std::string shut{};
};

// Thread rule: any thread; operations are started and ended before resize() or leave() is called, and those of the next
// membership after it.
class Elastic {
 public:
  // Around the first engine, of those options.
  static std::unique_ptr<Elastic> around(transport::Transport& transport, std::unique_ptr<Engine> engine,
                                         ElasticOptions options);
  // Knocks at these addresses, in turn, until the members let it in: `wait` at most. Of the engine's options device,
  // channel and helpers count; the others are the members'. `options.door` counts if it becomes rank 0.
  static Result<std::unique_ptr<Elastic>> join(transport::Transport& transport, ElasticOptions options,
                                               const std::vector<std::string>& addresses, Duration wait);
  ~Elastic();
  Elastic(const Elastic&) = delete;
  Elastic& operator=(const Elastic&) = delete;

  // Of the membership as it is: another one after resize().
  std::shared_ptr<Engine> engine() const;
  Place place() const;
  // For this membership and those behind it.
  Result<void> add_memory(void* memory, std::size_t bytes);

  // Blocks until all members have called it or leave(), each wait in it for the stall time at most. After an error the
  // engine is of no further use.
  Result<Resized> resize();
  // In the place of resize(): the others go on without this rank. When it returns this process may end.
  Result<void> leave();
  // Whether its options allow resize() and leave().
  Result<void> may_change() const;
  // As the engine's.
  void close();

 private:
  Elastic(transport::Transport& transport, ElasticOptions options, std::shared_ptr<Engine> engine, const Place& place);

  Result<Resized> change(bool leaves);
  Result<Resized> go(bool leaves);
  Result<void> step(MembershipRound& round);
  // Empty, or why it stays shut.
  std::string open_door();
  // Memory that the engine of now can use, until the next engine.
  Result<std::byte*> room(std::size_t bytes);
  Result<void> agree(MembershipRound& round);
  Result<void> lend(MembershipRound& round);
  Result<void> build_without(MembershipRound& round);
  Result<void> build_with(MembershipRound& round);
  // What the members' all-gather gives: rows of all, this one's with `mine` in it.
  Result<std::byte*> gather(std::span<const std::byte> mine, std::size_t room_for_more);
  Result<std::vector<std::byte>> gather_with(const MembershipRound& round, std::span<const std::byte> mine);
  // `until`: of all of it.
  Result<std::shared_ptr<Engine>> make(const Place& place, const AllGather& all_gather, Waits::Instant until);
  Duration patience() const { return std::min(options_.patience, options_.engine.stall / 2); }
  void take(std::shared_ptr<Engine> engine, const Place& place);
  void answer_newcomers(const MembershipRound& round);

  transport::Transport& transport_;
  const ElasticOptions options_;
  std::mutex changing_{};  // of what only changes use
  std::unique_ptr<rendezvous::Door> door_{};
  std::shared_ptr<Engine> next_{};  // built, not yet voted for
  std::vector<std::unique_ptr<std::byte[]>> rooms_{};
  std::size_t room_bytes_ = 0;
  std::uint32_t at_once_ = kMostNewcomers;
  Waits::Instant newcomers_until_{};  // all that they do in this resize()
  mutable std::mutex mutex_{};        // of what follows
  std::shared_ptr<Engine> engine_{};
  Place place_{};
  std::vector<std::pair<void*, std::size_t>> memory_{};
  std::optional<Error> ended_{};
};

}  // namespace clustar::paraexpress
