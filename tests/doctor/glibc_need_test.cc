#include "bench/doctor/glibc_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/temp_path.h"

namespace clustar::bench::doctor {
namespace {

using ::testing::HasSubstr;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class GlibcNeed : public ::testing::Test {
 protected:
  ~GlibcNeed() override { std::filesystem::remove(file_); }
  Result<GlibcVersion> of(const std::string& bytes) {
    std::ofstream(file_, std::ios::binary) << bytes;
    return glibc_needed(file_);
  }
  const std::string file_ = tests::temp_path("glibc", ".so");
};

TEST_F(GlibcNeed, VersionsAreNumbers) {
  EXPECT_EQ(parse_glibc_version("GLIBC_2.2.5"), (GlibcVersion{2, 2}));
  EXPECT_EQ(parse_glibc_version("2.36"), (GlibcVersion{2, 36}));
  EXPECT_EQ(parse_glibc_version("GLIBC_PRIVATE"), std::nullopt);
  EXPECT_LT((GlibcVersion{2, 4}), (GlibcVersion{2, 35}));
  EXPECT_EQ(to_string(GlibcVersion{2, 35}), "2.35");
}

TEST_F(GlibcNeed, WhatRunsHereNeedsNoMoreThanIsHere) {
  const auto needed = glibc_needed("/proc/self/exe");
  ASSERT_TRUE(needed) << needed.error().message;
  EXPECT_GE(*needed, (GlibcVersion{2, 2}));
  EXPECT_LE(*needed, glibc_here());
}

TEST_F(GlibcNeed, TheHighestCounts) {
  std::string bytes = bytes_of(CLUSTAR_STRAY_NET);
  const std::size_t at = bytes.find("GLIBC_2.");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 8, "GLIBC_9.");
  const auto needed = of(bytes);
  ASSERT_TRUE(needed) << needed.error().message;
  EXPECT_EQ(needed->major, 9);
}

TEST_F(GlibcNeed, WhatIsNoLibraryIsSaidToBeNone) {
  EXPECT_THAT(of("#!/bin/sh\n").error().message, HasSubstr("no 64 bit library"));
  EXPECT_THAT(of("").error().message, HasSubstr("no 64 bit library"));
  EXPECT_THAT(glibc_needed("/nowhere/x.so").error().message, HasSubstr("/nowhere/x.so cannot be read"));
}

// Cut anywhere, or with any byte changed: an error or an answer, never a read outside of it.
TEST_F(GlibcNeed, DamagedFilesAreSurvived) {
  const std::string whole = bytes_of(CLUSTAR_STRAY_NET);
  for (std::size_t length = 0; length < whole.size(); length += 97) (void)of(whole.substr(0, length));
  EXPECT_THAT(of(whole.substr(0, whole.size() / 2)).error().message, HasSubstr("is cut off: copy it again"));
  const std::size_t begin = whole.size() > 4096 ? whole.size() - 4096 : 0;  // the section headers
  for (std::size_t at = begin; at < whole.size(); at += 7) {
    std::string changed = whole;
    changed[at] = '\xff';
    (void)of(changed);
  }
}

}  // namespace
}  // namespace clustar::bench::doctor
