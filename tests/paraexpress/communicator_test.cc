// All operations of a communicator: ranks in threads, over real transports; and its pure parts.
#include "paraexpress/communicator/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "paraexpress/communicator/core/matching.h"
#include "paraexpress/communicator/core/note.h"
#include "paraexpress/communicator/core/standing.h"
#include "tests/conformance/transport_under_test.h"

namespace clustar::paraexpress {
namespace {

using std::chrono::steady_clock;
using testing::HasSubstr;
using transport::conformance::TransportUnderTest;

TEST(Note, SurvivesTheWire) {
  const Note note{NoteKind::kOffer, true, {Use::kScatter, 0x123456789abcdef0}, 77, 3};
  std::array<std::byte, kNoteBytes + 3> bytes{};
  encode_note(note, std::span(bytes).first<kNoteBytes>());
  EXPECT_EQ(parse_note(bytes), note);
  EXPECT_FALSE(parse_note(std::span(bytes).first(kNoteBytes + 2))) << "it carries less than it says";
  EXPECT_FALSE(parse_note(std::span(bytes).first(kNoteBytes - 1)));
  for (const std::size_t at : {0, 1, 2, 3}) {
    auto wrong = bytes;
    wrong[at] = std::byte{0xff};
    EXPECT_FALSE(parse_note(wrong)) << at;
  }
  encode_note({NoteKind::kOffer, false, {Use::kScatter, 1}, 77, 3}, std::span(bytes).first<kNoteBytes>());
  EXPECT_FALSE(parse_note(std::span(bytes).first<kNoteBytes>())) << "its receiver has no registered memory for 3 bytes";
}

TEST(Matching, TakesTheFirstThatFits) {
  Matching matching;
  const auto offer = [](Member from, std::uint64_t tag, std::uint32_t id) {
    return Offer{from, {Use::kMessage, tag}, 8, id, false, {}};
  };
  for (auto one : {offer(1, 5, 1), offer(2, 5, 2), offer(1, 6, 3), offer(1, 5, 4)}) EXPECT_FALSE(matching.offer(one));
  EXPECT_EQ(matching.want({1, {Use::kMessage, 6}, 10})->id, 3u);
  EXPECT_EQ(matching.want({kAnyMember, {Use::kMessage, 5}, 11})->id, 1u);
  EXPECT_EQ(matching.want({1, {Use::kMessage, 5}, 12})->id, 4u);
  EXPECT_FALSE(matching.want({1, {Use::kMessage, 5}, 13}));
  EXPECT_FALSE(matching.want({kAnyMember, {Use::kMessage, 9}, 14}));
  auto late = offer(1, 5, 5);
  EXPECT_EQ(matching.offer(late)->id, 13u);
  EXPECT_TRUE(matching.withdraw(14));
  EXPECT_FALSE(matching.withdraw(14));
}

TEST(Matching, SeesThatACollectiveIsInVain) {
  Matching matching;
  ASSERT_FALSE(matching.want({1, {Use::kGather, 4}, 1}));
  EXPECT_FALSE(matching.contradicted({1, {Use::kGather, 3}, 0, 0, false, {}}));
  EXPECT_FALSE(matching.contradicted({1, {Use::kMessage, 9}, 0, 0, false, {}}));
  EXPECT_FALSE(matching.contradicted({2, {Use::kGather, 9}, 0, 0, false, {}}));
  EXPECT_EQ(matching.contradicted({1, {Use::kGather, 5}, 0, 0, false, {}})->id, 1u);
  EXPECT_EQ(matching.contradicted({1, {Use::kScatter, 4}, 0, 0, false, {}})->id, 1u);
}

TEST(Standings, TellLateFromWrong) {
  const auto sum = [](std::uint64_t number, std::uint64_t count) {
    return Standing{number, pack(static_cast<std::uint8_t>(TaskKind::kAllReduce), 7, 0, 0), count};
  };
  Standings standings;
  EXPECT_FALSE(standings.begun(sum(1, 100)));
  EXPECT_FALSE(standings.heard(2, sum(1, 100)));
  EXPECT_THAT(*standings.heard(2, sum(1, 101)), HasSubstr("all_reduce of 101 elements"));
  EXPECT_FALSE(standings.heard(2, sum(2, 5))) << "this rank is only late";
  EXPECT_THAT(*standings.begun(sum(2, 6)), HasSubstr("of rank 2"));
}

class CommunicatorOver : public testing::TestWithParam<TransportUnderTest> {
 protected:
  // Each rank in a thread.
  void with_ranks(std::uint32_t n, const std::function<void(Communicator&, Member)>& body) {
    const auto root = bench::proxy::Bootstrap::pick_loopback_root();
    ASSERT_TRUE(root);
    std::vector<std::thread> threads;
    for (Member rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        auto bootstrap =
            bench::proxy::Bootstrap::join({.rank = static_cast<int>(rank), .size = static_cast<int>(n), .root = *root});
        ASSERT_TRUE(bootstrap) << bootstrap.error().message;
        auto transport = GetParam().create({});
        ASSERT_TRUE(transport) << transport.error().message;
        CommunicatorOptions options;
        options.rank = rank;
        options.ranks = n;
        auto made = Communicator::create(
            **transport, [&](std::span<const std::byte> mine) { return (*bootstrap)->all_gather(mine); }, options);
        ASSERT_TRUE(made) << made.error().message;
        body(**made, rank);
        (*made)->close();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static std::future<Result<Member>> start(Communicator& communicator, Task task) {
    const auto promise = std::make_shared<std::promise<Result<Member>>>();
    task.ended = [promise](const Result<Member>& outcome) { promise->set_value(outcome); };
    communicator.start(std::move(task));
    return promise->get_future();
  }

  // A message of floats, all of this value; a receive checks them.
  static Task message(bool sends, Member peer, std::uint64_t tag, std::size_t count, float value) {
    Task task;
    task.name = "message";
    task.kind = TaskKind::kMessage;
    task.tag = tag;
    task.staged = count * sizeof(float);
    task.transfers = {{sends, peer, 0, task.staged}};
    const auto each = [count](std::byte* memory, const std::function<void(float&)>& visit) {
      for (std::size_t i = 0; i < count; ++i) {
        float one = 0;
        std::memcpy(&one, memory + i * sizeof one, sizeof one);
        visit(one);
        std::memcpy(memory + i * sizeof one, &one, sizeof one);
      }
    };
    if (sends) task.fill = [=](std::byte* memory) { each(memory, [&](float& one) { one = value; }); };
    if (!sends) task.take = [=](std::byte* memory) { each(memory, [&](float& one) { EXPECT_EQ(one, value); }); };
    return task;
  }
};

TEST_P(CommunicatorOver, MessagesInCrossedOrders) {
  with_ranks(3, [](Communicator& communicator, Member rank) {
    std::vector<std::future<Result<Member>>> all;
    const Member to = (rank + 1) % 3, from = (rank + 2) % 3;
    for (std::uint64_t tag = 0; tag < 100; ++tag) {
      all.push_back(start(communicator, message(true, to, tag, tag % 2 ? 4000 : 4, static_cast<float>(tag + rank))));
    }
    for (std::uint64_t tag = 100; tag-- > 0;) {
      const Member peer = tag % 3 == 0 ? kAnyMember : from;
      all.push_back(start(communicator, message(false, peer, tag, tag % 2 ? 4000 : 4, static_cast<float>(tag + from))));
    }
    for (auto& one : all) {
      const auto outcome = one.get();
      EXPECT_TRUE(outcome) << outcome.error().message;
    }
  });
}

TEST_P(CommunicatorOver, ALateMessageEndsAloneAndALateCollectiveEndsAll) {
  with_ranks(2, [](Communicator& communicator, Member rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
      return;
    }
    Task late = message(false, 1, 7, 4, 0);
    late.deadline = steady_clock::now() + std::chrono::milliseconds(100);
    const auto alone = start(communicator, std::move(late)).get();
    ASSERT_FALSE(alone);
    EXPECT_THAT(alone.error().message, HasSubstr("timeout"));
    Task barrier;
    barrier.name = "barrier";
    barrier.deadline = steady_clock::now() + std::chrono::milliseconds(200);
    auto other = start(communicator, message(false, 1, 8, 4, 0));
    EXPECT_FALSE(start(communicator, std::move(barrier)).get());
    EXPECT_FALSE(other.get());
  });
}

TEST_P(CommunicatorOver, WhatIsUnderWayEndsWithTheCommunicator) {
  with_ranks(2, [](Communicator& communicator, Member rank) {
    if (rank == 1) return;
    auto waiting = start(communicator, message(false, 1, 1, 4, 0));
    communicator.close();
    EXPECT_FALSE(waiting.get());
    EXPECT_FALSE(start(communicator, message(true, 1, 1, 4, 0)).get());
  });
}

INSTANTIATE_TEST_SUITE_P(, CommunicatorOver,
                         testing::Values(transport::conformance::tcp_under_test().front(),
                                         transport::conformance::mlt_under_test().front()),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace clustar::paraexpress
