#include "gdr/emulated_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace clustar::gdr {
namespace {

std::vector<std::byte> filled(std::size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

TEST(GdrEmulatedCopy, BytesMoveWhenACopyIsDoneAndNotBefore) {
  EmulatedCopy copy({.seed = 3, .most_polls = 5, .most_outstanding = 64});
  const auto buffer = std::move(copy.host_buffer(4096).value());
  std::fill(buffer->bytes().begin(), buffer->bytes().end(), std::byte{7});
  std::size_t most_polls = 0;
  for (int i = 0; i < 64; ++i) {
    auto device = filled(100, 1);
    const auto ticket = copy.to_device(device.data(), buffer->bytes().data() + i, 100).value();
    ASSERT_TRUE(ticket);
    std::size_t polls = 1;
    EXPECT_EQ(device, filled(100, 1));
    for (; !copy.done(*ticket).value(); ++polls) EXPECT_EQ(device, filled(100, 1));
    EXPECT_EQ(device, filled(100, 7));
    EXPECT_LE(polls, 5u);
    most_polls = std::max(most_polls, polls);
    std::fill(device.begin(), device.end(), std::byte{9});
    for (int again = 0; again < 3; ++again) EXPECT_TRUE(copy.done(*ticket).value());
    EXPECT_EQ(device, filled(100, 9)) << "it was done before";
  }
  EXPECT_EQ(most_polls, 5u);
}

TEST(GdrEmulatedCopy, CopiesBothWaysAndRefusesGentlyWhenFull) {
  EmulatedCopy copy({.seed = 1, .most_polls = 3, .most_outstanding = 2});
  const auto buffer = std::move(copy.host_buffer(100).value());
  const auto zeros = std::move(copy.host_buffer(50).value());
  std::fill(zeros->bytes().begin(), zeros->bytes().end(), std::byte{0});
  auto device = filled(100, 5);
  const auto one = copy.to_host(buffer->bytes().data(), device.data(), 100).value();
  auto other = filled(50, 6);
  const auto two = copy.to_device(other.data(), zeros->bytes().data(), 50).value();
  ASSERT_TRUE(one && two);
  const auto full = copy.to_device(other.data(), zeros->bytes().data(), 50);
  ASSERT_TRUE(full) << "being full is no error";
  EXPECT_FALSE(*full);
  while (!copy.done(*two).value()) continue;
  EXPECT_EQ(other, filled(50, 0));
  EXPECT_TRUE(copy.to_device(other.data(), zeros->bytes().data(), 50).value());
  while (!copy.done(*one).value()) continue;
  EXPECT_TRUE(std::equal(device.begin(), device.end(), buffer->bytes().begin()));
}

TEST(GdrEmulatedCopy, TheSameSeedEndsInTheSameOrder) {
  const auto order = [](std::uint64_t seed) {
    EmulatedCopy copy({.seed = seed, .most_polls = 6, .most_outstanding = 8});
    const auto buffer = std::move(copy.host_buffer(1).value());
    std::vector<std::byte> device(8);
    std::vector<EmulatedCopy::Ticket> open;
    for (std::byte& byte : device) open.push_back(**copy.to_device(&byte, buffer->bytes().data(), 1));
    std::vector<EmulatedCopy::Ticket> ended;
    while (!open.empty()) {
      std::erase_if(open, [&](EmulatedCopy::Ticket ticket) {
        if (!copy.done(ticket).value()) return false;
        ended.push_back(ticket);
        return true;
      });
    }
    return ended;
  };
  EXPECT_EQ(order(9), order(9));
  const auto one = order(9);
  EXPECT_FALSE(std::is_sorted(one.begin(), one.end()));
}

TEST(GdrEmulatedCopy, WhatHasNotEndedWithTheObjectIsNotWritten) {
  auto device = filled(10, 1);
  {
    EmulatedCopy copy({});
    const auto buffer = std::move(copy.host_buffer(10).value());
    EXPECT_TRUE(copy.to_device(device.data(), buffer->bytes().data(), 10).value());
  }
  EXPECT_EQ(device, filled(10, 1));
}

TEST(GdrEmulatedCopy, ABufferThatEndsFirstIsKeptForItsCopies) {
  EmulatedCopy copy({.seed = 1, .most_polls = 9});
  auto buffer = std::move(copy.host_buffer(1 << 20).value());
  std::fill(buffer->bytes().begin(), buffer->bytes().end(), std::byte{7});
  auto device = filled(1 << 20, 1);
  const auto ticket = copy.to_device(device.data(), buffer->bytes().data(), device.size()).value();
  ASSERT_TRUE(ticket);
  buffer.reset();
  while (!copy.done(*ticket).value()) continue;
  EXPECT_EQ(device, filled(1 << 20, 7));
}

TEST(GdrEmulatedCopy, HostMemoryIsItsOwnAndBounded) {
  EmulatedCopy copy({.most_host_bytes = 100});
  auto buffer = std::move(copy.host_buffer(60).value());
  EXPECT_FALSE(copy.host_buffer(41));
  auto device = filled(60, 1);
  auto elsewhere = filled(60, 2);
  EXPECT_FALSE(copy.to_device(device.data(), elsewhere.data(), 60));
  EXPECT_FALSE(copy.to_device(device.data(), buffer->bytes().data() + 1, 60)) << "its last byte is outside";
  EXPECT_FALSE(copy.to_host(buffer->bytes().data(), device.data(), 0));
  EXPECT_TRUE(copy.to_device(device.data(), buffer->bytes().data(), 60));
  std::byte* const address = buffer->bytes().data();
  buffer.reset();
  EXPECT_FALSE(copy.to_device(device.data(), address, 60)) << "the buffer is gone";
  EXPECT_TRUE(copy.host_buffer(100));
}

}  // namespace
}  // namespace clustar::gdr
