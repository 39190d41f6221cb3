#include "bench/doctor/nccl_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace clustar::bench::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NcclVariables, WhatConcernsNobodyHereIsLeftOut) {
  const auto variables =
      NcclVariables::of({"NCCL_NET=clustar", "SECRET=1", "CLUSTAR_IO=udp", "LD_LIBRARY_PATH=/a", "odd"});
  EXPECT_EQ(variables.all().size(), 3u);
  EXPECT_EQ(variables.get("NCCL_NET"), "clustar");
  EXPECT_EQ(variables.get("SECRET"), std::nullopt);
}

TEST(NcclVariables, AFileAddsAndNeverReplaces) {
  auto variables = NcclVariables::of({"NCCL_NET=Socket"});
  variables.add_file("/h/.nccl.conf", "#NCCL_PROTO=LL\nNCCL_NET=clustar\nNCCL_NET_PLUGIN=clustar\nnonsense\n");
  variables.add_file("/etc/nccl.conf", "NCCL_NET_PLUGIN=none\nNCCL_DEBUG=INFO");
  EXPECT_EQ(variables.get("NCCL_NET"), "Socket");
  EXPECT_EQ(variables.get("NCCL_PROTO"), std::nullopt);
  EXPECT_EQ(variables.get("NCCL_NET_PLUGIN"), "clustar");
  EXPECT_EQ(variables.get("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(variables.all().at("NCCL_DEBUG").source, "/etc/nccl.conf");
  EXPECT_THAT(variables.overruled(),
              ElementsAre(HasSubstr("NCCL_NET=clustar in /h/.nccl.conf does not count: it is 'Socket' (environment)"),
                          HasSubstr("it is 'clustar' (/h/.nccl.conf)")));
}

TEST(NcclVariables, TheSameValueTwiceIsNoContradiction) {
  auto variables = NcclVariables::of({"NCCL_NET=clustar"});
  variables.add_file("/etc/nccl.conf", "NCCL_NET=clustar\n");
  EXPECT_THAT(variables.overruled(), IsEmpty());
}

}  // namespace
}  // namespace clustar::bench::doctor
