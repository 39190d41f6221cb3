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
  RequestPool<PooledRequest> requests{this, 3};
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
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_EQ(channel.requests.outstanding(), 3u);
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
