// What the daemon is made of, without sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "coflow/control/daemon/daemon_log.h"
#include "coflow/control/daemon/strangers.h"
#include "coflow/control/daemon/toml_files.h"
#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

using namespace coflow::control;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(Strangers, OfOneSourceAreFewerThanOfAll) {
  Strangers strangers;
  std::uint64_t link = 0;
  const auto admit = [&](const std::string& source, TimePoint now = kStart) {
    return strangers.admit(++link, source, now);
  };
  for (std::size_t i = 0; i < Strangers::kMostOfOne; ++i) EXPECT_TRUE(admit("a").admitted);
  EXPECT_FALSE(admit("a").admitted);
  EXPECT_TRUE(admit("b").admitted);
  strangers.remove(1);
  EXPECT_TRUE(admit("a").admitted);
  EXPECT_FALSE(admit("a").admitted);
  // The oldest has had time to say what it has to say.
  const auto entry = admit("a", kStart + Strangers::kUndisturbed);
  EXPECT_TRUE(entry.admitted);
  EXPECT_EQ(entry.instead, 2u);
  EXPECT_EQ(strangers.count(), Strangers::kMostOfOne + 1);
}

TEST(Strangers, ACrowdGivesWayToOneThatComesAlone) {
  Strangers strangers;
  std::uint64_t link = 0;
  for (const char* source : {"a", "b", "c", "d"}) {
    for (std::size_t i = 0; i < Strangers::kMostOfOne; ++i) strangers.admit(++link, source, kStart);
  }
  ASSERT_EQ(strangers.count(), Strangers::kMost);
  const auto entry = strangers.admit(++link, "alone", kStart);
  EXPECT_TRUE(entry.admitted);
  ASSERT_TRUE(entry.instead);
  EXPECT_EQ(strangers.count(), Strangers::kMost);
  // A crowd of as many sources is told from nobody; it has its time.
  Strangers many;
  for (std::size_t i = 0; i < Strangers::kMost; ++i) many.admit(++link, std::to_string(i), kStart);
  EXPECT_FALSE(many.admit(++link, "alone", kStart).admitted);
  EXPECT_TRUE(many.admit(++link, "alone", kStart + Strangers::kUndisturbed).admitted);
  EXPECT_EQ(many.count(), Strangers::kMost);
}

TEST(Strangers, TheirTimeIsOverInTheirOrder) {
  Strangers strangers;
  EXPECT_EQ(strangers.next_timeout(), std::nullopt);
  strangers.admit(1, "a", kStart);
  strangers.admit(2, "a", kStart + milliseconds(10));
  strangers.admit(3, "a", kStart + milliseconds(20));
  strangers.remove(2);
  EXPECT_EQ(strangers.next_timeout(), kStart + Strangers::kPatience);
  EXPECT_EQ(strangers.expired(kStart + Strangers::kPatience - milliseconds(1)), std::nullopt);
  EXPECT_EQ(strangers.expired(kStart + Strangers::kPatience), 1u);
  EXPECT_EQ(strangers.expired(kStart + Strangers::kPatience), std::nullopt);
  EXPECT_EQ(strangers.expired(kStart + Strangers::kPatience + milliseconds(20)), 3u);
  EXPECT_EQ(strangers.count(), 0u);
  EXPECT_EQ(strangers.next_timeout(), std::nullopt);
}

TEST(Printable, NeitherEndsALineNorSteersATerminal) {
  EXPECT_EQ(printable("node-1"), "node-1");
  EXPECT_EQ(printable("a\nb\x1b[2J\xff"), "a\\x0ab\\x1b[2J\\xff");
}

class TomlFile {
 public:
  explicit TomlFile(const std::string& text) : path_(temp_path("coordinator_file", ".toml")) {
    std::ofstream(path_) << text;
  }
  ~TomlFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(TopologyFile, SaysWhichHostsHangOnWhichSwitch) {
  const TomlFile file(
      "[leaf.a]\nhosts = [\"n1\", \"n2\"]\nuplink_mbps = 8\n[leaf.b]\nhosts = []\nuplink_mbps = 100000\n");
  CoordinatorOptions options;
  const auto read = read_topology(file.path(), options);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(options.topology.leaves, ElementsAre(std::pair("n1", "a"), std::pair("n2", "a")));
  EXPECT_THAT(options.topology.uplinks, ElementsAre(std::pair("a", 1'000'000u), std::pair("b", 12'500'000'000u)));
}

std::string wrong_topology(const std::string& text) {
  const TomlFile file(text);
  CoordinatorOptions options;
  const auto read = read_topology(file.path(), options);
  if (read) return "";
  // "FILE:LINE: ..."
  EXPECT_THAT(read.error().message, ::testing::StartsWith(file.path() + ":"));
  return read.error().message.substr(file.path().size() + 1);
}

TEST(TopologyFile, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_THAT(wrong_topology(""), HasSubstr("there is no [leaf.NAME]"));
  EXPECT_THAT(wrong_topology("leafs = 1\n"), HasSubstr("1: unknown key 'leafs'; allowed: [leaf.NAME]"));
  EXPECT_THAT(wrong_topology("[leaf.a]\nhosts = [\"n\"]\n"), HasSubstr("uplink_mbps is missing"));
  EXPECT_THAT(wrong_topology("[leaf.a]\nuplink_mbps = 1\n"), HasSubstr("hosts is missing"));
  EXPECT_THAT(wrong_topology("[leaf.a]\nhosts = [\"n\"]\nuplink_mbps = 0\n"),
              HasSubstr("3: leaf.a: uplink_mbps: allowed: 1 to"));
  EXPECT_THAT(wrong_topology("[leaf.a]\nhosts = \"n\"\nuplink_mbps = 1\n"),
              HasSubstr("2: leaf.a: hosts: must be a list"));
  EXPECT_THAT(wrong_topology("[leaf.a]\nhosts = [1]\nuplink_mbps = 1\n"), HasSubstr("must be a list of names"));
  EXPECT_THAT(wrong_topology("[leaf.a]\nhosts = []\nuplink_mbps = 1\nspeed = 2\n"),
              HasSubstr("4: leaf.a: unknown key 'speed'"));
  EXPECT_THAT(
      wrong_topology("[leaf.a]\nhosts = [\"n\"]\nuplink_mbps = 1\n[leaf.b]\nhosts = [\"n\"]\nuplink_mbps = 1\n"),
      HasSubstr("'n' is at leaf '"));
  EXPECT_NE(wrong_topology("[leaf.a\n"), "");
  EXPECT_THAT(wrong_topology("a = " + std::string(5000, '[')), HasSubstr("1: "));
}

TEST(OptionFile, HasTextsNumbersAndLists) {
  const TomlFile file("listen = \"127.0.0.1:0\"\nagents = 7\nno-key = true\ntenant = [\"a=2\", \"b=3\"]\n");
  const auto read = read_option_file(file.path());
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 4u);
  EXPECT_EQ((*read)[0].name, "listen");
  EXPECT_THAT((*read)[0].values, ElementsAre("127.0.0.1:0"));
  EXPECT_THAT((*read)[1].values, ElementsAre("7"));
  EXPECT_THAT((*read)[2].values, ElementsAre("true"));
  EXPECT_EQ((*read)[3].line, 4);
  EXPECT_TRUE((*read)[3].list);
  EXPECT_THAT((*read)[3].values, ElementsAre("a=2", "b=3"));
  const TomlFile table("[http]\nport = 1\n");
  const auto refused = read_option_file(table.path());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("http: must be a text, a number, true, false, or a list of them"));
}

}  // namespace
}  // namespace clustar::tests
