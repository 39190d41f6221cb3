#include "mlt/driver/identity.h"

#include <gtest/gtest.h>

namespace clustar::mlt::driver {
namespace {

using transport::LossTerms;
using transport::MessageIdentity;
using transport::ReceivedMessage;

MessageIdentity some_identity() {
  MessageIdentity identity;
  identity.known = true;
  identity.communicator = 11;
  identity.number = 12;
  identity.total_bytes = 13;
  identity.transfer = 14;
  identity.channel = 255;
  identity.function = 4;
  identity.datatype = 7;
  identity.algorithm = 1;
  identity.protocol = 2;
  identity.sender = 15;
  return identity;
}

// What a receiver gets whose sender was told this.
ReceivedMessage through(const SendTerms& terms, bool tolerated) {
  OpenRecord open;
  open.communicator = terms.communicator;
  open.collective_bytes = terms.collective_bytes;
  open.stage = terms.stage;
  open.collective = terms.collective;
  open.ranks = terms.ranks;
  open.edges = terms.edges;
  open.tolerance_ppm = terms.tolerance_ppm;
  open.exchange = terms.exchange;
  open.identity = terms.identity;
  return received_message(open, tolerated);
}

TEST(MltIdentity, ArrivesAsItWasSent) {
  MessageIdentity identity = some_identity();
  EXPECT_EQ(through(send_terms(nullptr, identity), false).identity, identity);
  identity.local_number = true;
  identity.algorithm = identity.protocol = identity.function = MessageIdentity::kUnknown;
  EXPECT_EQ(through(send_terms(nullptr, identity), false).identity, identity);
  EXPECT_EQ(through(send_terms(nullptr, {}), false).identity, MessageIdentity{});
  identity.channel = 256;
  EXPECT_FALSE(through(send_terms(nullptr, identity), false).identity.known) << "the wire cannot say that";
  identity = some_identity();
  identity.number = MessageIdentity::kNumbers - 1;
  EXPECT_EQ(through(send_terms(nullptr, identity), false).identity, identity);
  ++identity.number;
  EXPECT_FALSE(through(send_terms(nullptr, identity), false).identity.known) << "nor that";
}

TEST(MltIdentity, TheTermsArriveIfTheReceiverTolerates) {
  const LossTerms loss{11, 21, 13, 8, 4, 3, 1000, true};
  const SendTerms terms = send_terms(&loss, some_identity());
  EXPECT_TRUE(terms.tolerant);
  const ReceivedMessage got = through(terms, true);
  EXPECT_EQ(got.identity, some_identity());
  EXPECT_EQ(got.loss.communicator, 11u);
  EXPECT_EQ(got.loss.collective, 21u);
  EXPECT_EQ(got.loss.collective_bytes, 13u);
  EXPECT_EQ(got.loss.ranks, 8);
  EXPECT_EQ(got.loss.edges, 4);
  EXPECT_EQ(got.loss.stage, 3);
  EXPECT_EQ(got.loss.tolerance_ppm, 1000u);
  EXPECT_TRUE(got.loss.exchange);
  EXPECT_EQ(through(terms, false).loss.tolerance_ppm, 0u);
}

TEST(MltIdentity, TermsOfAnotherCollectiveContradictIt) {
  LossTerms loss{11, 21, 13, 8, 4, 3, 1000};
  EXPECT_TRUE(agrees(loss, some_identity()));
  loss.communicator = 12;
  EXPECT_FALSE(agrees(loss, some_identity()));
  EXPECT_TRUE(agrees(loss, {})) << "of an unknown one nothing is said";
  loss.communicator = 11;
  loss.collective_bytes = 14;
  EXPECT_FALSE(agrees(loss, some_identity()));
}

}  // namespace
}  // namespace clustar::mlt::driver
