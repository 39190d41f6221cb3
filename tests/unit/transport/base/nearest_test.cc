#include "transport/base/nearest.h"

#include <gtest/gtest.h>

namespace clustar {
namespace {

const std::vector<std::string> kSettings{"CLUSTAR_TCP_SOCKETS", "CLUSTAR_TCP_CONGESTION", "CLUSTAR_TRANSPORT",
                                         "CLUSTAR_IO", "CLUSTAR_LOSS_RULES"};
const std::vector<std::string> kOptions{"--ranks", "--rate", "--epochs", "--lr", "--batch", "--bucket-mb"};

TEST(Nearest, AMistypedNameIsFound) {
  EXPECT_EQ(nearest("CLUSTAR_TCP_SOKETS", kSettings), "CLUSTAR_TCP_SOCKETS");
  EXPECT_EQ(nearest("CLUSTAR_TRANPSORT", kSettings), "CLUSTAR_TRANSPORT");
  EXPECT_EQ(nearest("--epocs", kOptions), "--epochs");
  EXPECT_EQ(nearest("--rnaks", kOptions), "--ranks");
  EXPECT_EQ(nearest("--bach", kOptions), "--batch");
}

TEST(Nearest, WholeWordsMayBeMissing) {
  EXPECT_EQ(nearest("CLUSTAR_CONGESTION", kSettings), "CLUSTAR_TCP_CONGESTION");
  EXPECT_EQ(nearest("--bucket", kOptions), "--bucket-mb");
}

TEST(Nearest, WhatIsFarSuggestsNothing) {
  // What all begin with does not make two names alike.
  EXPECT_EQ(nearest("CLUSTAR_FOO", kSettings), "");
  EXPECT_EQ(nearest("--nonsense", kOptions), "");
  EXPECT_EQ(nearest("--", kOptions), "");
  EXPECT_EQ(nearest("--ranks", {}), "");
}

TEST(Nearest, TheNearestOfSeveral) {
  EXPECT_EQ(nearest("--rat", {"--rates", "--rate"}), "--rate");
  EXPECT_EQ(did_you_mean("--rat", {"--rates", "--rate"}), "; did you mean --rate?");
  EXPECT_EQ(did_you_mean("--nonsense", kOptions), "");
}

}  // namespace
}  // namespace clustar
