// What a sender says of its messages, and how it reaches the receiver.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "tests/sim/direct.h"

namespace clustar::mlt {
namespace {

using std::chrono::milliseconds;
using test::Direct;

SendTerms identified_terms(std::uint64_t number) {
  SendTerms terms;
  terms.communicator = 5;
  terms.collective_bytes = 100 << 20;
  terms.identity.known = true;
  terms.identity.number = number;
  terms.identity.transfer = static_cast<std::uint32_t>(number);
  terms.identity.algorithm = 1;
  return terms;
}

void expect_identity(const Direct& direct, std::size_t message, const SendTerms& terms) {
  ASSERT_GT(direct.opened.size(), message);
  const OpenRecord& open = direct.opened[message];
  EXPECT_EQ(open.identity, terms.identity);
  EXPECT_EQ(open.communicator, terms.communicator);
  EXPECT_EQ(open.collective_bytes, terms.collective_bytes);
  EXPECT_EQ(open.tolerant, terms.tolerant);
}

TEST(MltEndpoint, TheReceiverLearnsWhichCollectiveAMessageBelongsTo) {
  SendTerms both;
  both.tolerant = true;
  both.ranks = both.edges = 4;
  both.collective_bytes = 100 << 20;
  both.tolerance_ppm = 100'000;
  both.identity = identified_terms(3).identity;
  const std::vector<SendTerms> all{identified_terms(1), {}, identified_terms(2), both};
  for (const bool staged : {true, false}) {
    for (const std::uint32_t bytes : {1u, 1408u, 100'000u}) {
      Direct direct;
      for (const SendTerms& terms : all) {
        if (!staged) {
          ASSERT_TRUE(direct.post(bytes));
        }
        ASSERT_TRUE(direct.send(bytes, 7, terms));
      }
      direct.run(milliseconds(1));
      for (std::size_t i = 0; staged && i < all.size(); ++i) ASSERT_TRUE(direct.post(bytes));
      direct.run_until_received(static_cast<int>(all.size()));
      for (std::size_t i = 0; i < all.size(); ++i) expect_identity(direct, i, all[i]);
    }
  }
}

// The record rides on the first packets, on what is sent again, and on probes.
TEST(MltEndpoint, TheIdentityArrivesWithWhicheverPacketCarriesTheRecord) {
  Direct again;
  again.loses = [](const DataHeader& header) { return !header.retransmission; };
  ASSERT_TRUE(again.post(100'000) && again.send(100'000, 7, identified_terms(1)));
  again.run_until_received(1);
  expect_identity(again, 0, identified_terms(1));

  Options options;
  options.unscheduled_bytes = 0;  // nothing goes before the probe is answered
  Direct probed(options);
  int with_record = 0;
  probed.loses = [&](const DataHeader& header) {
    with_record += header.open ? 1 : 0;
    return false;
  };
  ASSERT_TRUE(probed.send(100'000, 7, identified_terms(2)));
  probed.run(milliseconds(5));
  EXPECT_EQ(with_record, 0);
  EXPECT_EQ(probed.to.receiver(probed.receiver).counters().placed_bytes, 0u);
  ASSERT_TRUE(probed.post(100'000));
  probed.run_until_received(1);
  expect_identity(probed, 0, identified_terms(2));
}

}  // namespace
}  // namespace clustar::mlt
