// What write_text leaves where it may replace a file, and where it may not.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/report/report.h"
#include "tests/temp_path.h"

namespace clustar::bench::report {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status;
}

class WriteText : public ::testing::Test {
 protected:
  WriteText() { fs::create_directory(folder_); }
  ~WriteText() override { fs::remove_all(folder_); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  const std::string folder_ = tests::temp_path("write");
  const std::string path_ = folder_ + "/out.json";
};

TEST_F(WriteText, ReplacesAFileInOneStepAndKeepsItsMode) {
  std::ofstream(path_) << "before, and longer than what follows";
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  std::ifstream reader(path_);  // of what was there
  const auto before = status_of(path_);
  ASSERT_TRUE(write_text("after\n", path_));
  EXPECT_EQ(text_in(path_), "after\n");
  EXPECT_NE(status_of(path_).st_ino, before.st_ino) << "it was written to a file of its own";
  EXPECT_EQ(status_of(path_).st_mode, before.st_mode);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "before, and longer than what follows");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteText, ANewFileHasTheUsualMode) {
  ASSERT_TRUE(write_text("a", path_));
  std::ofstream(folder_ + "/usual") << "a";
  EXPECT_EQ(status_of(path_).st_mode, status_of(folder_ + "/usual").st_mode);
  EXPECT_EQ(files(), 2u);
}

TEST_F(WriteText, LinksAndOtherNamesStay) {
  std::ofstream(path_) << "before";
  const std::string link = folder_ + "/link", other = folder_ + "/other";
  fs::create_symlink(path_, link);
  ASSERT_TRUE(write_text("by link", link));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(text_in(path_), "by link");
  fs::create_hard_link(path_, other);
  ASSERT_TRUE(write_text("by name", path_));
  EXPECT_EQ(text_in(other), "by name");
  EXPECT_EQ(files(), 3u);
}

TEST_F(WriteText, DevicesAreWrittenTo) {
  EXPECT_TRUE(write_text("gone", "/dev/null"));
  EXPECT_TRUE(S_ISCHR(status_of("/dev/null").st_mode));
  const auto full = write_text("no room", "/dev/full");
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("cannot write '/dev/full': No space left"), std::string::npos);
  testing::internal::CaptureStdout();
  EXPECT_TRUE(write_text("text", "/dev/stdout"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "text");
  testing::internal::CaptureStdout();
  EXPECT_TRUE(write_text("text", "-"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "text");
}

// Standard output is a file: what was printed before stays, and what is printed after goes behind.
TEST_F(WriteText, DevStdoutIsNotOpenedAnew) {
  for (const char* const name : {"/dev/stdout", "/dev/fd/1"}) {
    testing::internal::CaptureStdout();
    std::cout << "before, and longer\n" << std::flush;
    EXPECT_TRUE(check_writable(name));
    EXPECT_TRUE(write_text("text\n", name));
    std::cout << "after\n" << std::flush;
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "before, and longer\ntext\nafter\n") << name;
  }
}

// A child without root's rights, which knows no closed folders.
TEST_F(WriteText, WhereTheFolderTakesNoNewFile) {
  std::ofstream(path_) << "before";
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(77);
    const auto refused = write_text("new", folder_ + "/new");
    _exit(write_text("after", path_) && !refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "it cannot become another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(text_in(path_), "after");
  EXPECT_EQ(files(), 1u);
}

// What a killed process of the same number left does not stand in the way.
TEST_F(WriteText, ALeftPartIsReplaced) {
  std::ofstream(path_ + "." + std::to_string(getpid()) + ".part") << "half a";
  ASSERT_TRUE(write_text("all", path_));
  EXPECT_EQ(text_in(path_), "all");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteText, ErrorsNameThePath) {
  const auto missing = write_text("a", folder_ + "/none/out");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "cannot write '" + folder_ + "/none/out': No such file or directory");
  EXPECT_FALSE(write_text("a", folder_)) << "a folder";
  EXPECT_EQ(files(), 0u);
}

// Nobody writes to it, so that opening it as a file does not end.
TEST_F(WriteText, APipeIsNotReadAsAFile) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const auto text = read_text(path_);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message, "cannot read '" + path_ + "': it is not a regular file");
}

TEST_F(WriteText, JsonOfNamesInAnyEncoding) {
  ASSERT_TRUE(write_json({{"name", "caf\xe9"}}, path_));
  EXPECT_EQ(nlohmann::json::parse(text_in(path_))["name"], "caf\xef\xbf\xbd");
}

}  // namespace
}  // namespace clustar::bench::report
