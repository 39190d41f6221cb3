// `clustar coordinator` as a user runs it: what is wrong is said, with what is allowed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <fstream>

#include "tests/coordinator/daemon_process.h"
#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

using ::testing::HasSubstr;

Outcome coordinator(const std::string& options) {
  return run_command("timeout 20 " + std::string(COORDINATOR) + " coordinator --listen 127.0.0.1:0 " + options);
}

void expect_wrong(const std::string& options, const std::string& said) {
  const Outcome outcome = coordinator(options);
  EXPECT_EQ(outcome.status, 2) << options << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr(said)) << options;
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(temp_path("coordinator_config", ".toml")) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string option() const { return "--config " + path_; }

 private:
  const std::string path_;
};

TEST(CoordinatorCommand, HelpHasAnExample) {
  const Outcome help = coordinator("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.text, HasSubstr("clustar coordinator --listen 10.0.0.1:7480 --key-file key"));
}

TEST(CoordinatorCommand, WhatIsWrongIsSaidWithWhatIsAllowed) {
  expect_wrong("--interval 5ms", "--interval: '5ms' is no time from 10ms to 10s");
  expect_wrong("--interval 11s", "10ms to 10s");
  expect_wrong("--interval soon", "10ms to 10s");
  expect_wrong("--interval 100", "10ms to 10s");
  expect_wrong("--interval nans", "10ms to 10s");
  expect_wrong("--lease-intervals 1", "2 to 100");
  expect_wrong("--lease-intervals 101", "2 to 100");
  expect_wrong("--policy best", "{turns,bssi,arrival}");
  expect_wrong("--shifts maybe", "{on,off}");
  expect_wrong("--agents 0", "1 to 1000000");
  expect_wrong("--classes 0", "1 to 10000000");
  expect_wrong("--log-level loud", "{error,warn,info,debug}");
  expect_wrong("--tenant research", "'research' is no NAME=WEIGHT");
  expect_wrong("--tenant research=0", "from 0.001 to 1000");
  expect_wrong("--tenant =2", "NAME=WEIGHT");
  expect_wrong("--cap batch=0", "--cap: 'batch=0' is no NAME=MBPS");
  expect_wrong("--http here", "--http: 'here' is no ADDRESS:PORT");
  expect_wrong("--http 127.0.0.1:99999", "is no ADDRESS:PORT");
  expect_wrong("--standby-of primary", "--standby-of: 'primary' is no HOST:PORT");
  expect_wrong("--no-key --key-file key", "exclude each other");
  expect_wrong("--topology /nonexistent.toml", "cannot read '/nonexistent.toml'");
  expect_wrong("--intervall 1s", "did you mean --interval");
}

TEST(CoordinatorCommand, TheCommandLineGoesBeforeTheFile) {
  const ConfigFile file("interval = \"1ms\"\ntenant = [\"a=2\", \"b=3\"]\nlog-level = \"info\"\n");
  expect_wrong(file.option(), "--interval: '1ms' is no time");
  DaemonProcess ran({"--config", file.path(), "--interval", "100ms"});
  ASSERT_TRUE(ran.listens()) << ran.log();
  EXPECT_EQ(ran.state()["interval_ms"], 100);
  ran.signal(SIGTERM);
  EXPECT_EQ(ran.wait(), 0);
  EXPECT_THAT(ran.log(), HasSubstr("stopped"));
}

TEST(CoordinatorCommand, TheFileGoesBeforeTheDefaults) {
  const ConfigFile file("policy = \"bssi\"\nlease-intervals = 7\nlog-level = \"error\"\n");
  DaemonProcess ran({"--config", file.path()});
  ASSERT_TRUE(ran.listens()) << ran.log();
  const auto state = ran.state();
  EXPECT_EQ(state["policy"], "bssi");
  EXPECT_EQ(state["lease_ms"], 350);
  EXPECT_EQ(ran.log(), "");
}

TEST(CoordinatorCommand, WhatIsWrongInTheFileIsSaidWithItsLine) {
  expect_wrong("--config /nonexistent.toml", "--config: cannot read '/nonexistent.toml'");
  expect_wrong(ConfigFile("\nagents = 0\n").option(), ".toml:2: --agents: Value 0 not in range 1 to 1000000");
  expect_wrong(ConfigFile("policy = [\"bssi\"]\n").option(), ".toml:1: policy: one value is allowed, no list");
  expect_wrong(ConfigFile("polizy = \"bssi\"\n").option(), ".toml:1: there is no option 'polizy'");
  expect_wrong(ConfigFile("config = \"other\"\n").option(), "there is no option 'config'");
  expect_wrong(ConfigFile("[http]\n").option(), ".toml:1: http: must be a text");
}

}  // namespace
}  // namespace clustar::tests
