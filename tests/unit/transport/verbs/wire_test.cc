// What the verbs transport puts on the wire, the plan of stripes, and what each half refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "transport/base/rng.h"
#include "transport/verbs/core/posted.h"
#include "transport/verbs/core/recv_matcher.h"
#include "transport/verbs/core/send_matcher.h"
#include "transport/verbs/core/stripes.h"

namespace clustar::transport::verbs {
namespace {

Contact some_contact() {
  Contact contact;
  contact.address = 0x123456789abc;
  contact.keys = {1, 2, 3, 4};
  contact.eager_bytes = 8192;
  for (std::uint8_t i = 0; i < 2; ++i) {
    contact.ports.push_back({.gid = {}, .lid = 7, .mtu = 5, .ethernet = i == 0});
    contact.ports.back().gid[15] = i;
  }
  for (std::uint8_t i = 0; i < 8; ++i) contact.queue_pairs.push_back({100u + i, 0xffffffu - i, std::uint8_t(i % 2)});
  return contact;
}

TEST(RcWire, AContactSurvivesTheWire) {
  const Contact sent = some_contact();
  std::array<std::byte, Contact::kSize> bytes;
  sent.serialize_to(bytes);
  const auto read = Contact::parse(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->address, sent.address);
  EXPECT_EQ(read->keys, sent.keys);
  EXPECT_EQ(read->eager_bytes, sent.eager_bytes);
  ASSERT_EQ(read->ports.size(), 2u);
  EXPECT_EQ(read->ports[1].gid[15], 1);
  EXPECT_TRUE(read->ports[0].ethernet);
  EXPECT_EQ(read->ports[0].mtu, 5);
  ASSERT_EQ(read->queue_pairs.size(), 8u);
  EXPECT_EQ(read->queue_pairs[7].psn, 0xffffffu - 7);
  EXPECT_EQ(read->queue_pairs[7].port, 1);
}

TEST(RcWire, AContactOutOfRangeIsRefused) {
  const auto refused = [](const auto& change) {
    std::array<std::byte, Contact::kSize> bytes;
    some_contact().serialize_to(bytes);
    change(bytes);
    return !Contact::parse(bytes);
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& bytes) { bytes[12] = std::byte{5}; })) << "ports";
  EXPECT_TRUE(refused([](auto& bytes) { bytes[12] = std::byte{0}; }));
  EXPECT_TRUE(refused([](auto& bytes) { bytes[13] = std::byte{9}; })) << "queue pairs";
  EXPECT_TRUE(refused([](auto& bytes) { bytes[12] = std::byte{1}; })) << "a queue pair on a port that is not there";
  EXPECT_TRUE(refused([](auto& bytes) { bytes[8] = std::byte{1}; })) << "eager bytes";
  EXPECT_TRUE(refused([](auto& bytes) { bytes[40 + 18] = std::byte{6}; })) << "an MTU";
}

TEST(RcWire, AHandleHoldsItsEndpointsAndGarbageIsRefused) {
  handshake::Invitation info;
  info.token[3] = std::byte{9};
  info.config.rank = 4;
  net::Endpoint endpoint{.ipv6 = true, .port = 4711};
  while (info.has_room(endpoint, kHandleFormat.room())) info.endpoints.push_back(endpoint);
  EXPECT_GE(info.endpoints.size(), 2u);
  const auto read = handshake::Invitation::parse(kHandleFormat, info.serialize(kHandleFormat));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->token, info.token);
  EXPECT_EQ(read->config, info.config);
  EXPECT_EQ(read->endpoints.size(), info.endpoints.size());
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    Handle garbage;
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(handshake::Invitation::parse(kHandleFormat, garbage));
  }
}

TEST(RcWire, ADescriptorThatIsHalfThereIsNone) {
  const Descriptor sent{.number = 700,
                        .tag = -3,
                        .seq = 9,
                        .slot = make_slot(17, 300),
                        .address = 77,
                        .length = 5,
                        .keys = {1, 2, 3, 4},
                        .eager_freed = 6};
  std::array<std::byte, Descriptor::kSize> before{};
  std::array<std::byte, Descriptor::kSize> after;
  Descriptor{.number = 700 - kRing, .tag = 1, .length = 8}.serialize_to(before);
  sent.serialize_to(after);
  std::mt19937 random(2);
  for (int i = 0; i < 10'000; ++i) {
    auto torn = before;
    bool whole = true;
    for (std::size_t at = 0; at < torn.size(); at += 4) {
      if (random() % 8 != 0)
        std::copy_n(after.begin() + static_cast<long>(at), 4, torn.begin() + static_cast<long>(at));
    }
    whole = torn == after;
    EXPECT_EQ(Descriptor::parse(torn, 700).has_value(), whole);
  }
  const auto read = Descriptor::parse(after, 700);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->tag, -3);
  EXPECT_EQ(read->slot, sent.slot);
  EXPECT_EQ(read->keys, sent.keys);
  EXPECT_FALSE(Descriptor::parse(after, 701));
  EXPECT_FALSE(Descriptor::parse(std::array<std::byte, Descriptor::kSize>{}, 0));
}

TEST(RcWire, ImmediatesAndHeadersSurviveTheWire) {
  const Immediate stripe{.slot = make_slot(255, 0xab), .stripe = 63, .has_header = true};
  const auto read = Immediate::parse(stripe.serialize());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->slot, stripe.slot);
  EXPECT_EQ(read->stripe, 63u);
  EXPECT_TRUE(read->has_header);
  EXPECT_EQ(Immediate::parse(Immediate{.kind = Immediate::Kind::kEager, .number = 63}.serialize())->number, 63u);
  EXPECT_EQ(Immediate::parse(Immediate{.kind = Immediate::Kind::kConsumed, .number = 0x1234567}.serialize())->number,
            0x234567u);
  EXPECT_FALSE(Immediate::parse(0xc0000000));
  EXPECT_FALSE(Immediate::parse(0x20000000));
  MessageHeader header{.tag = 1, .seq = 2, .slot = 3, .stripes = 64, .total = 1 << 20, .consumed = 4};
  header.identity = {.known = true, .local_number = true, .communicator = 5, .number = MessageIdentity::kNumbers - 1};
  std::array<std::byte, MessageHeader::kSize> bytes;
  header.serialize_to(bytes);
  const auto parsed = MessageHeader::parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->identity, header.identity);
  EXPECT_EQ(parsed->stripes, 64);
  header.stripes = 65;
  header.serialize_to(bytes);
  EXPECT_FALSE(MessageHeader::parse(bytes));
}

TEST(RcStripes, APlanCoversTheMessageInAtMost64Stripes) {
  Rng random(3);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t total = random.below(std::uint64_t{1} << random.below(41));
    const auto lines = static_cast<std::uint32_t>(1 + random.below(8));
    const std::uint64_t least = 1 + random.below(1 << 18);
    const StripePlan plan = plan_stripes(total, lines, least, 1 << 20);
    ASSERT_LE(plan.count, kMaxStripes);
    ASSERT_GE(plan.count, 1u);
    ASSERT_GE(plan.bytes * plan.count, total);
    ASSERT_TRUE(plan.count == 1 || plan.bytes * (plan.count - 1) < total) << "no stripe is empty";
    ASSERT_TRUE(plan.count == 1 || plan.bytes >= least);
  }
  EXPECT_EQ(plan_stripes(0, 4, 4096, 1 << 20).count, 1u);
  EXPECT_EQ(plan_stripes(400'000, 4, 4096, 1 << 20).count, 4u);
  EXPECT_EQ(plan_stripes(400'000, 4, 1 << 19, 1 << 20).count, 1u);
}

TEST(RcBooks, RefuseWhatNoCorrectPeerSends) {
  RecvMatcher book;
  const std::array<RecvMatcher::Part, 1> part{{{4, 100}}};
  const auto posted = book.post(part);
  ASSERT_TRUE(posted);
  const std::uint32_t slot = posted->wanted->front().slot;
  const Immediate first{.slot = slot, .has_header = true};
  EXPECT_FALSE(RecvMatcher(book).on_stripe({.slot = slot + 1}, {})) << "no receive is there";
  EXPECT_FALSE(RecvMatcher(book).on_stripe({.slot = slot + 0x10000}, {})) << "another generation";
  EXPECT_FALSE(RecvMatcher(book).on_stripe(first, {})) << "a header that makes no sense";
  const MessageHeader good{.tag = 4, .seq = 0, .slot = slot, .stripes = 2, .total = 100};
  const auto refused = [&](auto change) {
    MessageHeader changed = good;
    change(changed);
    return !RecvMatcher(book).on_stripe(first, changed);
  };
  EXPECT_FALSE(refused([](MessageHeader&) {}));
  EXPECT_TRUE(refused([](MessageHeader& header) { header.tag = 5; }));
  EXPECT_TRUE(refused([](MessageHeader& header) { header.seq = 1; }));
  EXPECT_TRUE(refused([](MessageHeader& header) { header.total = 101; })) << "longer than posted";
  EXPECT_TRUE(book.on_stripe(first, good));
  EXPECT_FALSE(RecvMatcher(book).on_stripe(first, good)) << "twice";
  EXPECT_FALSE(RecvMatcher(book).on_stripe({.slot = slot, .stripe = 2}, {})) << "more stripes than announced";
  EXPECT_EQ(RecvMatcher(book).on_eager(kEagerSlots, good).fate, RecvMatcher::Fate::kProtocolError);
  MessageHeader ahead{.tag = 9, .seq = 0, .total = 10};
  EXPECT_EQ(book.on_eager(0, ahead).fate, RecvMatcher::Fate::kKept);
  EXPECT_EQ(RecvMatcher(book).on_eager(0, ahead).fate, RecvMatcher::Fate::kProtocolError) << "the place is taken";
  EXPECT_EQ(RecvMatcher(book).on_eager(1, ahead).fate, RecvMatcher::Fate::kProtocolError)
      << "the message is there already";
}

// Posts a request of as many receives as there may be, and has each filled by an eager message.
bool post_and_fill(RecvMatcher* book, std::uint32_t* seq, std::uint32_t consumed) {
  std::vector<RecvMatcher::Part> parts(kMaxRecvParts, {0, 10});
  const auto posted = book->post(parts);
  if (!posted) return false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::uint32_t place = *seq % kEagerSlots;
    const MessageHeader header{.tag = 0, .seq = (*seq)++, .total = 10, .consumed = consumed};
    EXPECT_EQ(book->on_eager(place, header).fate, RecvMatcher::Fate::kMatched);
    book->free_place(place);
  }
  book->release(posted->group);
  return true;
}

TEST(RcBooks, NoDescriptorIsPostedOverOneThatWasNotRead) {
  RecvMatcher book;
  std::uint32_t seq = 0;
  for (std::uint32_t i = 0; i < kRing / kMaxRecvParts; ++i) ASSERT_TRUE(post_and_fill(&book, &seq, 0)) << i;
  EXPECT_FALSE(post_and_fill(&book, &seq, 0)) << "the ring is full";
  book.on_consumed(kMaxRecvParts - 1);
  EXPECT_FALSE(post_and_fill(&book, &seq, 0)) << "one place too few";
  book.on_consumed(kMaxRecvParts);
  EXPECT_TRUE(post_and_fill(&book, &seq, 0));
  EXPECT_FALSE(post_and_fill(&book, &seq, 0));
}

TEST(RcBooks, WhatTheSenderReadIsNeverLessThanItSaidAndNeverMoreThanWasPosted) {
  RecvMatcher book;
  std::uint32_t seq = 0;
  ASSERT_TRUE(post_and_fill(&book, &seq, 5));
  EXPECT_EQ(book.consumed(), 5u);
  ASSERT_TRUE(post_and_fill(&book, &seq, 3)) << "by a queue pair that is slower";
  EXPECT_EQ(book.consumed(), 5u);
  book.on_consumed(4);
  EXPECT_EQ(book.consumed(), 5u);
  book.on_consumed(2 * kMaxRecvParts + 1);
  EXPECT_EQ(book.consumed(), 5u);
  book.on_consumed(2 * kMaxRecvParts);
  EXPECT_EQ(book.consumed(), 2 * kMaxRecvParts);
}

TEST(RcBooks, PlacesComeBackInTheOrderInWhichTheyAreGivenOut) {
  RecvMatcher book;
  std::vector<RecvMatcher::Part> parts;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const int tag = static_cast<int>(i);
    ASSERT_EQ(book.on_eager(i, MessageHeader{.tag = tag, .total = 10}).fate, RecvMatcher::Fate::kKept);
    parts.push_back({tag, 10});
  }
  const auto posted = book.post(parts);
  ASSERT_TRUE(posted);
  ASSERT_EQ(posted->early->size(), 3u);
  EXPECT_TRUE(book.complete(posted->group));
  book.free_place(1);
  book.free_place(2);
  EXPECT_EQ(book.freed(), 0u) << "the first is still to be copied";
  book.free_place(0);
  EXPECT_EQ(book.freed(), 3u);
}

TEST(RcBooks, PlacesBoundWhatGoesAheadAndComeBack) {
  SendMatcher book(100);
  for (std::uint32_t i = 0; i < kEagerSlots; ++i) {
    const auto departure = book.submit(i, 0, 100);
    ASSERT_TRUE(departure && departure->eager);
    EXPECT_EQ(departure->place, i);
  }
  EXPECT_FALSE(book.submit(100, 1, 1)) << "no place is free";
  EXPECT_FALSE(book.submit(101, 1, 101)) << "too long";
  EXPECT_EQ(book.waiting(), 2u);
  book.on_freed(kEagerSlots + 1);
  EXPECT_FALSE(book.submit(102, 2, 1)) << "more than was sent cannot be taken";
  book.on_freed(3);
  book.on_freed(2);
  const auto departure = book.submit(103, 2, 1);
  ASSERT_TRUE(departure && departure->eager);
  EXPECT_EQ(departure->place, 0u);
}

TEST(RcPosted, TheCountOfThePeerDividesWhatArrivedFromWhatDidNot) {
  PostedQueue queue;
  for (std::uint32_t i = 0; i < 6; ++i) queue.push({.cookie = i, .requests = 2, .length = 10});
  Posting posting;
  EXPECT_TRUE(queue.acknowledged(1, &posting));
  EXPECT_TRUE(queue.acknowledged(1, &posting));
  EXPECT_FALSE(queue.acknowledged(1, &posting));
  EXPECT_EQ(queue.requests(), 8u);
  std::vector<Posting> delivered;
  std::vector<Posting> lost;
  EXPECT_FALSE(queue.drain(7, true, &delivered, &lost)) << "so many were never posted";
  EXPECT_FALSE(queue.drain(7, false, &delivered, &lost));
  EXPECT_FALSE(queue.drain(1, true, &delivered, &lost)) << "two were acknowledged";
  EXPECT_TRUE(queue.drain(4, true, &delivered, &lost));
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[0].cookie, 2u);
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].cookie, 4u);
  EXPECT_EQ(queue.requests() + queue.bytes(), 0u);
}

TEST(RcPosted, EveryCountThatAPeerMayTell) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    Rng random(seed);
    PostedQueue queue;
    const auto posted = static_cast<std::uint32_t>(random.below(40));
    for (std::uint32_t i = 0; i < posted; ++i) queue.push({.cookie = i});
    const auto arrived = static_cast<std::uint32_t>(random.below(posted + 1));
    const auto acknowledged = static_cast<std::uint32_t>(random.below(arrived + 1));
    Posting posting;
    while (acknowledged > 0 && queue.acknowledged(acknowledged - 1, &posting)) {
    }
    const bool exact = random.chance(0.5);
    const auto taken = exact ? arrived : static_cast<std::uint32_t>(random.below(arrived + 1));
    std::vector<Posting> delivered;
    std::vector<Posting> lost;
    ASSERT_TRUE(queue.drain(taken, exact, &delivered, &lost)) << "seed " << seed;
    const std::uint32_t done = std::max(taken, acknowledged);
    ASSERT_EQ(delivered.size(), done - acknowledged);
    ASSERT_EQ(lost.size(), posted - done);
    for (std::uint32_t i = 0; i < lost.size(); ++i) ASSERT_EQ(lost[i].cookie, done + i);
  }
}

// A NIC acknowledges before the peer's program has taken it from its completion queue.
TEST(RcPosted, APeerThatClosesMayHaveTakenLessThanWasAcknowledged) {
  PostedQueue queue;
  for (std::uint32_t i = 0; i < 3; ++i) queue.push({.cookie = i});
  Posting posting;
  while (queue.acknowledged(1, &posting)) {
  }
  std::vector<Posting> delivered;
  std::vector<Posting> lost;
  EXPECT_TRUE(queue.drain(0, false, &delivered, &lost));
  EXPECT_EQ(delivered.size(), 0u);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].cookie, 2u);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace clustar::transport::verbs
