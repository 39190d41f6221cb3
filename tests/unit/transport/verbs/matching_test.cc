// Both halves of the verbs transport's matching protocol against each other over simulated queue pairs: each keeps its
// own order, none waits for another, and they fail, in every interleaving that a seed draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "transport/base/rng.h"
#include "transport/verbs/core/posted.h"
#include "transport/verbs/core/recv_matcher.h"
#include "transport/verbs/core/reminder.h"
#include "transport/verbs/core/send_matcher.h"
#include "transport/verbs/core/stripes.h"

namespace clustar::transport::verbs {
namespace {

constexpr std::uint32_t kEagerBytes = 1000;

// One message through one work request: what the peer's memory gets, and the immediate.
struct Flight {
  std::uint32_t number = 0;
  std::uint32_t word = 0;
  std::optional<MessageHeader> header{};
  std::uint32_t message = 0;
  std::uint64_t receive = 0;  // the address that the descriptor named
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct Line {
  bool alive = true;
  std::deque<Flight> there{};
  std::deque<std::uint32_t> acknowledgements{};
  std::deque<Descriptor> back{};
  std::uint32_t arrived = 0;
  PostedQueue posted{};
};

struct Message {
  int tag = 0;
  std::uint64_t bytes = 0;
  SendMatcher::Departure way{};
  StripePlan plan{};
  std::uint64_t unsent = 0;
  std::uint32_t open = 0;
  bool departed = false;
  bool done = false;
};

struct Receive {
  int tag = 0;
  std::uint64_t length = 0;
  std::uint32_t group = 0;
  std::uint32_t part = 0;
  std::uint64_t got = 0;
  std::int64_t message = -1;
  bool done = false;
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), lines_(1 + random_.below(4)) {}

  // Sends and receives `count` messages; true when all came through in a bounded number of steps.
  bool run(std::uint32_t count, bool failures) {
    for (std::uint32_t step = 0; step < 400 * count && !over(count); ++step) {
      switch (random_.below(failures ? 8 : 7)) {
        case 0: submit(count); break;
        case 1: post(count); break;
        case 2: read_ring(); break;
        case 3: start(); break;
        case 4:
        case 5: deliver(); break;
        case 6: acknowledge(); break;
        case 7: fail_line(); break;
      }
      if (::testing::Test::HasFailure()) return false;
    }
    return over(count);
  }

  std::vector<Message> messages;
  std::vector<Receive> receives;
  std::uint32_t completed = 0;

 private:
  bool over(std::uint32_t count) const { return completed >= count && done_ >= count && messages.size() >= count; }

  int draw_tag() { return static_cast<int>(random_.below(3)) - 1; }

  void submit(std::uint32_t count) {
    if (messages.size() >= count || messages.size() - done_ >= kMaxSlots) return;
    const std::uint64_t bytes = random_.chance(0.5) ? random_.below(kEagerBytes + 1) : random_.below(60'000);
    // As many of each tag are sent as are received, so that all end.
    const int tag = static_cast<int>(messages.size() % 3) - 1;
    messages.push_back({.tag = tag, .bytes = bytes});
    const auto id = static_cast<std::uint32_t>(messages.size() - 1);
    if (const auto departure = sender_.submit(id, tag, bytes)) depart(*departure);
  }

  void depart(const SendMatcher::Departure& departure) {
    Message& message = messages[departure.cookie];
    ASSERT_FALSE(message.departed);
    message.departed = true;
    message.way = departure;
    message.unsent = departure.bytes;
    message.plan = departure.eager
                       ? StripePlan{std::max<std::uint64_t>(departure.bytes, 1), 1}
                       : plan_stripes(departure.bytes, static_cast<std::uint32_t>(lines_.size()), 4096, 8192);
    to_start_.push_back(departure.cookie);
  }

  void post(std::uint32_t count) {
    const auto most = std::min<std::size_t>(count - receives.size(), kMaxRecvParts);
    if (most == 0) return;
    const std::size_t parts = 1 + random_.below(most);
    std::vector<RecvMatcher::Part> wanted;
    for (std::size_t i = 0; i < parts; ++i) {
      const int tag = static_cast<int>((receives.size() + i) % 3) - 1;
      wanted.push_back({tag, random_.chance(0.3) ? random_.below(500) : 60'000});
    }
    const auto posted = receiver_.post(wanted);
    if (!posted) return;
    const auto first = static_cast<std::uint32_t>(receives.size());
    for (std::uint32_t i = 0; i < parts; ++i) {
      receives.push_back({.tag = wanted[i].tag, .length = wanted[i].length, .group = posted->group, .part = i});
    }
    groups_[posted->group] = {first, static_cast<std::uint32_t>(parts)};
    for (const auto& match : *posted->early) copy(match);
    for (const auto& wish : *posted->wanted) {
      const std::uint32_t index = first + wish.part;
      ring_.push_back({.number = wish.number,
                       .tag = receives[index].tag,
                       .seq = wish.seq,
                       .slot = wish.slot,
                       .address = index,
                       .length = receives[index].length,
                       .eager_freed = receiver_.freed()});
    }
    describe();
    finish_group(posted->group);
  }

  // Writes the descriptors that were not written yet, to the first line that is left.
  void describe() {
    Line& line = *std::find_if(lines_.begin(), lines_.end(), [](const Line& one) { return one.alive; });
    for (; described_ != receiver_.posted(); ++described_) line.back.push_back(ring_[described_]);
  }

  void read_ring() {
    for (Line& line : lines_) {
      while (!line.back.empty() && random_.chance(0.7)) {
        const Descriptor written = line.back.front();
        line.back.pop_front();
        std::span<std::byte, Descriptor::kSize> place(memory_.data() + RingLayout::descriptor(written.number), 64);
        written.serialize_to(place);
      }
    }
    for (;;) {
      const std::uint32_t number = sender_.consumed();
      const std::span<const std::byte, Descriptor::kSize> place(memory_.data() + RingLayout::descriptor(number), 64);
      const auto descriptor = Descriptor::parse(place, number);
      if (!descriptor) break;
      const auto outcome = sender_.on_descriptor(*descriptor);
      ASSERT_NE(outcome.verdict, SendMatcher::Verdict::kProtocolError);
      if (outcome.verdict == SendMatcher::Verdict::kDeparture) depart(outcome.departure);
    }
    if (sender_.must_tell()) {
      sender_.told();
      fly(any_line(), {.kind = Immediate::Kind::kConsumed}, {});
    }
  }

  Line& any_line() {
    std::size_t at = random_.below(lines_.size());
    while (!lines_[at].alive) at = (at + 1) % lines_.size();
    return lines_[at];
  }

  // The next stripe of some message, or one that did not arrive.
  void start() {
    if (!again_.empty()) {
      const Posting posting = again_.front();
      again_.pop_front();
      fly(any_line(), posting, {});
      return;
    }
    if (to_start_.empty()) return;
    const std::uint32_t id = to_start_.front();
    Message& message = messages[id];
    const std::uint64_t offset = message.way.bytes - message.unsent;
    const std::uint64_t length = std::min(message.unsent, message.plan.bytes);
    message.unsent -= length;
    ++message.open;
    if (message.unsent == 0) to_start_.pop_front();
    fly(any_line(),
        {.kind = message.way.eager ? Immediate::Kind::kEager : Immediate::Kind::kStripe,
         .cookie = id,
         .stripe = static_cast<std::uint32_t>(offset / message.plan.bytes),
         .offset = offset,
         .length = length},
        {});
  }

  void fly(Line& line, const Posting& posting, Flight flight) {
    Immediate immediate{.kind = posting.kind};
    flight.number = line.posted.push(posting);
    if (posting.kind == Immediate::Kind::kConsumed) {
      immediate.number = sender_.consumed();
    } else {
      const Message& message = messages[posting.cookie];
      flight.message = posting.cookie;
      flight.receive = message.way.descriptor.address;
      flight.offset = posting.offset;
      flight.length = posting.length;
      const bool plain = message.plan.count == 1 && message.way.bytes == message.way.descriptor.length;
      if (message.way.eager || (posting.stripe == 0 && !plain)) {
        flight.header = MessageHeader{.tag = message.tag,
                                      .seq = message.way.seq,
                                      .slot = message.way.descriptor.slot,
                                      .stripes = static_cast<std::uint16_t>(message.plan.count),
                                      .total = message.way.bytes,
                                      .consumed = sender_.consumed(),
                                      .identity = {}};
        sender_.told();
      }
      immediate.slot = message.way.descriptor.slot;
      immediate.stripe = posting.stripe;
      immediate.has_header = !message.way.eager && flight.header.has_value();
      immediate.number = message.way.place;
    }
    flight.word = immediate.serialize();
    line.there.push_back(flight);
  }

  void deliver() {
    Line& line = lines_[random_.below(lines_.size())];
    if (line.there.empty()) return;
    arrive(line);
    describe();
  }

  void arrive(Line& line) {
    const Flight flight = line.there.front();
    line.there.pop_front();
    ++line.arrived;
    line.acknowledgements.push_back(flight.number);
    const auto immediate = Immediate::parse(flight.word);
    ASSERT_TRUE(immediate);
    if (immediate->kind == Immediate::Kind::kConsumed) {
      receiver_.on_consumed(immediate->number);
    } else if (immediate->kind == Immediate::Kind::kEager) {
      const auto arrival = receiver_.on_eager(immediate->number, flight.header);
      ASSERT_NE(arrival.fate, RecvMatcher::Fate::kProtocolError);
      at_place_[immediate->number] = flight.message;
      if (arrival.fate == RecvMatcher::Fate::kMatched) copy(arrival.match);
      if (arrival.fate == RecvMatcher::Fate::kMatched) finish_group(arrival.match.group);
    } else {
      Receive& receive = receives[flight.receive];
      ASSERT_FALSE(receive.done) << "memory was written that its owner has back";
      ASSERT_LE(flight.offset + flight.length, receive.length);
      receive.got += flight.length;
      receive.message = flight.message;
      ASSERT_TRUE(receiver_.on_stripe(*immediate, flight.header));
      finish_group(receive.group);
    }
  }

  void copy(const RecvMatcher::EagerMatch& match) {
    Receive& receive = receives[groups_[match.group].first + match.part];
    receive.got = match.bytes;
    receive.message = at_place_[match.place];
    receiver_.free_place(match.place);
  }

  void finish_group(std::uint32_t group) {
    if (!receiver_.complete(group)) return;
    const auto sizes = receiver_.sizes(group);
    for (std::uint32_t part = 0; part < groups_[group].second; ++part) {
      Receive& receive = receives[groups_[group].first + part];
      ASSERT_EQ(receive.got, sizes[part]);
      receive.done = true;
      ++completed;
    }
    receiver_.release(group);
  }

  void acknowledge() {
    Line& line = lines_[random_.below(lines_.size())];
    if (line.acknowledgements.empty()) return;
    Posting posting;
    while (line.posted.acknowledged(line.acknowledgements.front(), &posting)) end(posting);
    line.acknowledgements.pop_front();
  }

  void end(const Posting& posting) {
    if (posting.kind == Immediate::Kind::kConsumed) return;
    Message& message = messages[posting.cookie];
    ASSERT_GT(message.open, 0u);
    if (--message.open > 0 || message.unsent > 0) return;
    ASSERT_FALSE(message.done);
    message.done = true;
    ++done_;
  }

  // Any part of what is on its way still comes; then both ends agree on how much.
  void fail_line() {
    const auto left = std::count_if(lines_.begin(), lines_.end(), [](const Line& line) { return line.alive; });
    if (left < 2 || !random_.chance(0.05)) return;
    Line& line = any_line();
    for (auto come = random_.below(line.there.size() + 1); come > 0; --come) arrive(line);
    line.alive = false;
    line.there.clear();
    line.acknowledgements.clear();
    line.back.clear();
    std::vector<Posting> delivered;
    std::vector<Posting> lost;
    ASSERT_TRUE(line.posted.drain(line.arrived, true, &delivered, &lost));
    for (const Posting& posting : delivered) end(posting);
    again_.insert(again_.end(), lost.begin(), lost.end());
    described_ = receiver_.consumed();
    describe();
  }

  Rng random_;
  std::vector<Line> lines_;
  SendMatcher sender_{kEagerBytes};
  RecvMatcher receiver_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(RingLayout::kSize);
  std::vector<Descriptor> ring_;  // all that ever were
  std::uint32_t described_ = 0;
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> groups_;  // first receive, count
  std::map<std::uint32_t, std::uint32_t> at_place_;
  std::deque<std::uint32_t> to_start_;
  std::deque<Posting> again_;
  std::uint32_t done_ = 0;
};

// The k-th message of a tag must be in the k-th receive of that tag, cut to its length.
void check(const World& world) {
  for (int tag = -1; tag <= 1; ++tag) {
    std::vector<std::uint32_t> sent;
    for (std::uint32_t i = 0; i < world.messages.size(); ++i) {
      if (world.messages[i].tag == tag) sent.push_back(i);
    }
    std::size_t next = 0;
    for (const Receive& receive : world.receives) {
      if (receive.tag != tag || next >= sent.size() || !receive.done) continue;
      const Message& message = world.messages[sent[next]];
      ASSERT_EQ(receive.message, static_cast<std::int64_t>(sent[next]));
      ASSERT_EQ(receive.got, std::min(message.bytes, receive.length));
      ++next;
    }
  }
}

TEST(RcReminder, WritesOnceAndEndsWhatIsNotAcknowledged) {
  using Due = Reminder::Due;
  const TimePoint start{std::chrono::seconds(9)};
  const auto after = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  Reminder reminder(std::chrono::milliseconds(500));
  EXPECT_EQ(reminder.due(false, 3, start), Due::kNothing) << "nothing is open";
  EXPECT_EQ(reminder.due(true, 3, start), Due::kWrite);
  EXPECT_EQ(reminder.due(true, 3, after(1)), Due::kWrite) << "there was no room for it";
  reminder.posted(5, after(1));
  EXPECT_EQ(reminder.due(true, 3, after(2)), Due::kNothing);
  EXPECT_EQ(reminder.due(true, 4, after(3)), Due::kNothing) << "two seconds at least";
  EXPECT_EQ(reminder.due(true, 4, after(4)), Due::kOverdue);
  EXPECT_EQ(reminder.due(true, 5, after(4)), Due::kWrite) << "that one came, others are open";
  reminder.posted(9, after(4));
  EXPECT_EQ(reminder.due(false, 9, after(60)), Due::kNothing);
  EXPECT_EQ(reminder.due(true, 9, after(61)), Due::kWrite);
  // Numbers go round.
  reminder.posted(2, after(61));
  EXPECT_EQ(reminder.due(true, 0xfffffffe, after(62)), Due::kNothing);
  EXPECT_EQ(reminder.due(true, 2, after(63)), Due::kWrite);
  Reminder slow(std::chrono::seconds(30));
  EXPECT_EQ(slow.due(true, 0, start), Due::kWrite);
  slow.posted(1, start);
  EXPECT_EQ(slow.due(true, 0, after(59)), Due::kNothing);
  EXPECT_EQ(slow.due(true, 0, after(61)), Due::kOverdue);
}

TEST(RcMatching, EveryInterleavingDeliversEachMessageOnce) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    World world(seed);
    ASSERT_TRUE(world.run(120, false)) << "seed " << seed << ": " << world.completed << " receives";
    ASSERT_NO_FATAL_FAILURE(check(world)) << "seed " << seed;
  }
}

TEST(RcMatching, QueuePairsThatFailLoseAndRepeatNothing) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    World world(seed + 1'000'000);
    ASSERT_TRUE(world.run(120, true)) << "seed " << seed << ": " << world.completed << " receives";
    ASSERT_NO_FATAL_FAILURE(check(world)) << "seed " << seed;
  }
}

// Long enough for the ring, the slots and the places to go round several times.
TEST(RcMatching, TheRingGoesRoundManyTimes) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(seed + 2'000'000);
    ASSERT_TRUE(world.run(6000, seed % 2 == 0)) << "seed " << seed;
    ASSERT_NO_FATAL_FAILURE(check(world));
  }
}

}  // namespace
}  // namespace clustar::transport::verbs
