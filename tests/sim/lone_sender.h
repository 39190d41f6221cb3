// A sender whose peer is what the test says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "mlt/core/send/sender.h"

namespace clustar::mlt::test {

class LoneSender {
 public:
  LoneSender(const Options& given, std::uint64_t seed) : options(given), sender(options, allowances, 1, seed) {}

  // What leaves at once.
  std::vector<Transmit> poll() {
    std::vector<Transmit> out;
    for (Transmit transmit; sender.poll_transmit(now, transmit);) out.push_back(transmit);
    return out;
  }
  // What leaves until then.
  std::vector<Transmit> wait(Duration time) {
    std::vector<Transmit> out;
    const TimePoint until = now + time;
    while (sender.next_timeout() <= until) {
      now = std::max(now, sender.next_timeout());
      sender.on_timeout(questions, now);
      for (const Transmit& transmit : poll()) out.push_back(transmit);
    }
    now = until;
    EXPECT_TRUE(sender.is_consistent());
    return out;
  }

  Options options;
  LedgerBook allowances{LedgerBook::Options{}};
  QuestionBudget questions;
  TimePoint now{std::chrono::seconds(1)};
  Sender sender;
};

}  // namespace clustar::mlt::test
