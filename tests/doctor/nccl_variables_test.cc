#include "bench/doctor/nccl_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/temp_path.h"

namespace clustar::bench::doctor {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

// Of a pipe or a device the end may never come.
TEST(NcclVariables, OnlyPlainFilesOfSomeSizeAreRead) {
  const std::string folder = tests::temp_path("nccl_conf");
  fs::create_directories(folder);
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  std::ofstream(folder + "/large") << "NCCL_NET=a\n";
  fs::resize_file(folder + "/large", (1 << 20) + 1);
  std::ofstream(folder + "/plain") << "NCCL_TEST_ONLY=a\n";
  fs::create_symlink("loop", folder + "/loop");
  const auto unread = [&](const std::string& file) {
    setenv("NCCL_CONF_FILE", (folder + "/" + file).c_str(), 1);
    return variables_here().unread();
  };
  EXPECT_THAT(unread("pipe"), Contains(folder + "/pipe is no plain file and was not read"));
  EXPECT_THAT(unread("../" + fs::path(folder).filename().string()), Contains(HasSubstr("is no plain file")));
  EXPECT_THAT(unread("large"), Contains(folder + "/large is larger than 1 MiB and was not read"));
  EXPECT_THAT(unread("loop"), Not(Contains(HasSubstr("loop"))));
  EXPECT_THAT(unread("plain"), Not(Contains(HasSubstr("plain"))));
  EXPECT_EQ(variables_here().get("NCCL_TEST_ONLY"), "a");
  unsetenv("NCCL_CONF_FILE");
  fs::remove_all(folder);
}

TEST(NcclVariables, TheSameValueTwiceIsNoContradiction) {
  auto variables = NcclVariables::of({"NCCL_NET=clustar"});
  variables.add_file("/etc/nccl.conf", "NCCL_NET=clustar\n");
  EXPECT_THAT(variables.overruled(), IsEmpty());
}

}  // namespace
}  // namespace clustar::bench::doctor
