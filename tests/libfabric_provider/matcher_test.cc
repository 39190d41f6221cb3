#include "libfabric_shim/provider/core/matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace clustar::libfabric_shim::provider {
namespace {

// What the manual says, word for word: two lists, searched from their oldest.
class Model {
 public:
  static bool fits(const Matcher::Receive& r, const Matcher::Message& m) {
    if (r.source != kAnySource && r.source != m.source) return false;
    return (r.tag | r.ignore) == (m.tag | r.ignore);
  }
  std::optional<std::uint64_t> post(const Matcher::Receive& r) {
    auto got = claim(r);
    if (!got) receives.push_back(r);
    return got;
  }
  std::optional<std::uint64_t> arrive(const Matcher::Message& m) {
    for (std::size_t i = 0; i < receives.size(); ++i) {
      if (!fits(receives[i], m)) continue;
      const auto id = receives[i].id;
      receives.erase(receives.begin() + static_cast<std::ptrdiff_t>(i));
      return id;
    }
    messages.push_back(m);
    return std::nullopt;
  }
  std::optional<std::uint64_t> peek(const Matcher::Receive& r) const {
    for (const auto& m : messages) {
      if (fits(r, m)) return m.id;
    }
    return std::nullopt;
  }
  std::optional<std::uint64_t> claim(const Matcher::Receive& r) {
    const auto id = peek(r);
    if (id) std::erase_if(messages, [&](const auto& m) { return m.id == *id; });
    return id;
  }
  bool cancel(std::uint64_t id) {
    return std::erase_if(receives, [&](const auto& r) { return r.id == id; }) > 0;
  }

  std::vector<Matcher::Receive> receives;
  std::vector<Matcher::Message> messages;
};

// One history: posts, arrivals, peeks, claims and cancels in random order. Few tags and sources, so that most fit many.
void run_history(std::uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const std::uint32_t tags = 1 + below(8), sources = 1 + below(4), bias = below(3);
  Matcher matcher;
  Model model;
  std::uint64_t next = 1;
  const auto receive = [&] {
    Matcher::Receive r{.id = next++};
    r.source = below(3) == 0 ? kAnySource : below(sources);
    r.tag = below(tags);
    const std::uint64_t masks[] = {0, 0, 1, 6, ~std::uint64_t{0}};
    r.ignore = masks[below(5)];
    return r;
  };
  for (int step = 0; step < 400; ++step) {
    const std::uint32_t what = below(10);
    if (what < 4 + bias) {
      const auto r = receive();
      ASSERT_EQ(matcher.post(r), model.post(r));
    } else if (what < 8) {
      const Matcher::Message m{.id = next++, .source = below(sources), .tag = below(tags), .bytes = below(100)};
      ASSERT_EQ(matcher.arrive(m), model.arrive(m));
    } else if (what == 8) {
      const auto r = receive();
      ASSERT_EQ(matcher.peek(r), model.peek(r));
      if (below(2) == 0) {
        ASSERT_EQ(matcher.claim(r), model.claim(r));
      }
    } else {
      const std::uint64_t id = 1 + below(static_cast<std::uint32_t>(next));
      ASSERT_EQ(matcher.cancel(id), model.cancel(id));
    }
    std::uint64_t held = 0;
    for (const auto& m : model.messages) held += m.bytes + Matcher::kOverhead;
    ASSERT_EQ(matcher.held_bytes(), held);
    ASSERT_EQ(matcher.receives(), model.receives.size());
    ASSERT_EQ(matcher.unexpected(), model.messages.size());
  }
}

TEST(FiMatcher, ThousandsOfRandomHistoriesAsTheModel) {
  for (std::uint32_t seed = 1; seed <= 4000 && !testing::Test::HasFatalFailure(); ++seed) run_history(seed);
}

TEST(FiMatcher, MessagesOfOneSourceAndTagAreTakenInTheirOrder) {
  Matcher matcher;
  for (std::uint64_t id = 0; id < 100; ++id) EXPECT_FALSE(matcher.arrive({.id = id, .source = 1, .tag = id % 2}));
  for (std::uint64_t id = 1; id < 100; id += 2) EXPECT_EQ(matcher.post({.id = id, .source = 1, .tag = 1}), id);
  for (std::uint64_t id = 0; id < 100; id += 2) {
    EXPECT_EQ(matcher.post({.id = id, .source = kAnySource, .tag = 9, .ignore = ~std::uint64_t{0}}), id);
  }
  EXPECT_EQ(matcher.held_bytes(), 0u);
}

TEST(FiMatcher, AWildcardPostedFirstGoesBeforeAnExactReceive) {
  Matcher matcher;
  EXPECT_FALSE(matcher.post({.id = 1, .source = kAnySource, .tag = 0, .ignore = ~std::uint64_t{0}}));
  EXPECT_FALSE(matcher.post({.id = 2, .source = 3, .tag = 7}));
  EXPECT_EQ(matcher.arrive({.id = 10, .source = 3, .tag = 7}), 1u);
  EXPECT_EQ(matcher.arrive({.id = 11, .source = 3, .tag = 7}), 2u);
}

TEST(FiMatcher, AHundredThousandUnexpectedMessagesAreTakenInOrderWithoutSearchingThemAll) {
  Matcher matcher;
  for (std::uint64_t id = 0; id < 100'000; ++id) EXPECT_FALSE(matcher.arrive({.id = id, .source = 0, .tag = id}));
  for (std::uint64_t id = 0; id < 100'000; ++id) ASSERT_EQ(matcher.post({.id = id, .source = 0, .tag = id}), id);
}

}  // namespace
}  // namespace clustar::libfabric_shim::provider
