// Both halves of the matching protocol against each other over a simulated connection: several data sockets that keep
// order only within themselves, a control socket, and every interleaving that a seed draws.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "transport/tcp/core/recv_matcher.h"
#include "transport/tcp/core/send_matcher.h"

namespace clustar::transport::tcp {
namespace {

constexpr SharedSettings kSettings{1000, 5000};

ClearToSend clear(int tag, std::uint32_t seq, std::uint32_t slot, std::uint64_t length) {
  return {tag, seq, slot, length};
}

TEST(SendMatcher, SmallMessagesGoAheadLargeOnesWait) {
  SendMatcher matcher(kSettings);
  const auto small = matcher.submit(1, 5, 1000);
  ASSERT_TRUE(small);
  EXPECT_FALSE(small->header.has_slot);
  EXPECT_EQ(small->header.total, 1000u);
  EXPECT_FALSE(matcher.submit(2, 5, 1001));
  EXPECT_EQ(matcher.waiting(), 1u);
  EXPECT_EQ(matcher.on_clear_to_send(clear(5, 0, 77, 4000)).verdict, SendMatcher::Verdict::kNoted);
  const auto result = matcher.on_clear_to_send(clear(5, 1, 78, 4000));
  ASSERT_EQ(result.verdict, SendMatcher::Verdict::kDeparture);
  EXPECT_EQ(result.departure.cookie, 2u);
  EXPECT_EQ(result.departure.header.slot, 78u);
  EXPECT_EQ(result.departure.header.total, 1001u);
  EXPECT_EQ(matcher.waiting(), 0u);
}

TEST(SendMatcher, TheWindowBoundsWhatGoesAheadAndClearsReopenIt) {
  SendMatcher matcher(kSettings);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(matcher.submit(i, 0, 1000));
  EXPECT_TRUE(matcher.needs_clear(1));
  EXPECT_FALSE(matcher.submit(5, 0, 1));
  EXPECT_EQ(matcher.on_clear_to_send(clear(0, 0, 0, 1000)).verdict, SendMatcher::Verdict::kNoted);
  EXPECT_FALSE(matcher.needs_clear(1000));
}

TEST(SendMatcher, AKnownReceiveCutsTheMessageToItsSize) {
  SendMatcher matcher(kSettings);
  EXPECT_EQ(matcher.on_clear_to_send(clear(0, 0, 3, 100)).verdict, SendMatcher::Verdict::kNoted);
  const auto departure = matcher.submit(9, 0, 5000);
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->header.total, 100u);
}

TEST(SendMatcher, RefusesClearsOutOfOrderAndFloods) {
  SendMatcher matcher(kSettings);
  EXPECT_EQ(matcher.on_clear_to_send(clear(0, 1, 0, 10)).verdict, SendMatcher::Verdict::kProtocolError);
  for (std::uint32_t i = 0; i < kMaxSlots; ++i) {
    ASSERT_EQ(matcher.on_clear_to_send(clear(0, i, i, 10)).verdict, SendMatcher::Verdict::kNoted);
  }
  EXPECT_EQ(matcher.on_clear_to_send(clear(0, kMaxSlots, 0, 10)).verdict, SendMatcher::Verdict::kProtocolError);
  EXPECT_EQ(matcher.on_clear_to_send(clear(1, 0, 0, 10)).verdict, SendMatcher::Verdict::kProtocolError);
}

TEST(SendMatcher, TheCallersTagsAreNotLimited) {
  SendMatcher matcher(SharedSettings{0, 0});
  for (int tag = 0; tag < 20000; ++tag) EXPECT_FALSE(matcher.submit(static_cast<std::uint32_t>(tag), tag, 10));
  const auto result = matcher.on_clear_to_send(clear(19999, 0, 1, 10));
  ASSERT_EQ(result.verdict, SendMatcher::Verdict::kDeparture);
  EXPECT_EQ(result.departure.cookie, 19999u);
}

ChunkHeader eager(int tag, std::uint32_t seq, std::uint64_t total) {
  ChunkHeader header;
  header.tag = tag;
  header.seq = seq;
  header.total = total;
  header.length = static_cast<std::uint32_t>(total);
  return header;
}

// A receive of a tag that nobody sends: while it is posted, the receiver must look behind messages without a receive.
void wait_for_another_tag(RecvMatcher& matcher) {
  const std::array<RecvMatcher::Part, 1> part{{{1 << 20, 8}}};
  ASSERT_TRUE(matcher.post(part));
}

TEST(RecvMatcher, AMessageNobodyWaitsBehindStaysWithTheKernel) {
  using Kind = RecvMatcher::Placement::Kind;
  RecvMatcher matcher(kSettings);
  EXPECT_EQ(matcher.on_header(eager(1, 0, 10)).kind, Kind::kWait);
  EXPECT_EQ(matcher.on_header(eager(1, 0, 10)).kind, Kind::kWait) << "asking again changes nothing";
  const std::array<RecvMatcher::Part, 1> older{{{1, 10}}};
  const auto posted = matcher.post(older);
  ASSERT_TRUE(posted);
  EXPECT_EQ(matcher.on_header(eager(1, 1, 10)).kind, Kind::kEarly) << "an older message may be behind it";
  EXPECT_EQ(matcher.on_header(eager(1, 0, 10)).kind, Kind::kPart);
  EXPECT_EQ(matcher.on_header(eager(1, 2, 10)).kind, Kind::kWait) << "the only receive is getting its message";
  wait_for_another_tag(matcher);
  EXPECT_EQ(matcher.on_header(eager(1, 2, 10)).kind, Kind::kEarly);
}

// A long message waits for permission while a short one of the same tag overtakes it and stands before it on the
// socket.
TEST(Matchers, AnOvertakenMessageIsReachedThoughItsOvertakerHasNoReceive) {
  using Kind = RecvMatcher::Placement::Kind;
  SendMatcher sender(kSettings);
  RecvMatcher receiver(kSettings);
  EXPECT_FALSE(sender.submit(0, 7, 5000));
  const auto overtaker = sender.submit(1, 7, 10);
  ASSERT_TRUE(overtaker);
  const std::array<RecvMatcher::Part, 1> part{{{7, 5000}}};
  const auto posted = receiver.post(part);
  ASSERT_TRUE(posted);
  ASSERT_EQ(sender.on_clear_to_send(posted->clears->front()).verdict, SendMatcher::Verdict::kDeparture);
  EXPECT_EQ(receiver.on_header(overtaker->header).kind, Kind::kEarly);
}

TEST(RecvMatcher, RefusesWhatNoCorrectSenderSends) {
  using Kind = RecvMatcher::Placement::Kind;
  RecvMatcher matcher(kSettings);
  const std::array<RecvMatcher::Part, 1> part{{{4, 100}}};
  const auto posted = matcher.post(part);
  ASSERT_TRUE(posted);
  const ClearToSend sent = posted->clears->front();
  ChunkHeader header;
  header.has_slot = true;
  header.tag = 4;
  header.seq = sent.seq;
  header.slot = sent.slot;
  header.total = 100;
  header.length = 50;
  const auto kind_of = [&](auto change) {
    ChunkHeader changed = header;
    change(changed);
    return matcher.on_header(changed).kind;
  };
  EXPECT_EQ(kind_of([](ChunkHeader& h) { h.slot = 0xffff; }), Kind::kProtocolError) << "no such slot";
  EXPECT_EQ(kind_of([](ChunkHeader& h) { h.slot += 0x10000; }), Kind::kProtocolError) << "another generation";
  EXPECT_EQ(kind_of([](ChunkHeader& h) { h.tag = 5; }), Kind::kProtocolError);
  EXPECT_EQ(kind_of([](ChunkHeader& h) { h.seq = 1; }), Kind::kProtocolError);
  EXPECT_EQ(kind_of([](ChunkHeader& h) { h.total = 101; }), Kind::kProtocolError) << "longer than posted";
  EXPECT_EQ(kind_of([](ChunkHeader&) {}), Kind::kPart);
  EXPECT_EQ(kind_of([](ChunkHeader& h) { h.total = 60; }), Kind::kProtocolError) << "the total changed in mid-message";
  EXPECT_EQ(kind_of([](ChunkHeader& h) { h.length = 51; }), Kind::kProtocolError)
      << "more than what is left, though none of the first chunk's payload has arrived yet";
  wait_for_another_tag(matcher);
  EXPECT_EQ(matcher.on_header(eager(9, 0, 1001)).kind, Kind::kProtocolError) << "too long to come early";
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(matcher.on_header(eager(9, i, 1000)).kind, Kind::kEarly);
  EXPECT_EQ(matcher.on_header(eager(9, 5, 1)).kind, Kind::kProtocolError) << "beyond the window";
}

TEST(RecvMatcher, AnEmptyMessageIsNotAcceptedTwice) {
  using Kind = RecvMatcher::Placement::Kind;
  RecvMatcher matcher(kSettings);
  const std::array<RecvMatcher::Part, 1> part{{{4, 100}}};
  const auto posted = matcher.post(part);
  ASSERT_TRUE(posted);
  ChunkHeader header;
  header.has_slot = true;
  header.tag = 4;
  header.slot = posted->clears->front().slot;
  EXPECT_EQ(matcher.on_header(header).kind, Kind::kPart);
  EXPECT_EQ(matcher.on_header(header).kind, Kind::kProtocolError);
}

TEST(RecvMatcher, AnEarlyMessageIsNotAcceptedTwice) {
  using Kind = RecvMatcher::Placement::Kind;
  RecvMatcher matcher(kSettings);
  wait_for_another_tag(matcher);
  const auto first = matcher.on_header(eager(1, 0, 10));
  ASSERT_EQ(first.kind, Kind::kEarly);
  EXPECT_EQ(matcher.on_header(eager(1, 0, 10)).kind, Kind::kProtocolError);
  matcher.on_payload(first, eager(1, 0, 10));
  const std::array<RecvMatcher::Part, 1> part{{{1, 6}}};
  const auto posted = matcher.post(part);
  ASSERT_TRUE(posted);
  ASSERT_EQ(posted->early->size(), 1u);
  EXPECT_EQ(posted->early->front().bytes, 6u) << "cut to the receive's size";
  matcher.release_early(posted->early->front().early);
  EXPECT_TRUE(matcher.complete(posted->group));
  EXPECT_EQ(matcher.sizes(posted->group)[0], 6u);
  EXPECT_EQ(matcher.on_header(eager(1, 0, 10)).kind, Kind::kProtocolError) << "that number is over";
}

// The sender takes a message off its window when it hears of the receive; the receiver must not count it longer, though
// the message's last bytes may still be under way on a slow socket.
TEST(RecvMatcher, AWholeWindowMayComeBesideAMatchedMessageThatIsStillArriving) {
  using Kind = RecvMatcher::Placement::Kind;
  RecvMatcher matcher(kSettings);
  wait_for_another_tag(matcher);
  const auto slow = matcher.on_header(eager(0, 0, 1000));
  ASSERT_EQ(slow.kind, Kind::kEarly);
  const std::array<RecvMatcher::Part, 1> part{{{0, 1000}}};
  const auto posted = matcher.post(part);
  ASSERT_TRUE(posted);
  EXPECT_TRUE(posted->early->empty());
  for (std::uint32_t seq = 1; seq <= 5; ++seq) {
    const auto placed = matcher.on_header(eager(0, seq, 1000));
    ASSERT_EQ(placed.kind, Kind::kEarly) << seq;
    matcher.on_payload(placed, eager(0, seq, 1000));
  }
  EXPECT_EQ(matcher.on_header(eager(0, 6, 1)).kind, Kind::kProtocolError) << "one more is beyond the window";
  matcher.on_payload(slow, eager(0, 0, 1000));
  std::uint32_t group = 99;
  const auto late = matcher.take_late_match(&group);
  ASSERT_TRUE(late);
  EXPECT_EQ(group, posted->group);
  matcher.release_early(late->early);
  EXPECT_TRUE(matcher.complete(group));
}

TEST(RecvMatcher, GroupsAreBoundedAsNcclsRequests) {
  RecvMatcher matcher(kSettings);
  const std::array<RecvMatcher::Part, 1> part{{{0, 8}}};
  for (std::uint32_t i = 0; i < RecvMatcher::kMaxGroups; ++i) EXPECT_TRUE(matcher.post(part));
  EXPECT_FALSE(matcher.post(part));
}

// The simulated connection. Payload is a message's number in every byte, so it is enough to carry that number.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : random_(seed), sender_(kSettings), receiver_(kSettings) {
    sockets_.resize(1 + random_() % 4);
    tags_ = 1 + static_cast<int>(random_() % 5);
    // From a caller that waits for each receive to one that posts all it can.
    max_groups_ = std::array<std::size_t, 3>{1, 3, 64}[random_() % 3];
  }

  void run() {
    const std::size_t messages = 20 + random_() % 60;
    plan(messages);
    std::size_t steps = 0;
    while (finished_ < messages) {
      ASSERT_LT(++steps, messages * 2000) << "no progress";
      step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(receiver_.outstanding(), 0u);
    EXPECT_EQ(receiver_.partial(), 0u);
    EXPECT_EQ(sender_.waiting(), 0u);
  }

 private:
  struct Message {
    int tag;
    std::uint64_t bytes;
  };
  struct Piece {
    ChunkHeader header;
    std::uint32_t message;
  };
  struct Reading {
    bool active = false;
    Piece piece;
    RecvMatcher::Placement placement;
  };
  struct Expected {
    std::uint32_t message;
    std::uint64_t posted;
    std::uint64_t got = 0;
  };
  struct Group {
    std::vector<Expected> parts;
  };

  // The same messages in two orders that agree per tag: sends, and receives grouped as their owner likes.
  void plan(std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
      static constexpr std::uint64_t kSizes[] = {0, 1, 999, 1000, 1001, 5000, 20000};
      messages_.push_back({static_cast<int>(random_() % static_cast<unsigned>(tags_)), kSizes[random_() % 7]});
      to_post_[messages_.back().tag].push_back(static_cast<std::uint32_t>(i));
    }
    receives_left_ = messages;
  }

  void step() {
    switch (random_() % 5) {
      case 0: submit(); break;
      case 1: post(); break;
      case 2: deliver_control(); break;
      case 3: begin_chunk(); break;
      default: end_chunk(); break;
    }
  }

  void submit() {
    if (next_send_ == messages_.size()) return;
    const auto index = static_cast<std::uint32_t>(next_send_++);
    const auto departure = sender_.submit(index, messages_[index].tag, messages_[index].bytes);
    if (departure) send(*departure);
  }

  void send(const SendMatcher::Departure& departure) {
    ChunkHeader header = departure.header;
    const std::uint64_t piece_size = header.has_slot ? 1 + header.total / 16 + random_() % 8000 : header.total;
    do {
      header.length = static_cast<std::uint32_t>(std::min(piece_size, header.total - header.offset));
      sockets_[random_() % sockets_.size()].push_back({header, departure.cookie});
      header.offset += header.length;
    } while (header.offset < header.total);
  }

  void post() {
    if (receives_left_ == 0 || groups_.size() >= max_groups_) return;
    std::vector<RecvMatcher::Part> parts;
    Group group;
    for (std::size_t wanted = 1 + random_() % kMaxRecvParts; wanted > 0 && receives_left_ > 0; --wanted) {
      auto tag = std::next(to_post_.begin(), static_cast<std::ptrdiff_t>(random_() % to_post_.size()));
      const std::uint32_t message = tag->second.front();
      // Mostly roomier than the message, at times exact, at times too short.
      const std::uint64_t bytes = messages_[message].bytes;
      const std::uint64_t posted = random_() % 4 == 0 ? bytes / 2 : random_() % 2 == 0 ? bytes : 30000;
      parts.push_back({tag->first, posted});
      group.parts.push_back({message, posted});
      tag->second.pop_front();
      if (tag->second.empty()) to_post_.erase(tag);
      --receives_left_;
    }
    const auto posted = receiver_.post(parts);
    if (!posted) {  // full: put them back, newest first, to keep each tag's order
      for (std::size_t i = parts.size(); i-- > 0;) to_post_[parts[i].tag].push_front(group.parts[i].message);
      receives_left_ += parts.size();
      return;
    }
    for (const auto& item : *posted->clears) control_.push_back(item);
    groups_[posted->group] = group;
    for (const auto& match : *posted->early) take_early(posted->group, match);
    settle(posted->group);
  }

  void deliver_control() {
    if (control_.empty()) return;
    const auto result = sender_.on_clear_to_send(control_.front());
    control_.pop_front();
    ASSERT_NE(result.verdict, SendMatcher::Verdict::kProtocolError);
    if (result.verdict == SendMatcher::Verdict::kDeparture) send(result.departure);
  }

  void begin_chunk() {
    const std::size_t socket = random_() % sockets_.size();
    Reading& reading = reading_[socket];
    if (reading.active || sockets_[socket].empty()) return;
    reading = {true, sockets_[socket].front(), {}};
    reading.placement = receiver_.on_header(reading.piece.header);
    if (reading.placement.kind == RecvMatcher::Placement::Kind::kWait) {  // it stays where it is and blocks its socket
      reading.active = false;
      return;
    }
    sockets_[socket].pop_front();
    ASSERT_NE(reading.placement.kind, RecvMatcher::Placement::Kind::kProtocolError) << reading.piece.header.to_string();
    if (reading.placement.kind == RecvMatcher::Placement::Kind::kEarly) {
      early_[reading.placement.early] = reading.piece.message;
    }
  }

  void end_chunk() {
    const std::size_t socket = random_() % sockets_.size();
    Reading& reading = reading_[socket];
    if (!reading.active) return;
    reading.active = false;
    if (reading.placement.kind == RecvMatcher::Placement::Kind::kPart) {
      Expected& part = groups_.at(reading.placement.group).parts.at(reading.placement.part);
      ASSERT_EQ(part.message, reading.piece.message) << "bytes of another message";
      ASSERT_LE(reading.placement.offset + reading.placement.keep, part.posted) << "past the posted memory";
      part.got += reading.placement.keep;
    }
    receiver_.on_payload(reading.placement, reading.piece.header);
    std::uint32_t group = 0;
    while (const auto match = receiver_.take_late_match(&group)) {
      take_early(group, *match);
      settle(group);
    }
    if (reading.placement.kind == RecvMatcher::Placement::Kind::kPart) settle(reading.placement.group);
  }

  void take_early(std::uint32_t group, const RecvMatcher::EarlyMatch& match) {
    Expected& part = groups_.at(group).parts.at(match.part);
    ASSERT_EQ(part.message, early_.at(match.early));
    part.got += match.bytes;
    receiver_.release_early(match.early);
  }

  void settle(std::uint32_t group) {
    if (!receiver_.complete(group)) return;
    const auto sizes = receiver_.sizes(group);
    const Group& done = groups_.at(group);
    for (std::size_t i = 0; i < done.parts.size(); ++i) {
      const Expected& part = done.parts[i];
      ASSERT_EQ(sizes[i], std::min(part.posted, messages_[part.message].bytes));
      ASSERT_EQ(part.got, sizes[i]);
      ++finished_;
    }
    groups_.erase(group);
    receiver_.release(group);
  }

  std::mt19937_64 random_;
  SendMatcher sender_;
  RecvMatcher receiver_;
  int tags_ = 1;
  std::size_t max_groups_ = 64;
  std::vector<Message> messages_;
  std::map<int, std::deque<std::uint32_t>> to_post_;
  std::size_t receives_left_ = 0;
  std::size_t next_send_ = 0;
  std::size_t finished_ = 0;
  std::deque<ClearToSend> control_;
  std::vector<std::deque<Piece>> sockets_;
  std::array<Reading, 4> reading_;
  std::map<std::uint32_t, Group> groups_;
  std::map<std::uint32_t, std::uint32_t> early_;
};

TEST(Matchers, EveryMessageReachesItsReceiveOnceInEveryInterleaving) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    Simulation simulation(seed);
    simulation.run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace clustar::transport::tcp
