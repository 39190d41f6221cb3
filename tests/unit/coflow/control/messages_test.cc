#include "coflow/control/core/messages.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::coflow::control {
namespace {

std::string some_text(Rng& rng, std::size_t most) {
  std::string text;
  for (std::uint64_t left = rng.below(most + 1); left-- > 0;) text += static_cast<char>(' ' + rng.below(95));
  return text;
}

ClassKey some_key(Rng& rng) {
  return {static_cast<std::uint32_t>(rng.next()), rng.next(), static_cast<std::uint8_t>(rng.below(256))};
}

Message some_message(Rng& rng) {
  const auto us = [&] { return std::chrono::microseconds(rng.below(3'600'000'000)); };
  switch (rng.below(6)) {
    case 0: {
      Hello hello{rng.below(2) == 0 ? Role::kAgent : Role::kStandby,
                  rng.next(),
                  static_cast<std::uint32_t>(rng.next()),
                  static_cast<std::uint32_t>(1 + rng.below(1000)),
                  rng.next(),
                  {rng.next(), rng.next()},
                  some_text(rng, kMostName),
                  some_text(rng, kMostName),
                  some_text(rng, kMostName),
                  {}};
      for (std::uint64_t i = rng.below(kMostAddresses + 1); i-- > 0;) {
        hello.addresses.push_back(static_cast<std::uint32_t>(rng.next()));
      }
      return hello;
    }
    case 1: {
      Report report;
      for (std::uint64_t i = rng.below(4); i-- > 0;) {
        ClassReport one{some_key(rng),
                        static_cast<std::uint8_t>(rng.below(4)),
                        rng.below(2) == 0,
                        rng.below(2) == 0,
                        rng.below(2) == 0,
                        rng.next(),
                        rng.next(),
                        rng.next(),
                        static_cast<std::uint32_t>(rng.next()),
                        static_cast<std::uint32_t>(rng.next()),
                        static_cast<std::uint32_t>(rng.next()),
                        {}};
        for (std::uint64_t p = rng.below(kMostPeers + 1); p-- > 0;) {
          one.peers.push_back({static_cast<std::uint32_t>(rng.next()), rng.next()});
        }
        report.classes.push_back(one);
      }
      return report;
    }
    case 2: return Welcome{rng.next(), us(), us()};
    case 3: {
      Order order{{rng.next(), rng.next()}, us(), rng.below(2) == 0, {}};
      for (std::uint64_t i = rng.below(9); i-- > 0;) {
        order.classes.push_back({some_key(rng), static_cast<std::uint32_t>(rng.next()),
                                 static_cast<std::uint8_t>(rng.below(16)), static_cast<std::uint32_t>(rng.next()),
                                 rng.next(), static_cast<Promise>(rng.below(3))});
      }
      return order;
    }
    case 4:
      return Refusal{static_cast<RefusalReason>(rng.below(7)), some_text(rng, kMostText), some_text(rng, kMostName)};
    default: return Bye{};
  }
}

TEST(ControlMessages, ComeBackAsTheyWere) {
  Rng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    const Message message = some_message(rng);
    const auto frame = serialize(message);
    ASSERT_LE(frame.size(), kMostFrame);
    const auto back = parse(frame);
    ASSERT_TRUE(back) << "message " << i;
    ASSERT_EQ(*back, message);
  }
}

TEST(ControlMessages, ShorterOrLongerOnesAreNone) {
  Rng rng(2);
  for (int i = 0; i < 2'000; ++i) {
    auto frame = serialize(some_message(rng));
    frame.push_back(std::byte{0});
    ASSERT_FALSE(parse(frame));
    frame.pop_back();
    for (int cut = 0; cut < 4 && !frame.empty(); ++cut) {
      frame.pop_back();
      ASSERT_FALSE(parse(frame));
    }
  }
}

TEST(ControlMessages, WhateverIsReadCanBeSaid) {
  Rng rng(3);
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    auto frame = serialize(some_message(rng));
    for (std::uint64_t flips = 1 + rng.below(3); flips-- > 0;) {
      frame[rng.below(frame.size())] ^= static_cast<std::byte>(1 + rng.below(255));
    }
    const auto message = parse(frame);
    if (!message) continue;
    ++read;
    const auto again = parse(serialize(*message));
    ASSERT_TRUE(again);
    ASSERT_EQ(*again, *message);
  }
  EXPECT_GT(read, 1000);
}

TEST(ControlMessages, TheLargestFitIntoAFrame) {
  Report report;
  report.classes.resize(kMostReported);
  for (ClassReport& one : report.classes) one.peers.resize(kMostPeers);
  EXPECT_LE(serialize(report).size(), kMostFrame);
  Order order;
  order.classes.resize(kMostClasses);
  EXPECT_LE(serialize(order).size(), kMostFrame);
}

TEST(ControlMessages, NamesThatATerminalWouldObeyAreRefused) {
  Hello hello;
  hello.host = "node\x1b[2J";
  EXPECT_FALSE(parse(serialize(hello)));
}

}  // namespace
}  // namespace clustar::coflow::control
