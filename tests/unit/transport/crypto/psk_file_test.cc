#include "transport/crypto/psk_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/psk_file.h"
#include "tests/temp_path.h"

namespace clustar::transport::crypto {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::PskFile;

std::string content(const std::string& path) {
  const auto secret = read_psk(path);
  if (!secret) return "error: " + secret.error().message;
  return {reinterpret_cast<const char*>(secret->bytes().data()), secret->bytes().size()};
}

TEST(PskFile, IsReadWithoutOneNewline) {
  EXPECT_EQ(content(PskFile("0123456789abcdef").path()), "0123456789abcdef");
  EXPECT_EQ(content(PskFile("0123456789abcdef\n").path()), "0123456789abcdef");
  EXPECT_EQ(content(PskFile("0123456789abcdef\n\n").path()), "0123456789abcdef\n");
  EXPECT_EQ(content(PskFile(std::string(4096, 'x') + "\n").path()), std::string(4096, 'x'));
  EXPECT_EQ(content(PskFile("0123456789abcdef", 0400).path()), "0123456789abcdef");
}

TEST(PskFile, LengthsThatAreNotAllowedAreNamedAndTheSecretIsNot) {
  EXPECT_THAT(content(PskFile("").path()), AllOf(HasSubstr("holds 0 bytes"), HasSubstr("16 to 4096")));
  EXPECT_THAT(content(PskFile("hush hush hush!\n").path()),
              AllOf(HasSubstr("holds 15 bytes"), HasSubstr("urandom"), Not(HasSubstr("hush"))));
  EXPECT_THAT(content(PskFile(std::string(4097, 'x')).path()), HasSubstr("more than 4096"));
  EXPECT_THAT(content(PskFile(std::string(100000, 'x')).path()), HasSubstr("more than 4096"));
}

TEST(PskFile, NobodyElseMayReadOrWriteIt) {
  for (const int mode : {0640, 0604, 0620, 0602, 0610, 0601, 0644, 0777}) {
    const PskFile file("0123456789abcdef", mode);
    EXPECT_THAT(content(file.path()), AllOf(HasSubstr(file.path()), HasSubstr("chmod 600"))) << std::oct << mode;
  }
}

TEST(PskFile, AnotherUsersFileIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const PskFile file("0123456789abcdef");
  ASSERT_EQ(chown(file.path().c_str(), 4711, 4711), 0);
  EXPECT_THAT(content(file.path()), AllOf(HasSubstr(file.path()), HasSubstr("user 4711"), HasSubstr("chown")));
}

TEST(PskFile, WhatIsNoFileIsRefusedAtOnce) {
  EXPECT_THAT(content("/nonexistent/psk"), AllOf(HasSubstr("/nonexistent/psk"), HasSubstr("No such file")));
  EXPECT_THAT(content(::testing::TempDir()), HasSubstr("not a regular file"));
  EXPECT_THAT(content("/dev/zero"), HasSubstr("not a regular file"));
  const std::string fifo = tests::temp_path("psk_fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(content(fifo), HasSubstr("not a regular file"));
  std::remove(fifo.c_str());
}

// A link is a name like any other: what counts is the file that was opened.
TEST(PskFile, ALinkIsJudgedByItsTarget) {
  const PskFile good("0123456789abcdef");
  const PskFile open("0123456789abcdef", 0644);
  const std::string link = good.path() + ".link";
  ASSERT_EQ(symlink(good.path().c_str(), link.c_str()), 0);
  EXPECT_EQ(content(link), "0123456789abcdef");
  std::remove(link.c_str());
  ASSERT_EQ(symlink(open.path().c_str(), link.c_str()), 0);
  EXPECT_THAT(content(link), HasSubstr("chmod 600"));
  std::remove(link.c_str());
}

}  // namespace
}  // namespace clustar::transport::crypto
