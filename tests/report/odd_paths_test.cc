// Names that lead nowhere, and output that has no place: every command says so and ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class OddPaths : public ::testing::Test {
 protected:
  OddPaths() { fs::create_directories(folder_ + "/dir"); }
  ~OddPaths() override { fs::remove_all(folder_); }
  Outcome clustar(const std::string& words) const {
    return run_command("cd " + folder_ + " && " + CLUSTAR_EXECUTABLE + " " + words);
  }
  const std::string folder_ = temp_path("odd_paths");
};

constexpr const char* kTakePaths[] = {"train --plugin ",
                                      "train --data ",
                                      "perf --plugin ",
                                      "perf --vs ",
                                      "ab --local --plugin ",
                                      "ab --local --data ",
                                      "ab --scenario clean --resume ",
                                      "conform --plugin ",
                                      "conform --nccl --plugin ",
                                      "doctor nccl --compare ",
                                      "report -o page.html ",
                                      "coflow replay "};

// filesystem's own functions throw for these.
TEST_F(OddPaths, ALinkToItselfAndAnEndlessNameAreRefused) {
  fs::create_symlink("loop", folder_ + "/loop");
  for (const char* command : kTakePaths) {
    for (const std::string& path : {std::string("loop"), std::string(5000, 'n'), folder_ + "/loop"}) {
      const Outcome outcome = clustar(command + path);
      EXPECT_THAT(outcome.status, AnyOf(1, 2)) << command << path.substr(0, 9) << outcome.text;
      EXPECT_THAT(outcome.text, AllOf(Not(IsEmpty()), Not(HasSubstr("terminate called")))) << command;
    }
  }
}

TEST_F(OddPaths, AFolderIsNoResult) {
  for (const char* command : {"report -o page.html dir", "ab --scenario clean --resume dir"}) {
    const Outcome outcome = clustar(command);
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_THAT(outcome.text, HasSubstr("cannot read 'dir': Is a directory")) << command;
  }
  EXPECT_FALSE(fs::exists(folder_ + "/page.html"));
}

TEST_F(OddPaths, OneFileDoesNotTakeTwoResults) {
  for (const char* words :
       {"ab --local --json x --report x", "ab --scenario clean --json x --report x",
        "perf --suite lossy --json x --report x", "coflow replay --generate ports=4,coflows=4 --json x --report x"}) {
    const Outcome outcome = clustar(words);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_THAT(outcome.text, HasSubstr("--json and --report both name 'x'; allowed: a file each")) << words;
  }
  std::ofstream(folder_ + "/results.json") << "{}";
  const Outcome outcome = clustar("report results.json -o dir/../results.json");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.text, HasSubstr("-o names the results themselves"));
  EXPECT_EQ(fs::file_size(folder_ + "/results.json"), 2u);
}

TEST_F(OddPaths, AFolderThatWasRemovedIsNoCrash) {
  for (const char* words : {"train --plugin x.so", "perf --plugin x.so", "ab --local --plugin x.so"}) {
    const Outcome outcome =
        run_command("cd " + folder_ + "/dir && rmdir ../dir && " + CLUSTAR_EXECUTABLE + " " + words);
    EXPECT_EQ(outcome.status, 2) << words << outcome.text;
    fs::create_directories(folder_ + "/dir");
  }
}

TEST_F(OddPaths, StandardOutputThatIsFullIsAFailure) {
  for (const char* words : {"settings", "conform --list", "coflow replay --generate ports=4,coflows=4 --policy maxmin",
                            "--help", "--version"}) {
    const Outcome outcome =
        run_command("(" + std::string(CLUSTAR_EXECUTABLE) + " " + std::string(words) + " 2>&1 >/dev/full)");
    EXPECT_EQ(outcome.status, 1) << words;
    EXPECT_THAT(outcome.text, HasSubstr("standard output did not take all")) << words;
  }
}

}  // namespace
}  // namespace clustar::tests
