// The rules of NCCL 2.28.9, src/plugin/plugin_open.cc and net.cc.
#include "bench/doctor/nccl_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace clustar::bench::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NcclNames, AWordIsTriedAsItIsAndAsALibraryOfItsRole) {
  EXPECT_THAT(file_names(Role::kNet, "clustar"), ElementsAre("clustar", "libnccl-net-clustar.so"));
  EXPECT_THAT(file_names(Role::kProfiler, "clustar"), ElementsAre("clustar", "libnccl-profiler-clustar.so"));
  EXPECT_THAT(file_names(Role::kTuner, "clustar"), ElementsAre("clustar", "libnccl-tuner-clustar.so"));
}

TEST(NcclNames, PathsAndLibrariesAreTriedAsTheyAre) {
  EXPECT_THAT(file_names(Role::kNet, "./clustar"), ElementsAre("./clustar"));
  EXPECT_THAT(file_names(Role::kNet, "libnccl-net-clustar.so"), ElementsAre("libnccl-net-clustar.so"));
  // Only both together make a library's name.
  EXPECT_THAT(file_names(Role::kNet, "clustar.so"), ElementsAre("clustar.so", "libnccl-net-clustar.so.so"));
  EXPECT_THAT(file_names(Role::kNet, "libclustar"), ElementsAre("libclustar", "libnccl-net-libclustar.so"));
}

TEST(NcclNames, NothingIsTheRolesOwnLibrary) {
  EXPECT_THAT(file_names(Role::kProfiler, ""), ElementsAre("libnccl-profiler.so"));
  EXPECT_THAT(net_entries(std::nullopt), ElementsAre("libnccl-net.so"));
}

TEST(NcclNames, AListIsTriedInItsOrder) {
  EXPECT_THAT(net_entries("a,clustar"), ElementsAre("a", "clustar"));
  EXPECT_THAT(net_entries(",a,,b,"), ElementsAre("a", "b"));
  std::string many;
  for (int i = 0; i < 20; ++i) many += "p" + std::to_string(i) + ",";
  EXPECT_EQ(net_entries(many).size(), 14u);
  EXPECT_THAT(net_entries(std::string(255, 'x') + ",b"), ElementsAre("b"));
  EXPECT_EQ(net_entries(std::string(254, 'x') + ",b").size(), 2u);
}

TEST(NcclNames, NoneMeansNone) {
  for (const char* none : {"none", "NONE", "", ",,"}) {
    EXPECT_TRUE(takes_none(none)) << none;
    EXPECT_THAT(net_entries(none), IsEmpty()) << none;
  }
  EXPECT_FALSE(takes_none(std::nullopt));
  EXPECT_FALSE(takes_none("clustar"));
  // NCCL compares the whole value only.
  EXPECT_THAT(net_entries("none,clustar"), ElementsAre("none", "clustar"));
}

TEST(NcclNames, BeginningsOfStaticPluginAreTheProgramItself) {
  for (const char* entry : {"STATIC_PLUGIN", "static_plugin", "s", "stat"})
    EXPECT_TRUE(is_static_plugin(entry)) << entry;
  for (const char* entry : {"", "clustar", "static_plugins"}) EXPECT_FALSE(is_static_plugin(entry)) << entry;
}

TEST(NcclNames, WhatNcclProtoSaysOfLl128) {
  EXPECT_EQ(allows_ll128("^LL128"), false);
  EXPECT_EQ(allows_ll128("^LL"), true);
  EXPECT_EQ(allows_ll128("Simple"), false);
  EXPECT_EQ(allows_ll128("LL,ll128"), true);
  EXPECT_EQ(allows_ll128("allreduce:LL128"), std::nullopt);
}

}  // namespace
}  // namespace clustar::bench::doctor
