// What the plugin remembers of received collectives, and how a message becomes a coflow.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/api/reception_book.h"
#include "nccl_plugin/net/message_flow.h"

namespace clustar::nccl_plugin {
namespace {

using transport::MessageIdentity;
using transport::MissingRange;
using transport::Progress;
using transport::ReceivedMessage;

MessageIdentity all_reduce(std::uint64_t number, std::uint32_t transfer = 0, std::uint16_t channel = 0) {
  MessageIdentity identity;
  identity.known = true;
  identity.communicator = 77;
  identity.number = number;
  identity.total_bytes = 8 << 20;
  identity.transfer = transfer;
  identity.channel = channel;
  identity.function = nccl_abi::kAllReduce;
  identity.datatype = 7;
  identity.algorithm = nccl_abi::kRing;
  identity.protocol = nccl_abi::kSimple;
  return identity;
}

struct Received {
  std::vector<std::size_t> sizes;
  std::vector<MissingRange> missing;
  std::vector<ReceivedMessage> messages;
  Progress progress() const { return {true, sizes, missing, messages}; }
};

Received tolerant(const MessageIdentity& identity, std::size_t size, std::uint16_t ranks, std::uint16_t stage,
                  std::vector<MissingRange> missing) {
  Received received;
  received.sizes = {size};
  received.missing = std::move(missing);
  ReceivedMessage message;
  message.identity = identity;
  message.loss.ranks = ranks;
  message.loss.stage = stage;
  message.loss.tolerance_ppm = 10'000;
  received.messages = {message};
  return received;
}

TEST(ReceptionBook, CountsWhatCameAndWhatIsMissing) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  // n = 4: a loop is 2 * 3 stages of 2 slices = 12 transfers; t = 12 + 5 is loop 1, stage 2, slice 1.
  book.add(tolerant(all_reduce(3, 17, 2), 1000, 4, 2, {{0, 100, 50}, {0, 900, 100}}).progress());
  book.add(tolerant(all_reduce(3, 0), 500, 4, 0, {}).progress());
  const auto found = book.find({77, 3, nccl_abi::kAllReduce, false});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->messages, 2u);
  EXPECT_EQ(found->delivered_bytes, 1350u);
  EXPECT_EQ(found->missing_bytes, 150u);
  EXPECT_EQ(found->eligible_bytes, 1500u);
  EXPECT_EQ(found->contributions, 150u * 3);
  EXPECT_EQ(found->missing_ranges, 2u);
  EXPECT_EQ(book.totals().missing_bytes, 150u);
  EXPECT_EQ(book.totals().eligible_bytes, 1500u);
  const auto holes = book.holes({77, 3, nccl_abi::kAllReduce, false})->kept;
  ASSERT_EQ(holes.size(), 2u);
  EXPECT_EQ(holes[1].channel, 2u);
  EXPECT_EQ(holes[1].loop, 1u);
  EXPECT_EQ(holes[1].stage, 2u);
  EXPECT_EQ(holes[1].slice, 1u);
  EXPECT_EQ(holes[1].offset, 900u);
  EXPECT_EQ(holes[1].bytes, 100u);
}

TEST(ReceptionBook, PartsOfOneReceiveBelongToTheirOwnMessages) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  Received received = tolerant(all_reduce(1), 100, 2, 0, {{1, 10, 5}});
  received.sizes.push_back(200);
  received.messages.push_back(received.messages[0]);
  received.messages[1].identity.number = 2;
  book.add(received.progress());
  EXPECT_EQ(book.find({77, 1, nccl_abi::kAllReduce, false})->missing_bytes, 0u);
  EXPECT_EQ(book.find({77, 2, nccl_abi::kAllReduce, false})->missing_bytes, 5u);
}

TEST(ReceptionBook, ReplaysOfAGraphAreNotTheCollectivesThatNcclNumbered) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  MessageIdentity replay = all_reduce(3);
  replay.local_number = true;
  book.add(tolerant(all_reduce(3), 1000, 4, 0, {{0, 0, 10}}).progress());
  book.add(tolerant(replay, 500, 4, 0, {}).progress());
  EXPECT_EQ(book.find({77, 3, nccl_abi::kAllReduce, false})->missing_bytes, 10u);
  EXPECT_EQ(book.find({77, 3, nccl_abi::kAllReduce, true})->delivered_bytes, 500u);
}

TEST(ReceptionBook, SendsOfEachRankAreTheirOwn) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  MessageIdentity send = all_reduce(3, 5, 2);
  send.function = nccl_abi::kSend;
  send.local_number = true;
  for (const std::uint16_t sender : {0, 1, 7}) {
    send.sender = sender;
    book.add(tolerant(send, 1000, 8, 0, {{0, sender, 10}}).progress());
  }
  EXPECT_FALSE(book.find({77, 3, nccl_abi::kSend, true})) << "of no rank";
  for (const std::uint16_t sender : {0, 1, 7}) {
    const CollectiveKey key{77, 3, nccl_abi::kSend, true, sender};
    ASSERT_TRUE(book.find(key));
    EXPECT_EQ(book.find(key)->identity.sender, sender);
    EXPECT_EQ(book.find(key)->missing_bytes, 10u);
    const auto holes = book.holes(key)->kept;
    ASSERT_EQ(holes.size(), 1u);
    EXPECT_EQ(holes[0].offset, sender);
    EXPECT_EQ(holes[0].channel, 2u);
    EXPECT_EQ(holes[0].loop, 0u);
    EXPECT_EQ(holes[0].slice, 5u) << "the transfer";
  }
}

TEST(ReceptionBook, WhatOwnSendsLostIsKeptByReceiver) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  transport::FlowTag tag;
  tag.identity = all_reduce(3, 5, 2);
  tag.identity.function = nccl_abi::kSend;
  tag.identity.local_number = true;
  tag.identity.sender = 1;
  tag.receiver = 6;
  tag.loss.tolerance_ppm = 10'000;
  tag.loss.exchange = true;
  const std::size_t size = 1000;
  const MissingRange hole{0, 100, 50};
  Progress progress{true, std::span(&size, 1), std::span(&hole, 1), {}, &tag};
  book.add_sent(progress);
  EXPECT_FALSE(book.find({77, 3, nccl_abi::kSend, true, 1}));
  const auto holes = book.holes({77, 3, nccl_abi::kSend, true, 6})->kept;
  ASSERT_EQ(holes.size(), 1u);
  EXPECT_EQ(holes[0].offset, 100u);
  EXPECT_EQ(holes[0].bytes, 50u);
  EXPECT_EQ(book.find({77, 3, nccl_abi::kSend, true, 6})->eligible_bytes, 1000u);
}

TEST(ReceptionBook, UnidentifiedAndReliableMessagesCountInTheTotalsOnly) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  Received received;
  received.sizes = {300};
  received.messages.resize(1);
  book.add(received.progress());
  EXPECT_EQ(book.totals().delivered_bytes, 300u);
  EXPECT_EQ(book.totals().eligible_bytes, 0u);
  EXPECT_TRUE(book.list(10).empty());
}

TEST(ReceptionBook, KeepsTheNewestAndListsThemNewestFirst) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  constexpr std::uint64_t kMany = 3 * ReceptionBook::kSets * ReceptionBook::kWays;
  for (std::uint64_t i = 0; i < kMany; ++i) book.add(tolerant(all_reduce(i), 10, 2, 0, {{0, 0, 1}}).progress());
  EXPECT_FALSE(book.find({77, 0, nccl_abi::kAllReduce, false}));
  EXPECT_FALSE(book.holes({77, 0, nccl_abi::kAllReduce, false}));
  const auto newest = book.list(100);
  ASSERT_EQ(newest.size(), 100u);
  for (std::size_t i = 0; i < newest.size(); ++i) EXPECT_EQ(newest[i].identity.number, kMany - 1 - i);
  EXPECT_EQ(book.list(1 << 20).size(), ReceptionBook::kSets * ReceptionBook::kWays);
  EXPECT_EQ(book.holes({77, kMany - 1, nccl_abi::kAllReduce, false})->kept.size(), 1u);
}

TEST(ReceptionBook, HolesArePushedOutByNewerOnesButStayCounted) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  const CollectiveKey key{77, 5, nccl_abi::kAllReduce, false};
  for (std::size_t i = 0; i < ReceptionBook::kHoles + 10; ++i) {
    book.add(tolerant(all_reduce(5), 10, 2, 0, {{0, i, 1}}).progress());
  }
  const auto holes = book.holes(key);
  ASSERT_TRUE(holes);
  ASSERT_EQ(holes->kept.size(), ReceptionBook::kHoles);
  EXPECT_EQ(holes->kept.front().offset, 10u);
  EXPECT_EQ(holes->all, ReceptionBook::kHoles + 10);
  EXPECT_EQ(book.find(key)->missing_ranges, ReceptionBook::kHoles + 10);
}

// Of records among each other, each has its own and no other's.
TEST(ReceptionBook, HolesOfManyRecordsAreToldApart) {
  const auto owner = std::make_unique<ReceptionBook>();
  ReceptionBook& book = *owner;
  constexpr std::uint64_t kRecords = 40;
  for (std::uint64_t round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      if (i % 3 == 0) {
        book.add(tolerant(all_reduce(i), 1000, 2, 0, {}).progress());
      } else {
        book.add(tolerant(all_reduce(i), 1000, 2, 0, {{0, round * kRecords + i, 1}}).progress());
      }
    }
  }
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const auto holes = book.holes({77, i, nccl_abi::kAllReduce, false});
    ASSERT_TRUE(holes);
    ASSERT_EQ(holes->kept.size(), i % 3 == 0 ? 0u : 10u);
    ASSERT_EQ(holes->all, holes->kept.size());
    for (std::uint64_t round = 0; round < holes->kept.size(); ++round) {
      EXPECT_EQ(holes->kept[round].offset, round * kRecords + i);
    }
  }
}

TEST(MessageFlow, CoflowsDifferByCommunicatorFunctionAndNumberOnly) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t comm = 0; comm < 8; ++comm) {
    for (std::uint8_t function = 0; function < 11; ++function) {
      for (std::uint64_t number = 0; number < 64; ++number) {
        MessageIdentity identity = all_reduce(number);
        identity.communicator = comm;
        identity.function = function;
        const std::uint64_t id = coflow_of(identity);
        EXPECT_NE(id, 0u);
        EXPECT_TRUE(seen.insert(id).second);
        identity.transfer = 9;
        identity.channel = 3;
        EXPECT_EQ(coflow_of(identity), id);
      }
    }
  }
  EXPECT_EQ(coflow_of(MessageIdentity{}), 0u);
}

TEST(MessageFlow, EdgeBytesOfARing) {
  EXPECT_EQ(edge_bytes(nccl_abi::kAllReduce, 1000, 4), 1500u);
  EXPECT_EQ(edge_bytes(nccl_abi::kReduceScatter, 1000, 4), 750u);
  EXPECT_EQ(edge_bytes(nccl_abi::kAllGather, 250, 4), 750u);
  EXPECT_EQ(edge_bytes(nccl_abi::kBroadcast, 1000, 4), 1000u);
  EXPECT_EQ(edge_bytes(nccl_abi::kAllReduce, 1001, 1), 1001u);
}

TEST(MessageFlow, WithoutAProfilerNothingIsIdentifiedAndNothingIsLost) {
  const MessageFlow flow = flow_of(LossPolicy(), nullptr, nullptr, {}, {}, 1 << 20, 3);
  EXPECT_FALSE(flow.tag.identity.known);
  EXPECT_EQ(flow.tag.loss.tolerance_ppm, 0u);
  EXPECT_EQ(flow.tag.coflow, 0u);
  EXPECT_EQ(flow.tag.traffic_class, 3);
  EXPECT_NE(flow.reason, Reason::kLossy);
}

}  // namespace
}  // namespace clustar::nccl_plugin
