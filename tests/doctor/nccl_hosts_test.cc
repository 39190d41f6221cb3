// Several hosts: by files, and by a command in place of ssh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

const std::string kPluginFolder = fs::path(CLUSTAR_PLUGIN).parent_path().string();

class NcclHosts : public ::testing::Test {
 protected:
  NcclHosts() {
    fs::create_directories(folder_);
    // host NAME COMMAND...: the environment of the "host" NAME is what the file NAME has.
    std::ofstream(folder_ + "/host") << "#!/bin/sh\nname=$1; shift\n. " << folder_ << "/$name\nexec \"$@\"\n";
    fs::permissions(folder_ + "/host", fs::perms::owner_all);
    host("a", "");
    host("b", "");
  }
  ~NcclHosts() override { fs::remove_all(folder_); }

  void host(const std::string& name, const std::string& more) const {
    std::ofstream(folder_ + "/" + name) << "export NCCL_NET_PLUGIN=clustar NCCL_NET=clustar LD_LIBRARY_PATH="
                                        << kPluginFolder << " CLUSTAR_SOCKET_IFNAME=lo NCCL_CONF_FILE=/nowhere\n"
                                        << more << "\n";
  }
  Outcome ask(const std::string& hosts, const std::string& options = "") const {
    return run_command("env -i PATH=/usr/bin:/bin " + std::string(CLUSTAR_EXECUTABLE) + " doctor nccl --hosts " +
                       hosts + " --launch '" + folder_ + "/host {host}' " + options);
  }

  const std::string folder_ = temp_path("doctor_hosts");
};

TEST_F(NcclHosts, ThatAreAlikeFit) {
  const Outcome outcome = ask("a,b");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("ok       transport"), HasSubstr("tcp on all")));
}

TEST_F(NcclHosts, MayPrintSomethingFirst) {
  host("b", "echo '{ welcome }'; printf '{'; echo");
  const Outcome outcome = ask("a,b");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

TEST_F(NcclHosts, WithDifferentTransportsDoNot) {
  host("b", "export CLUSTAR_TRANSPORT=mlt CLUSTAR_LOSS_TOLERANCE=0.02");
  const std::string file = folder_ + "/result.json";
  const Outcome outcome = ask("a,b", "--json " + file);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("failed   transport"), HasSubstr("'mlt' on b; 'tcp' on a"),
                                  HasSubstr("failed   loss_tolerance"), HasSubstr("'0.01' on a; '0.02' on b")));
  std::ifstream in(file);
  const json document = json::parse(in);
  EXPECT_EQ(document["results"]["hosts"], json::array({"a", "b"}));
  EXPECT_GE(document["results"]["fail"], 2);
}

TEST_F(NcclHosts, WithoutThePluginOnOneDoNot) {
  host("b", "export LD_LIBRARY_PATH=/nowhere");
  const Outcome outcome = ask("a,b");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("'another network' on b; 'clustar' on a"), HasSubstr("plugin clustar: not found")));
}

TEST_F(NcclHosts, ThatDoNotAnswerAreNamed) {
  const Outcome outcome = ask("a,gone");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("failed   gone"), HasSubstr("no report: exit status"),
                                  HasSubstr("run `clustar doctor nccl --json FILE` there")));
}

TEST_F(NcclHosts, FilesAreComparedAsHostsAre) {
  const std::string one = folder_ + "/one.json";
  const std::string two = folder_ + "/two.json";
  const std::string command =
      "env -i PATH=/usr/bin:/bin " + folder_ + "/host a " + CLUSTAR_EXECUTABLE + " doctor nccl ";
  run_command(command + "--json " + one);
  std::ifstream in(one);
  json document = json::parse(in);
  document["results"]["host"] = "other";
  document["results"]["transport"] = "mlt";
  std::ofstream(two) << document;
  const Outcome outcome = run_command(command + "--compare " + one + " " + two);
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("'mlt' on other; 'tcp' on "));
  EXPECT_EQ(run_command(command + "--compare " + one + " " + one).status, 0);
  for (const char* text :
       {"{}", "", "[1]", R"({"command": "doctor nccl"})", R"({"command": 1, "results": {"host": "a"}})",
        R"({"command": "doctor nccl", "results": {"host": 1}})"}) {
    std::ofstream(two) << text;
    const Outcome broken = run_command(command + "--compare " + one + " " + two);
    EXPECT_EQ(broken.status, 1) << text;
    EXPECT_THAT(broken.text, HasSubstr(two + " is no report of one host")) << text;
  }
  document["results"]["checks"] = json::array({json{{"outcome", 1}}});
  std::ofstream(two) << document;
  const Outcome wrong = run_command(command + "--compare " + one + " " + two);
  EXPECT_EQ(wrong.status, 2) << wrong.text;
  EXPECT_THAT(wrong.text, AllOf(HasSubstr("the report of '" + two + "'"), HasSubstr("does not write")));
}

TEST_F(NcclHosts, AReportOfManyLevelsIsNone) {
  const std::string file = folder_ + "/deep.json";
  const std::string levels(300'000, '[');
  std::ofstream(file) << R"({"command": "doctor nccl", "results": {"host": "a", "x": )" << levels
                      << std::string(levels.size(), ']') << "}}";
  const Outcome outcome = run_command(std::string(CLUSTAR_EXECUTABLE) + " doctor nccl --compare " + file);
  EXPECT_EQ(outcome.status, 1) << outcome.text.substr(0, 2000);
  EXPECT_THAT(outcome.text, HasSubstr(file + " is no report of one host"));
}

}  // namespace
}  // namespace clustar::tests
