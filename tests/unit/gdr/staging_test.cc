// The rules of Staging one by one, and thousands of random histories beside a model that moves the bytes.
#include "gdr/core/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::gdr {
namespace {

using Direction = Staging::Direction;
using Sizes = std::vector<std::size_t>;

Staging::Options options(Direction direction, std::uint32_t copies = 8) { return {direction, 100, 8, copies}; }

// All copies that may begin.
std::vector<Staging::Copy> begin_all(Staging& staging) {
  std::vector<Staging::Copy> copies;
  while (const auto copy = staging.next_copy()) {
    staging.begun(*copy);
    copies.push_back(*copy);
  }
  return copies;
}

TEST(GdrStaging, ASendIsCopiedThenHandedThenFree) {
  Staging staging(options(Direction::kSend));
  const auto id = staging.open(Sizes{250});
  ASSERT_TRUE(id);
  EXPECT_FALSE(staging.next_copy()) << "there is no arena yet";
  EXPECT_TRUE(staging.waiting_for_slices());
  staging.arena_is(4);
  const auto copies = begin_all(staging);
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_EQ(copies[2].offset, 200u);
  EXPECT_EQ(copies[2].bytes, 50u);
  for (const auto& copy : copies) {
    EXPECT_FALSE(staging.next_for_network());
    staging.copied(copy);
  }
  EXPECT_EQ(staging.next_for_network(), id);
  staging.handed(*id);
  EXPECT_EQ(staging.held_slices(), 3u);
  EXPECT_FALSE(staging.complete(*id));
  staging.network_done(*id);
  EXPECT_TRUE(staging.complete(*id));
  EXPECT_EQ(staging.held_slices(), 0u);
  staging.release(*id);
  EXPECT_EQ(staging.open_messages(), 0u);
}

TEST(GdrStaging, AReceiveThatIsLongerThanItsMessageCopiesTheMessage) {
  Staging staging(options(Direction::kReceive));
  staging.arena_is(4);
  const auto id = staging.open(Sizes{400});
  ASSERT_EQ(staging.next_for_network(), id);
  EXPECT_FALSE(staging.next_copy());
  staging.handed(*id);
  staging.network_done(*id, Sizes{130});
  EXPECT_EQ(staging.held_slices(), 2u) << "what nothing came for is free at once";
  const auto copies = begin_all(staging);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].bytes + copies[1].bytes, 130u);
  staging.copied(copies[1]);
  EXPECT_EQ(staging.held_slices(), 1u) << "each copy frees its slice, in any order";
  EXPECT_FALSE(staging.complete(*id));
  staging.copied(copies[0]);
  EXPECT_TRUE(staging.complete(*id));
}

TEST(GdrStaging, MessagesWithoutBytesNeedNoArenaButTheirTurn) {
  Staging staging(options(Direction::kSend));
  const auto empty = staging.open(Sizes{0});
  EXPECT_EQ(staging.next_for_network(), empty);
  const auto staged = staging.open(Sizes{100});
  const auto behind = staging.open(Sizes{0, 0});
  staging.handed(*empty);
  EXPECT_FALSE(staging.next_for_network()) << "it is the turn of the one that is not copied yet";
  staging.arena_is(4);
  staging.copied(begin_all(staging).at(0));
  EXPECT_EQ(staging.next_for_network(), staged);
  staging.handed(*staged);
  EXPECT_EQ(staging.next_for_network(), behind);
  staging.network_done(*empty);
  EXPECT_TRUE(staging.complete(*empty));
}

TEST(GdrStaging, SlicesAreForTheOldestThatWaits) {
  Staging staging(options(Direction::kReceive));
  staging.arena_is(4);
  const auto first = staging.open(Sizes{300});
  const auto large = staging.open(Sizes{200});
  const auto small = staging.open(Sizes{50});
  EXPECT_TRUE(staging.waiting_for_slices());
  EXPECT_EQ(staging.held_slices(), 3u) << "the small one would fit, and waits behind the large one";
  staging.handed(*first);
  EXPECT_FALSE(staging.next_for_network());
  staging.network_done(*first, Sizes{0});
  EXPECT_TRUE(staging.complete(*first));
  EXPECT_EQ(staging.next_for_network(), large);
  staging.handed(*large);
  EXPECT_EQ(staging.next_for_network(), small);
}

TEST(GdrStaging, AMessageOfMoreThanTheArenaWaitsUntilALargerOneIsThereWhichStays) {
  Staging staging(options(Direction::kReceive));
  staging.arena_is(4);
  const auto first = staging.open(Sizes{100});
  EXPECT_EQ(staging.slices_for(Sizes{500, 450, 0, 1}), 11u);
  const auto large = staging.open(Sizes{500, 450});
  const auto after = staging.open(Sizes{100});
  staging.handed(*first);
  EXPECT_FALSE(staging.next_for_network());
  staging.network_done(*first, Sizes{0});
  EXPECT_EQ(staging.held_slices(), 0u);
  EXPECT_TRUE(staging.waiting_for_slices()) << "those behind the large one wait for it";
  EXPECT_FALSE(staging.next_for_network());
  staging.arena_is(11);
  ASSERT_EQ(staging.next_for_network(), large);
  EXPECT_EQ(staging.place(*large, 0), 0u);
  EXPECT_EQ(staging.place(*large, 1), 500u);
  staging.handed(*large);
  ASSERT_EQ(staging.next_for_network(), after) << "there is room beside the large one";
  EXPECT_EQ(staging.place(*after, 0), 1000u);
  staging.handed(*after);
  staging.network_done(*large, Sizes{0, 0});
  staging.network_done(*after, Sizes{0});
  EXPECT_EQ(staging.slices(), 11u);
}

TEST(GdrStaging, NoMoreCopiesThanAllowedAreUnderWay) {
  Staging staging(options(Direction::kSend, 3));
  staging.arena_is(8);
  staging.open(Sizes{500});
  staging.open(Sizes{200});
  auto copies = begin_all(staging);
  ASSERT_EQ(copies.size(), 3u);
  staging.copied(copies[1]);
  copies = begin_all(staging);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].offset, 300u) << "the older message first";
}

TEST(GdrStaging, WhatIsOpenIsBounded) {
  Staging staging(options(Direction::kSend));
  std::vector<Staging::Id> open;
  while (const auto id = staging.open(Sizes{0})) open.push_back(*id);
  EXPECT_EQ(open.size(), 8u);
  staging.handed(open.front());
  staging.network_done(open.front());
  staging.release(open.front());
  EXPECT_TRUE(staging.open(Sizes{0}));
}

TEST(GdrStaging, AfterTheNetworkFailedWhatItFilledStillCompletes) {
  Staging staging(options(Direction::kReceive));
  staging.arena_is(4);
  const auto filled = staging.open(Sizes{100});
  const auto lost = staging.open(Sizes{100});
  const auto held = staging.open(Sizes{100});
  staging.handed(*filled);
  staging.handed(*lost);
  staging.network_done(*filled, Sizes{100});
  staging.network_failed(*lost);
  staging.close();
  EXPECT_TRUE(staging.broken(*lost));
  EXPECT_TRUE(staging.broken(*held)) << "it was not with the network yet";
  EXPECT_FALSE(staging.open(Sizes{100}));
  EXPECT_FALSE(staging.next_for_network());
  staging.copied(begin_all(staging).at(0));
  EXPECT_TRUE(staging.complete(*filled));
  EXPECT_EQ(staging.held_slices(), 2u) << "the network may still write there";
}

TEST(GdrStaging, AfterAFailureNothingBegins) {
  for (const Direction direction : {Direction::kSend, Direction::kReceive}) {
    Staging staging(options(direction, 1));
    staging.arena_is(8);
    const auto done = staging.open(Sizes{0});
    staging.handed(*done);
    staging.network_done(*done, Sizes{0});
    const auto one = staging.open(Sizes{300});
    if (direction == Direction::kReceive) {
      staging.handed(*one);
      staging.network_done(*one, Sizes{300});
    }
    const auto copies = begin_all(staging);
    ASSERT_EQ(copies.size(), 1u);
    staging.fail();
    EXPECT_TRUE(staging.complete(*done));
    EXPECT_TRUE(staging.broken(*one));
    staging.copied(copies[0]);
    EXPECT_EQ(staging.copies_under_way(), 0u);
    EXPECT_FALSE(staging.next_copy());
    EXPECT_FALSE(staging.next_for_network());
    EXPECT_FALSE(staging.complete(*one));
    EXPECT_FALSE(staging.open(Sizes{100}));
  }
}

// A device, an arena and a network that do what Staging says, at times of their own: every message has bytes of its
// own, copies and messages end in any order that is legal, and what must arrive is known beforehand.
class History {
 public:
  History(std::uint64_t seed, Direction direction)
      : random_(seed),
        direction_(direction),
        options_{direction, 1 + random_.below(60), static_cast<std::uint32_t>(1 + random_.below(12)),
                 static_cast<std::uint32_t>(1 + random_.below(5))},
        slices_(static_cast<std::uint32_t>(1 + random_.below(12))),
        staging_(options_),
        ready_(slices_),
        breaks_at_(random_.below(4) == 0 ? random_.below(300) : ~std::uint64_t{0}),
        closes_at_(random_.below(3) == 0 ? random_.below(300) : ~std::uint64_t{0}) {}

  void run() {
    const std::uint64_t wanted = 10 + random_.below(60);
    for (std::uint64_t step = 0; closed_ ? !gone() : posted_ < wanted || !messages_.empty(); ++step) {
      ASSERT_LT(step, 200'000u) << "no progress: " << messages_.size() << " messages are open";
      if (step == breaks_at_) {
        staging_.fail();
        failed_ = true;
      }
      if (step == closes_at_ && !failed_) network_ends();
      const std::uint64_t what = random_.below(10);
      if (what < 3 && posted_ < wanted) post();
      if (what < 6) serve();
      if (what == 6 || what == 7) end_copy();
      if (what >= 8) network();
      check();
      if (::testing::Test::HasFatalFailure()) return;
      if (failed_ && flights_.empty()) return;
    }
    ASSERT_FALSE(staging_.waiting_for_slices());
    if (closed_) return;
    ASSERT_EQ(staging_.held_slices(), 0u);
    ASSERT_EQ(staging_.open_messages(), 0u);
  }

 private:
  struct Message {
    std::uint64_t order;
    std::vector<std::vector<std::uint8_t>> device;
    std::vector<std::vector<std::uint8_t>> expected;  // of a receive: what the device must have at the end
    Sizes came;
    bool handed = false;
    bool broken = false;  // by the end of the network
  };

  std::vector<std::uint8_t> bytes(std::size_t count) {
    std::vector<std::uint8_t> out(count);
    for (auto& byte : out) byte = static_cast<std::uint8_t>(1 + random_.below(255));
    return out;
  }

  void post() {
    Message message{posted_, {}, {}, {}, false, false};
    Sizes staged(1 + random_.below(random_.below(3) == 0 ? Staging::kMaxParts : 1));
    for (std::size_t& size : staged) {
      const std::size_t most = options_.slice_bytes * (random_.below(6) == 0 ? 2 * slices_ : 3);
      size = random_.below(5) == 0 ? 0 : random_.below(most + 1);
      message.device.push_back(bytes(size));
    }
    ready_ = std::max(ready_, static_cast<std::uint32_t>(staging_.slices_for(staged)));
    const auto id = staging_.open(staged);
    ASSERT_EQ(id.has_value(), !failed_ && !closed_ && messages_.size() < options_.max_messages);
    if (!id) return;
    ASSERT_FALSE(messages_.contains(*id));
    ready_ += static_cast<std::uint32_t>(random_.below(8) == 0 ? random_.below(3) : 0);
    message.expected = message.device;
    messages_.emplace(*id, std::move(message));
    ++posted_;
  }

  void serve() {
    if (staging_.slices() < ready_ && staging_.held_slices() == 0) {
      for (const auto& [id, message] : messages_)
        ASSERT_FALSE(message.handed && held(message)) << "it lies in the arena";
      ASSERT_TRUE(flights_.empty());
      arena_.assign(ready_ * options_.slice_bytes, 0);
      staging_.arena_is(ready_);
    }
    // Now and then the device has no room.
    while (random_.below(5) != 0) {
      const auto copy = staging_.next_copy();
      if (!copy) break;
      ASSERT_LE(copy->bytes, options_.slice_bytes);
      ASSERT_GT(copy->bytes, 0u);
      ASSERT_LE(copy->arena + copy->bytes, arena_.size());
      ASSERT_LE(copy->offset + copy->bytes, messages_.at(copy->message).device[copy->part].size());
      staging_.begun(*copy);
      flights_.push_back(*copy);
    }
    while (random_.below(5) != 0) {
      const auto id = staging_.next_for_network();
      if (!id) break;
      Message& message = messages_.at(*id);
      ASSERT_EQ(message.order, handed_++) << "in the order of posting";
      for (std::uint32_t i = 0; i < message.device.size(); ++i) {
        if (direction_ == Direction::kReceive) continue;
        ASSERT_EQ(from_arena(*id, i, message.device[i].size()), message.device[i]);
      }
      staging_.handed(*id);
      message.handed = true;
    }
  }

  static bool held(const Message& message) {
    return std::any_of(message.device.begin(), message.device.end(), [](const auto& part) { return !part.empty(); }) &&
           message.came.empty();
  }

  // Some of what the network has fails, and it takes no more. The rest, and what it filled, goes on.
  void network_ends() {
    for (auto& [id, message] : messages_) {
      message.broken = !message.handed || (message.came.empty() && random_.below(2) == 0);
      if (message.broken && message.handed) staging_.network_failed(id);
    }
    staging_.close();
    closed_ = true;
    for (const auto& [id, message] : messages_) ASSERT_EQ(staging_.broken(id), message.broken);
  }

  // All that goes on has completed, and no copy is under way.
  bool gone() const {
    return flights_.empty() &&
           std::all_of(messages_.begin(), messages_.end(), [](const auto& message) { return message.second.broken; });
  }

  std::vector<std::uint8_t> from_arena(Staging::Id id, std::uint32_t part, std::size_t count) const {
    if (count == 0) return {};
    const auto begin = arena_.begin() + static_cast<long>(staging_.place(id, part));
    return {begin, begin + static_cast<long>(count)};
  }

  void end_copy() {
    if (flights_.empty()) return;
    std::swap(flights_[random_.below(flights_.size())], flights_.back());
    const Staging::Copy copy = flights_.back();
    flights_.pop_back();
    auto& device = messages_.at(copy.message).device[copy.part];
    if (direction_ == Direction::kSend) {
      std::copy_n(device.begin() + static_cast<long>(copy.offset), copy.bytes,
                  arena_.begin() + static_cast<long>(copy.arena));
    } else {
      std::copy_n(arena_.begin() + static_cast<long>(copy.arena), copy.bytes,
                  device.begin() + static_cast<long>(copy.offset));
    }
    staging_.copied(copy);
  }

  // Some message that it has is done.
  void network() {
    std::vector<Staging::Id> with;
    for (const auto& [id, message] : messages_) {
      if (message.handed && !message.broken && message.came.empty()) with.push_back(id);
    }
    if (with.empty() || failed_) return;
    const Staging::Id id = with[random_.below(with.size())];
    Message& message = messages_.at(id);
    for (std::uint32_t i = 0; i < message.device.size(); ++i) {
      const std::size_t size = message.device[i].size();
      if (direction_ == Direction::kSend) {
        ASSERT_EQ(from_arena(id, i, size), message.device[i]) << "it was overwritten while the network had it";
      }
      const std::size_t came = direction_ == Direction::kSend || random_.below(2) == 0 ? size : random_.below(size + 1);
      message.came.push_back(came);
      if (direction_ == Direction::kSend || size == 0) continue;
      const auto filled = bytes(came);
      std::copy(filled.begin(), filled.end(), arena_.begin() + static_cast<long>(staging_.place(id, i)));
      std::copy(filled.begin(), filled.end(), message.expected[i].begin());
    }
    staging_.network_done(id, direction_ == Direction::kSend ? Sizes{} : message.came);
  }

  void check() {
    ASSERT_LE(staging_.held_slices(), staging_.slices());
    ASSERT_LE(staging_.copies_under_way(), options_.max_copies);
    ASSERT_EQ(staging_.copies_under_way(), flights_.size());
    for (auto it = messages_.begin(); it != messages_.end();) {
      const bool complete = staging_.complete(it->first);
      if (failed_ && !complete) {
        ASSERT_TRUE(staging_.broken(it->first));
      }
      ASSERT_FALSE(complete && it->second.broken);
      if (!complete) {
        ++it;
        continue;
      }
      ASSERT_FALSE(it->second.came.empty());
      ASSERT_EQ(it->second.device, it->second.expected);
      staging_.release(it->first);
      it = messages_.erase(it);
    }
  }

  Rng random_;
  const Direction direction_;
  const Staging::Options options_;
  const std::uint32_t slices_;  // of the arena at first
  Staging staging_;
  std::uint32_t ready_;  // slices of the largest arena
  const std::uint64_t breaks_at_;
  const std::uint64_t closes_at_;
  bool failed_ = false;
  bool closed_ = false;
  std::uint64_t posted_ = 0;
  std::uint64_t handed_ = 0;
  std::vector<std::uint8_t> arena_;
  std::map<Staging::Id, Message> messages_;
  std::vector<Staging::Copy> flights_;
};

TEST(GdrStaging, ThousandsOfHistoriesMoveEveryByteOnceAndEnd) {
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(seed);
    History(seed, seed % 2 == 0 ? Direction::kSend : Direction::kReceive).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace clustar::gdr
