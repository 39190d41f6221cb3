// `clustar doctor nccl` as a user runs it, with real files in NCCL's way.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kLib = fs::path(CLUSTAR_PLUGIN).parent_path().string();
constexpr const char* kGood =
    "NCCL_NET_PLUGIN=clustar NCCL_NET=clustar NCCL_NET_PLUGIN_REF_COUNT=1 CLUSTAR_SOCKET_IFNAME=lo ";

class NcclDoctor : public ::testing::Test {
 protected:
  NcclDoctor() { fs::create_directories(folder_); }
  ~NcclDoctor() override { fs::remove_all(folder_); }

  // In an environment of its own, where no file of NCCL's counts but `conf`.
  Outcome run(const std::string& variables, const std::string& path, const std::string& options = "") const {
    return run_command("(env -i PATH=/usr/bin:/bin NCCL_CONF_FILE=" + conf_ + " LD_LIBRARY_PATH=" + path + " " +
                       variables + " " + CLUSTAR_EXECUTABLE + " doctor nccl " + options + ")");
  }
  std::string copy(const std::string& from, const std::string& name) const {
    const std::string to = folder_ + "/" + name;
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
    return to;
  }

  const std::string folder_ = temp_path("doctor_nccl");
  std::string conf_ = "/nowhere";
};

TEST_F(NcclDoctor, TheBannerComesWithoutNccl) {
  const Outcome outcome = run(kGood, kLib);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("NET/clustar: clustar "), HasSubstr(": transport tcp, devices: lo ("),
                    HasSubstr("tcp, chosen by auto, 1 device"), HasSubstr("NCCL would use clustar: 0 failed"),
                    HasSubstr("config: socket_ifname = lo (environment)")));
}

// Were the executable to look beside itself, it would find what NCCL does not.
TEST_F(NcclDoctor, WhatIsOnNoPathIsNotFound) {
  const Outcome outcome = run(kGood, "/nowhere");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("failed   plugin clustar"), HasSubstr("libnccl-net-clustar.so: cannot open"),
                    HasSubstr("fix: export LD_LIBRARY_PATH=" + fs::canonical(kLib).string()),
                    HasSubstr("NCCL would not use clustar here"), HasSubstr("transport tcp")));
}

TEST_F(NcclDoctor, APathIsEnough) {
  const Outcome outcome = run(std::string(kGood) + "NCCL_NET_PLUGIN=" + CLUSTAR_PLUGIN, "/nowhere");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

TEST_F(NcclDoctor, AnotherPluginInTheWay) {
  copy(CLUSTAR_STRAY_NET, "libnccl-net.so");
  const Outcome unset = run("CLUSTAR_SOCKET_IFNAME=lo", folder_ + ":" + kLib);
  EXPECT_EQ(unset.status, 1);
  EXPECT_THAT(unset.text,
              HasSubstr(folder_ + "/libnccl-net.so comes first, and it is the plugin 'Foreign', not clustar"));
  const Outcome list = run(std::string(kGood) + "NCCL_NET_PLUGIN=libnccl-net.so,clustar", folder_ + ":" + kLib);
  EXPECT_EQ(list.status, 0) << list.text;
  EXPECT_THAT(list.text, HasSubstr("is taken by every process in which NCCL_NET_PLUGIN is not set"));
}

TEST_F(NcclDoctor, AForeignProfilerIsNamed) {
  copy(CLUSTAR_STRAY_PROFILER, "libnccl-profiler.so");
  const Outcome outcome = run(kGood, folder_ + ":" + kLib);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("NCCL takes " + folder_ + "/libnccl-profiler.so for it"));
}

TEST_F(NcclDoctor, WhatEndsItsProcessDoesNotEndTheDoctor) {
  const Outcome outcome = run(std::string(kGood) + "NCCL_NET_PLUGIN=" + CLUSTAR_CRASHING, kLib);
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("opening it ended the process: " + std::string(CLUSTAR_CRASHING) + ": "));
}

TEST_F(NcclDoctor, ATooOldGlibcIsSaid) {
  const std::string file = copy(CLUSTAR_PLUGIN, "libnccl-net-clustar.so");
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::size_t changed = 0;
  for (std::size_t at = 0; (at = bytes.find("GLIBC_2.3", at)) != std::string::npos; ++changed) bytes[at + 6] = '9';
  ASSERT_GT(changed, 0u);
  std::ofstream(file, std::ios::binary) << bytes;
  const Outcome outcome = run(kGood, folder_);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr(file + " cannot be opened: "), HasSubstr("the plugin needs 9.3"),
                                  HasSubstr("not found (required by " + file + ")")));
}

// The loader needs no section headers, which the versions are looked up in.
TEST_F(NcclDoctor, AFileThatDoesNotTellItsGlibcIsUnknown) {
  const std::string file = copy(CLUSTAR_PLUGIN, "libnccl-net-clustar.so");
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(offsetof(Elf64_Ehdr, e_shoff)).write("\xff\xff\xff\x7f", 4);
  stream.close();
  const Outcome outcome = run(kGood, folder_);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("warning  glibc"), HasSubstr("what the plugin needs is unknown: " + file),
                                  HasSubstr("NCCL would use clustar: 0 failed")));
}

TEST_F(NcclDoctor, WhatThePluginRefusesFails) {
  const Outcome outcome = run(std::string(kGood) + "CLUSTAR_TRANSPRT=mlt", kLib);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("failed   transport"), HasSubstr("unknown setting CLUSTAR_TRANSPRT")));
  const Outcome interface = run(std::string(kGood) + "CLUSTAR_SOCKET_IFNAME=nosuch9", kLib);
  EXPECT_EQ(interface.status, 1);
  EXPECT_THAT(interface.text, HasSubstr("no usable network interface matches 'nosuch9'"));
}

TEST_F(NcclDoctor, NcclsFileCounts) {
  conf_ = folder_ + "/nccl.conf";
  std::ofstream(conf_) << "NCCL_NET_PLUGIN=clustar\nCLUSTAR_TRANSPORT=mlt\nNCCL_NET=Socket\n";
  const Outcome outcome = run("NCCL_NET=clustar CLUSTAR_SOCKET_IFNAME=lo", kLib);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("'clustar' (" + conf_ + ")"), HasSubstr("transport mlt, devices: lo"),
                    HasSubstr("NCCL_NET=Socket in " + conf_ + " does not count: it is 'clustar' (environment)")));
}

TEST_F(NcclDoctor, AFileOfNcclsThatIsAPipeIsNotWaitedFor) {
  conf_ = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(conf_.c_str(), 0600), 0);
  const Outcome outcome = run(kGood, kLib);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr(conf_ + " is no plain file and was not read"));
}

TEST_F(NcclDoctor, JsonOnStandardOutputIsAlone) {
  const Outcome outcome = run(kGood, kLib, "--json - 2>/dev/null");
  const json document = json::parse(outcome.text, nullptr, false);
  ASSERT_TRUE(document.is_object()) << outcome.text;
  EXPECT_EQ(document["command"], "doctor nccl");
  EXPECT_EQ(document["results"]["transport"], "tcp");
  EXPECT_EQ(document["results"]["uses_clustar"], true);
  EXPECT_EQ(document["results"]["fail"], 0);
  EXPECT_GT(document["results"]["checks"].size(), 10u);
  EXPECT_EQ(document["results"]["plugin"]["build_id"].get<std::string>().size(), 40u);
}

TEST_F(NcclDoctor, WrongUsageIsTwo) {
  const std::string no_json = std::string("--hosts a --compare ") + CLUSTAR_PLUGIN;
  for (const char* options : {"--json /nowhere/x.json", "--compare /nowhere/x.json", "--launch 'sh {host}'",
                              "--hosts a --launch sh", no_json.c_str(), "--host a"}) {
    EXPECT_EQ(run(kGood, kLib, options).status, 2) << options;
  }
  EXPECT_THAT(run(kGood, kLib, "--hosts a --launch sh").text, HasSubstr("--launch 'sh' names no {host}"));
}

}  // namespace
}  // namespace clustar::tests
