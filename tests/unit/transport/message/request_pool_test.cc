#include "transport/message/request_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

namespace clustar::transport {
namespace {

struct Channel;
struct PooledRequest {
  Channel* channel = nullptr;
  std::uint32_t index = 0;
  std::atomic<bool> done{true};  // as the real ones: it cannot be moved
};
struct Channel {
  RequestPool<PooledRequest> requests{this, 100};
};

TEST(RequestPool, GivesOutEachOnceAndKnowsWhoseItIs) {
  Channel channel;
  std::set<PooledRequest*> taken;
  while (channel.requests.has_room()) {
    PooledRequest& request = channel.requests.take();
    EXPECT_EQ(request.channel, &channel);
    EXPECT_EQ(&channel.requests[request.index], &request);
    EXPECT_TRUE(taken.insert(&request).second);
  }
  EXPECT_EQ(taken.size(), 100u);
  EXPECT_EQ(channel.requests.outstanding(), 100u);
}

TEST(RequestPool, MakesOnlyAsManyAsWereOutstandingAtATime) {
  Channel channel;
  const auto made = [&] {
    int count = 0;
    channel.requests.for_each([&](PooledRequest&) { ++count; });
    EXPECT_EQ(channel.requests.any_of([](const PooledRequest&) { return true; }), count > 0);
    return count;
  };
  EXPECT_EQ(made(), 0);
  for (int i = 0; i < 10; ++i) channel.requests.give_back(channel.requests.take());
  const int few = made();
  EXPECT_GT(few, 0);
  EXPECT_EQ(channel.requests.outstanding(), 0u);
  std::set<PooledRequest*> taken;
  for (int i = 0; i < 100; ++i) taken.insert(&channel.requests.take());
  EXPECT_EQ(taken.size(), 100u);
  EXPECT_GT(made(), few);
  for (PooledRequest* request : taken) EXPECT_EQ(&channel.requests[request->index], request);
}

TEST(RequestPool, WhatWasGivenBackIsGivenOutAgain) {
  Channel channel;
  PooledRequest& first = channel.requests.take();
  channel.requests.take();
  channel.requests.give_back(first);
  EXPECT_EQ(channel.requests.outstanding(), 1u);
  EXPECT_EQ(&channel.requests.take(), &first);
}

}  // namespace
}  // namespace clustar::transport
