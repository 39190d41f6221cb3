#include "bench/ab/arm.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace clustar::bench::ab {
namespace {

const std::string kFile = "/proc/self/exe";  // any file does where none is opened

TEST(AbArm, SettingsAndPluginComeFromOneText) {
  const auto arm = parse_arm("CLUSTAR_TCP_SOCKETS=4,plugin=" + kFile + ",NCCL_X=a=b,EMPTY=", "", "/absent.so");
  ASSERT_TRUE(arm) << arm.error().message;
  EXPECT_EQ(arm->plugin, kFile);
  EXPECT_EQ(arm->settings, (Settings{{"CLUSTAR_TCP_SOCKETS", "4"}, {"NCCL_X", "a=b"}, {"EMPTY", ""}}));
}

TEST(AbArm, AnEscapedCommaBelongsToTheValue) {
  const auto arm = parse_arm("CLUSTAR_SOCKET_IFNAME=eth0\\,ib0", "two NICs", kFile);
  ASSERT_TRUE(arm) << arm.error().message;
  EXPECT_EQ(arm->settings.at("CLUSTAR_SOCKET_IFNAME"), "eth0,ib0");
  EXPECT_EQ(arm->name, "two NICs");
}

TEST(AbArm, WithoutANameItsSettingsAreTheName) {
  EXPECT_EQ(parse_arm("CLUSTAR_TCP_SOCKETS=4", "", kFile)->name, "CLUSTAR_TCP_SOCKETS=4");
  EXPECT_EQ(parse_arm("", "", kFile)->name, "defaults");
  EXPECT_EQ(parse_arm("plugin=" + kFile, "", "/absent.so")->name, "exe");
}

TEST(AbArm, WhatIsNoSettingIsNamed) {
  for (const char* text : {"CLUSTAR_TCP_SOCKETS", "=4", "A=1,,B=2", "1A=2", "A B=1", "A=1,"}) {
    const auto arm = parse_arm(text, "", kFile);
    ASSERT_FALSE(arm) << text;
    EXPECT_EQ(arm.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(arm.error().message.find("NAME=VALUE"), std::string::npos) << arm.error().message;
  }
  EXPECT_FALSE(parse_arm("A=1,A=2", "", kFile));
  EXPECT_FALSE(parse_arm("plugin=" + kFile + ",plugin=" + kFile, "", kFile));
}

TEST(AbArm, AnAbsentPluginIsNamed) {
  const auto arm = parse_arm("plugin=/nowhere/x.so", "", kFile);
  ASSERT_FALSE(arm);
  EXPECT_NE(arm.error().message.find("/nowhere/x.so"), std::string::npos);
  EXPECT_FALSE(parse_arm("", "", "/nowhere/default.so"));
}

TEST(AbArm, ByParaexpressItTakesItsOptionsAndNoPlugin) {
  const auto arm = parse_arm("collective=paraexpress,plan=ring,regions=/r.txt,CLUSTAR_TCP_SOCKETS=4", "", kFile);
  ASSERT_TRUE(arm) << arm.error().message;
  EXPECT_TRUE(arm->by_paraexpress());
  EXPECT_EQ(arm->plugin, "");
  EXPECT_EQ(arm->settings, (Settings{{"CLUSTAR_TCP_SOCKETS", "4"}}));
  EXPECT_EQ(arm->options, (Settings{{"collective", "paraexpress"}, {"plan", "ring"}, {"regions", "/r.txt"}}));
  EXPECT_NE(arm->name.find("plan=ring"), std::string::npos) << arm->name;
  const auto proxy = parse_arm("collective=proxy", "", kFile);
  ASSERT_TRUE(proxy) << proxy.error().message;
  EXPECT_FALSE(proxy->by_paraexpress());
  EXPECT_EQ(proxy->plugin, kFile);
}

TEST(AbArm, ThePsBaselineHasANameAndNoSettingsOfOurs) {
  const auto arm = parse_arm("collective=ps,OMP_NUM_THREADS=1", "", kFile);
  ASSERT_TRUE(arm) << arm.error().message;
  EXPECT_TRUE(arm->by_ps());
  EXPECT_FALSE(arm->by_paraexpress());
  EXPECT_FALSE(arm->opens_plugin());
  EXPECT_EQ(arm->plugin, "");
  EXPECT_EQ(arm->options, (Settings{{"collective", "ps"}}));
  EXPECT_EQ(arm->name, "ps-2018 OMP_NUM_THREADS=1");
  EXPECT_EQ(parse_arm("collective=ps", "", kFile)->name, "ps-2018");
  const Settings inherited{{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_TCP_CONGESTION", "reno"}};
  EXPECT_EQ(congestion_of(*arm, inherited, "bbr").name, "bbr") << "its sockets hear of no setting";
  EXPECT_FALSE(congestion_of(*arm, inherited, "bbr").explicitly);
  EXPECT_TRUE(check_options(*arm, 4));
  const std::pair<std::string, std::string> refused[] = {
      {"collective=ps,plugin=" + kFile, "exclude each other"},
      {"collective=ps,plan=ring", "add collective=paraexpress"},
      {"collective=ps,CLUSTAR_TRANSPORT=mlt", "CLUSTAR_TRANSPORT=mlt has no effect with collective=ps"},
      {"collective=ps,NCCL_DEBUG=INFO", "allowed: settings of neither CLUSTAR_ nor NCCL_"}};
  for (const auto& [text, expected] : refused) {
    const auto wrong = parse_arm(text, "", kFile);
    ASSERT_FALSE(wrong) << text;
    EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(wrong.error().message.find(expected), std::string::npos) << wrong.error().message;
  }
}

TEST(AbArm, WhatParaexpressCannotDoIsNamedWithWhatIsAllowed) {
  const std::pair<std::string, std::string> refused[] = {
      {"collective=nccl", "allowed: proxy"},
      {"plan=ring", "add collective=paraexpress"},
      {"helpers=1", "add collective=paraexpress"},
      {"precision=f16", "allowed in small letters: plugin, collective, plan, regions, helpers"},
      {"collective=paraexpress,helpers=65", "65 helpers; allowed: 0 to 64"},
      {"collective=paraexpress,helpers=", " helpers; allowed: 0 to 64"},
      {"collective=paraexpress,helpers=1x", "1x helpers; allowed: 0 to 64"},
      {"collective=proxy,regions=/r.txt", "add collective=paraexpress"},
      {"collective=paraexpress,plugin=" + kFile, "exclude each other"}};
  for (const auto& [text, expected] : refused) {
    const auto arm = parse_arm(text, "", kFile);
    ASSERT_FALSE(arm) << text;
    EXPECT_EQ(arm.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(arm.error().message.find(expected), std::string::npos) << arm.error().message;
  }
  const auto check = [](const std::string& text) { return check_options(*parse_arm(text, "", kFile), 4); };
  EXPECT_TRUE(check("collective=paraexpress,plan=double-tree"));
  EXPECT_TRUE(check("collective=paraexpress,plan=sharded,helpers=2"));
  EXPECT_EQ(parse_arm("collective=paraexpress,helpers=2", "", kFile)->helpers(), 2);
  EXPECT_EQ(parse_arm("", "", kFile)->helpers(), 0);
  EXPECT_TRUE(check("")) << "a plugin's arm has nothing to check";
  const std::pair<std::string, std::string> wrong[] = {
      {"collective=paraexpress,plan=best", "none of auto, direct, ring, double-tree, hierarchical, server"},
      {"collective=paraexpress,plan=hierarchical", "two regions or more"},
      {"collective=paraexpress,plan=sharded", "needs helpers"},
      {"collective=paraexpress,regions=/nowhere/r.txt", "/nowhere/r.txt"}};
  for (const auto& [text, expected] : wrong) {
    const auto checked = check(text);
    ASSERT_FALSE(checked) << text;
    EXPECT_NE(checked.error().message.find(expected), std::string::npos) << checked.error().message;
  }
}

TEST(AbArm, OurPluginsSettingsAreCheckedBeforeAnythingRuns) {
  const Settings none;
  EXPECT_TRUE(check_settings({"", {{"CLUSTAR_TCP_SOCKETS", "4"}, {"NCCL_DEBUG", "INFO"}}, ""}, none));
  const auto unknown = check_settings({"", {{"CLUSTAR_TCP_SOKETS", "4"}}, ""}, none);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("SOKETS"), std::string::npos) << unknown.error().message;
  EXPECT_FALSE(check_settings({"", {{"CLUSTAR_TCP_SOCKETS", "400"}}, ""}, none));
  EXPECT_TRUE(check_settings({"", {{"CLUSTAR_TCP_SOCKETS", "4"}}, ""}, {{"CLUSTAR_TCP_SOCKETS", "400"}}))
      << "an arm overrides what is inherited";
}

TEST(AbArm, CongestionControlIsTheArmsThenTheInheritedThenTheKernels) {
  const Arm with{"", {{"CLUSTAR_TCP_CONGESTION", "reno"}}, ""};
  const Arm without{"", {}, ""};
  const Settings inherited{{"CLUSTAR_TCP_CONGESTION", "cubic"}};
  EXPECT_EQ(congestion_of(with, inherited, "bbr").name, "reno");
  EXPECT_EQ(congestion_of(without, inherited, "bbr").name, "cubic");
  EXPECT_TRUE(congestion_of(without, inherited, "bbr").explicitly);
  EXPECT_EQ(congestion_of(without, {}, "bbr").name, "bbr");
  EXPECT_FALSE(congestion_of(without, {}, "bbr").explicitly);
  EXPECT_EQ(congestion_of({"", {{"CLUSTAR_TRANSPORT", "mlt"}}, ""}, inherited, "bbr").name, "mlt's own");
  EXPECT_EQ(congestion_of({"", {{"CLUSTAR_TRANSPORT", "tcp"}}, ""}, {{"CLUSTAR_TRANSPORT", "mlt"}}, "bbr").name, "bbr");
  // libfabric's sockets have what the kernel gives them.
  EXPECT_EQ(congestion_of({"", {{"CLUSTAR_TRANSPORT", "ofi"}}, ""}, inherited, "bbr").name, "bbr");
  EXPECT_FALSE(congestion_of({"", {{"CLUSTAR_TRANSPORT", "ofi"}}, ""}, inherited, "bbr").explicitly);
}

}  // namespace
}  // namespace clustar::bench::ab
