#include "transport/message/memory_anchor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

namespace clustar::transport {
namespace {

struct AnchoredChannel {
  void on_deregister(const Mr& mr) { gone.push_back(mr.memory().length); }
  std::vector<std::size_t> gone;  // their lengths
};
using Anchor = MemoryAnchor<AnchoredChannel>;

struct AnchoredMr final : Mr {
  explicit AnchoredMr(std::shared_ptr<Anchor> to) : Mr(gdr::MemoryRef::host(nullptr, 7)), anchor(std::move(to)) {}
  ~AnchoredMr() override { anchor->deregister(*this); }
  std::shared_ptr<Anchor> anchor;
};

struct MemoryAnchorTest : ::testing::Test {
  std::mutex nic;
  AnchoredChannel channel;
  std::shared_ptr<Anchor> anchor = std::make_shared<Anchor>(nic, &channel);
};

TEST_F(MemoryAnchorTest, TheChannelHearsOfItsMemory) {
  auto mr = std::make_unique<AnchoredMr>(anchor);
  mr.reset();
  EXPECT_EQ(channel.gone, std::vector<std::size_t>{7});
}

TEST_F(MemoryAnchorTest, ARegistrationOutlivesItsChannel) {
  auto mr = std::make_unique<AnchoredMr>(anchor);
  {
    const std::lock_guard lock(nic);
    anchor->let_go();
  }
  anchor.reset();
  mr.reset();
  EXPECT_TRUE(channel.gone.empty());
}

TEST_F(MemoryAnchorTest, WaitsForWhoDrivesTheChannel) {
  auto mr = std::make_unique<AnchoredMr>(anchor);
  std::unique_lock driving(nic);
  auto gone = std::async(std::launch::async, [&] { mr.reset(); });
  EXPECT_EQ(gone.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_TRUE(channel.gone.empty());
  driving.unlock();
  gone.get();
  EXPECT_EQ(channel.gone.size(), 1u);
}

TEST_F(MemoryAnchorTest, WhatEndsWithTheRegistrationEndsUnderTheLock) {
  const AnchoredMr mr(anchor);
  bool held = false;
  anchor->deregister(mr, [&] {
    held = !std::async(std::launch::async, [&] {
              const std::unique_lock tried(nic, std::try_to_lock);
              return tried.owns_lock();
            }).get();
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace clustar::transport
