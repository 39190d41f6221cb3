#include "nccl_plugin/settings/all_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "mlt/compare/settings.h"
#include "mlt/driver/settings.h"
#include "nccl_plugin/loss/settings.h"
#include "nccl_plugin/settings/plugin_settings.h"
#include "tests/temp_path.h"
#include "transport/api/settings.h"
#include "transport/io/decorators/settings.h"
#include "transport/net/settings.h"
#include "transport/tcp/settings.h"

namespace clustar {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(tests::temp_path("config", ".toml")) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string error_of(const std::map<std::string, std::string>& environment) {
  const auto config = load_settings(environment);
  return config ? "no error" : config.error().message;
}

TEST(Config, DefaultsWhenNothingIsSet) {
  const auto config = load_settings({});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->get<TransportSettings>().transport, "auto");
  EXPECT_EQ(config->get<TcpSettings>().sockets, TcpSettings{}.sockets);
  EXPECT_THAT(config->describe(), Contains(HasSubstr("stall_timeout = 0 (default)")));
}

TEST(Config, EnvironmentIsTypedAndItsSourceIsKept) {
  const auto config = load_settings({{"CLUSTAR_TRANSPORT", "tcp"},
                                     {"CLUSTAR_TCP_SOCKETS", "8"},
                                     {"CLUSTAR_TCP_EAGER_BYTES", "16K"},
                                     {"CLUSTAR_STALL_TIMEOUT", "2.5"},
                                     {"CLUSTAR_REQUIRE", "tcp|mlt"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->get<TcpSettings>().sockets, 8);
  EXPECT_EQ(config->get<TcpSettings>().eager_bytes, 16384u);
  EXPECT_EQ(config->get<TransportSettings>().stall_timeout, std::chrono::milliseconds(2500));
  EXPECT_THAT(config->get<TransportSettings>().require, ::testing::ElementsAre("tcp", "mlt"));
  EXPECT_THAT(config->describe(), Contains("tcp_sockets = 8 (environment)"));
}

TEST(Config, UnknownNamesAndBadValuesNameTheKeyAndWhatIsAllowed) {
  EXPECT_THAT(error_of({{"CLUSTAR_TRANSPROT", "tcp"}}),
              AllOf(HasSubstr("CLUSTAR_TRANSPROT"), HasSubstr("did you mean CLUSTAR_TRANSPORT?")));
  EXPECT_THAT(error_of({{"CLUSTAR_CONGESTION", "bbr"}}), HasSubstr("did you mean CLUSTAR_TCP_CONGESTION?"));
  // Where none is near, all of them.
  EXPECT_THAT(error_of({{"CLUSTAR_QUUX_ZORB", "1"}}),
              AllOf(HasSubstr("allowed: CLUSTAR_TRANSPORT,"), HasSubstr("CLUSTAR_CONFIG")));
  EXPECT_THAT(error_of({{"CLUSTAR_TRANSPORT", "udp"}}), AllOf(HasSubstr("CLUSTAR_TRANSPORT"), HasSubstr("tcp | mlt")));
  for (const char* name : {"CLUSTAR_TRANSPORT", "CLUSTAR_REQUIRE"}) {
    EXPECT_THAT(error_of({{name, "dpdk"}}), AllOf(HasSubstr(name), HasSubstr("tcp | mlt | verbs | ofi")))
        << "planned only";
  }
  for (const char* bad : {"0", "17", "-1", "2x", "", " 2", "99999999999999999999"}) {
    EXPECT_THAT(error_of({{"CLUSTAR_TCP_SOCKETS", bad}}), HasSubstr("1 to 16")) << bad;
  }
  for (const char* bad : {"-1", "4G", "K", "1.5K", "2M"}) {
    EXPECT_THAT(error_of({{"CLUSTAR_TCP_EAGER_BYTES", bad}}), HasSubstr("bytes from 0 to 1048576")) << bad;
  }
  for (const char* bad : {"", "nan", "inf", "-1", "1s", "100000"}) {
    EXPECT_THAT(error_of({{"CLUSTAR_STALL_TIMEOUT", bad}}), HasSubstr("seconds")) << bad;
  }
  EXPECT_THAT(error_of({{"CLUSTAR_REQUIRE", "rdma"}}), HasSubstr("verbs"));
  EXPECT_THAT(error_of({{"CLUSTAR_TCP_EAGER_BYTES", "1M"}, {"CLUSTAR_TCP_WINDOW_BYTES", "128K"}}),
              HasSubstr("must not exceed"));
}

TEST(Config, WhatWouldProtectNothingIsAnError) {
  const auto config = load_settings({{"CLUSTAR_PSK_FILE", "/etc/psk"}, {"CLUSTAR_PSK_MODE", "encrypt"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->get<MltSettings>().psk_file, "/etc/psk");
  EXPECT_EQ(config->get<MltSettings>().psk_mode, "encrypt");
  EXPECT_EQ(load_settings({{"CLUSTAR_PSK_FILE", "/etc/psk"}})->get<MltSettings>().psk_mode, "authenticate");
  EXPECT_THAT(error_of({{"CLUSTAR_PSK_MODE", "encrypt"}}), HasSubstr("psk_mode protects nothing without psk_file"));
  EXPECT_THAT(error_of({{"CLUSTAR_PSK_FILE", ""}}), HasSubstr("CLUSTAR_PSK_FILE"));
  EXPECT_THAT(error_of({{"CLUSTAR_PSK_FILE", "/etc/psk"}, {"CLUSTAR_PSK_MODE", "none"}}),
              HasSubstr("authenticate | encrypt"));
}

TEST(Config, VariablesOfProgramsAroundItAreLeftAlone) {
  EXPECT_TRUE(load_settings({{"CLUSTAR_TEST_MNIST", "x"}, {"CLUSTAR_NCCL_LIBRARY", "x"}}));
}

TEST(Config, EnvironmentBeatsFileBeatsDefault) {
  const ConfigFile file("transport = \"tcp\"\ntcp_sockets = 3\ntcp_chunk_bytes = \"64K\"\n");
  const auto config = load_settings({{"CLUSTAR_CONFIG", file.path()}, {"CLUSTAR_TCP_SOCKETS", "5"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->get<TransportSettings>().transport, "tcp");
  EXPECT_EQ(config->get<TcpSettings>().sockets, 5);
  EXPECT_EQ(config->get<TcpSettings>().chunk_bytes, 65536u);
  EXPECT_THAT(config->describe(), Contains(HasSubstr("tcp_chunk_bytes = 65536 (CLUSTAR_CONFIG")));
}

TEST(Config, BadFilesAreNamed) {
  EXPECT_THAT(error_of({{"CLUSTAR_CONFIG", "/nonexistent.toml"}}), HasSubstr("/nonexistent.toml"));
  {
    const ConfigFile file("tcp_socket = 3\n");
    EXPECT_THAT(error_of({{"CLUSTAR_CONFIG", file.path()}}),
                AllOf(HasSubstr("'tcp_socket'"), HasSubstr("tcp_sockets")));
  }
  {
    const ConfigFile file("tcp_sockets = [1]\n");
    EXPECT_THAT(error_of({{"CLUSTAR_CONFIG", file.path()}}), HasSubstr("must be a string or a number"));
  }
  {
    const ConfigFile file("tcp_sockets = \n");
    EXPECT_THAT(error_of({{"CLUSTAR_CONFIG", file.path()}}), HasSubstr(file.path()));
  }
}

// The parser calls itself for each of them.
TEST(Config, AFileOfBracketsIsRefused) {
  for (const std::string& text : {"tcp_sockets = " + std::string(100'000, '['), std::string(100'000, '['),
                                  "a" + std::string(100'000, '.') + "b = 1\n"}) {
    const ConfigFile file(text);
    EXPECT_THAT(error_of({{"CLUSTAR_CONFIG", file.path()}}),
                AllOf(HasSubstr(file.path()), HasSubstr("line 1"), HasSubstr("more than 64 levels of brackets")));
  }
  const ConfigFile large("#" + std::string(1 << 20, '-'));
  EXPECT_THAT(error_of({{"CLUSTAR_CONFIG", large.path()}}), HasSubstr("too large; allowed: 1048576 bytes"));
}

TEST(Config, WrongRulesAreErrorsThatSayWhichAndWhatIsAllowed) {
  EXPECT_THAT(error_of({{"CLUSTAR_SEND_URGENCY", "comm=tp*,blocking; func=broadcast,soon"}}),
              AllOf(HasSubstr("CLUSTAR_SEND_URGENCY"), HasSubstr("rule 2"), HasSubstr("'soon' is no urgency"),
                    HasSubstr("blocking|prefetch|gradient|background")));
  const ConfigFile file("send_urgency = \"colour=red\"\n");
  EXPECT_THAT(error_of({{"CLUSTAR_CONFIG", file.path()}}),
              AllOf(HasSubstr("CLUSTAR_SEND_URGENCY"), HasSubstr("unknown key 'colour'"), HasSubstr("allowed: ")));
  EXPECT_THAT(error_of({{"CLUSTAR_LOSS_RULES", "colour=red"}}), HasSubstr("colour"));
  EXPECT_THAT(error_of({{"CLUSTAR_LOSS_TRAFFIC_CLASSES", "red"}}), HasSubstr("red"));
  EXPECT_TRUE(load_settings({{"CLUSTAR_SEND_URGENCY", "comm=tp*,blocking; func=broadcast,background"}}));
}

TEST(Config, FaultsAreForMltOnly) {
  EXPECT_THAT(error_of({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}}),
              AllOf(HasSubstr("mlt only"), HasSubstr("CLUSTAR_TRANSPORT=mlt")));
  EXPECT_THAT(error_of({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_TRANSPORT", "tcp"}}), HasSubstr("is tcp"));
  EXPECT_THAT(error_of({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_REQUIRE", "mlt|tcp"}}), HasSubstr("is auto"));
  EXPECT_TRUE(load_settings({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_REQUIRE", "mlt"}}));
  const auto config = load_settings({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_TRANSPORT", "mlt"}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->get<FaultSettings>().inject, "loss=0.01");
}

TEST(Config, AStaticDeadlineIsForMltOnly) {
  EXPECT_THAT(error_of({{"CLUSTAR_STATIC_DEADLINE", "0.01"}}), HasSubstr("CLUSTAR_TRANSPORT=mlt"));
  EXPECT_THAT(error_of({{"CLUSTAR_STATIC_DEADLINE", "-1"}, {"CLUSTAR_TRANSPORT", "mlt"}}), HasSubstr("3600"));
  const auto config = load_settings({{"CLUSTAR_STATIC_DEADLINE", "0.0125"}, {"CLUSTAR_TRANSPORT", "mlt"}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->get<CompareSettings>().static_deadline, std::chrono::microseconds(12500));
}

TEST(Config, ImportantPacketsAreOfMltOnly) {
  EXPECT_THAT(error_of({{"CLUSTAR_LOSS_IMPORTANT", "0.2"}, {"CLUSTAR_TRANSPORT", "tcp"}}),
              HasSubstr("CLUSTAR_TRANSPORT=mlt"));
  EXPECT_THAT(error_of({{"CLUSTAR_LOSS_IMPORTANT", "0.6"}, {"CLUSTAR_TRANSPORT", "mlt"}}), HasSubstr("to 0.5"));
  const auto config = load_settings({{"CLUSTAR_LOSS_IMPORTANT", "0.2"}, {"CLUSTAR_TRANSPORT", "mlt"}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->get<MltSettings>().loss_important_ppm, 200'000u);
}

TEST(Config, LossIsOffAndItsKeysAreTyped) {
  const Config none = load_settings({}).value();
  EXPECT_EQ(none.get<LossSettings>().tolerance_ppm, 10'000u);
  EXPECT_EQ(none.get<LossSettings>().traffic_classes + none.get<LossSettings>().rules +
                none.get<PluginSettings>().chain_profiler,
            "");
  EXPECT_EQ(none.get<LossSettings>().critical_tolerance_ppm, std::nullopt);
  EXPECT_EQ(none.get<PluginSettings>().tuner, "on");
  EXPECT_THAT(none.describe(), Contains("loss_tolerance = 0.01 (default)"));

  const auto config = load_settings({{"CLUSTAR_LOSS_TOLERANCE", "0.0123456"},
                                     {"CLUSTAR_LOSS_TRAFFIC_CLASSES", "160-167"},
                                     {"CLUSTAR_LOSS_RULES", "comm=dp*,p=0.02; comm=tp*, p=0"},
                                     {"CLUSTAR_LOSS_WARMUP", "4294967295"},
                                     {"CLUSTAR_LOSS_CRITICAL_TOLERANCE", "0"},
                                     {"CLUSTAR_LOSS_CRITICAL_DROP", "1"},
                                     {"CLUSTAR_LOSS_TRUST_PROFILER", "1"},
                                     {"CLUSTAR_TUNER", "off"},
                                     {"CLUSTAR_CHAIN_PROFILER", "inspector"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->get<LossSettings>().tolerance_ppm, 12'346u);
  EXPECT_EQ(config->get<LossSettings>().traffic_classes, "160-167");
  EXPECT_EQ(config->get<LossSettings>().rules, "comm=dp*,p=0.02; comm=tp*, p=0");
  EXPECT_EQ(config->get<LossSettings>().warmup, 4294967295u);
  EXPECT_EQ(config->get<LossSettings>().critical_tolerance_ppm, 0u);
  EXPECT_EQ(config->get<LossSettings>().critical_drop, 1.0);
  EXPECT_TRUE(config->get<LossSettings>().trust_profiler);
  EXPECT_EQ(config->get<PluginSettings>().tuner, "off");
  EXPECT_EQ(config->get<PluginSettings>().chain_profiler, "inspector");
}

TEST(Config, LossOutOfRangeSaysWhatIsAllowed) {
  const struct {
    const char* name;
    std::vector<const char*> values;
    const char* allowed;
  } kBad[] = {
      {"CLUSTAR_LOSS_TOLERANCE",
       {"0.11", "0.1000001", "-0.01", "1%", "", "nan", "inf"},
       "fraction from 0.000001 to 0.1"},
      {"CLUSTAR_LOSS_CRITICAL_TOLERANCE", {"0.2", "-1", "", "nan"}, "fraction from 0.000001 to 0.1"},
      {"CLUSTAR_LOSS_WARMUP", {"-1", "4294967296", "1.5", ""}, "from 0 to 4294967295"},
      {"CLUSTAR_LOSS_CRITICAL_DROP", {"0", "-0.1", "1.01", "nan", ""}, "above 0 and up to 1"},
      {"CLUSTAR_LOSS_TRUST_PROFILER", {"yes", "2", ""}, "0 | 1"},
      {"CLUSTAR_TUNER", {"1", "", "ON"}, "on | off"},
  };
  for (const auto& bad : kBad) {
    for (const char* value : bad.values) {
      EXPECT_THAT(error_of({{bad.name, value}}), AllOf(HasSubstr(bad.name), HasSubstr(bad.allowed))) << value;
    }
  }
}

TEST(Config, DigestsDifferExactlyWhereRanksWouldDisagree) {
  const auto digest = [](const std::map<std::string, std::string>& environment) {
    return load_settings(environment).value().shared_digest();
  };
  const SharedDigest none = digest({});
  EXPECT_EQ(digest({{"CLUSTAR_LOSS_TOLERANCE", "1e-2"}, {"CLUSTAR_TUNER", "on"}, {"CLUSTAR_TCP_SOCKETS", "4"}}), none);
  // What counts where it is not set.
  EXPECT_EQ(digest({{"CLUSTAR_LOSS_CRITICAL_TOLERANCE", "0.01"}}), none);
  const std::map<std::string, std::string> others{
      {"CLUSTAR_LOSS_TOLERANCE", "0.02"},       {"CLUSTAR_LOSS_TRAFFIC_CLASSES", "160"},
      {"CLUSTAR_LOSS_RULES", "p=0.01"},         {"CLUSTAR_LOSS_WARMUP", "0"},
      {"CLUSTAR_LOSS_CRITICAL_TOLERANCE", "0"}, {"CLUSTAR_LOSS_CRITICAL_DROP", "0.25"},
      {"CLUSTAR_LOSS_TRUST_PROFILER", "1"},     {"CLUSTAR_TUNER", "off"},
  };
  const std::vector<std::string> names = shared_names(all_settings());
  ASSERT_EQ(others.size(), names.size());
  for (const std::string& name : names) {
    std::map<std::string, std::string> changed{*others.find(name)};
    // Else the tolerance of critical phases would follow it, and rightly differ, too.
    if (name == "CLUSTAR_LOSS_TOLERANCE") changed["CLUSTAR_LOSS_CRITICAL_TOLERANCE"] = "0.01";
    EXPECT_THAT(differing(none, digest(changed), names), ::testing::ElementsAre(name));
  }
  EXPECT_THAT(differing(none, digest({{"CLUSTAR_LOSS_TOLERANCE", "0.02"}}), names),
              ::testing::ElementsAre("CLUSTAR_LOSS_TOLERANCE", "CLUSTAR_LOSS_CRITICAL_TOLERANCE"));
}

TEST(Config, AProgramsValuesAreCheckedToo) {
  Config config;
  config.edit<TcpSettings>()->sockets = 3;
  EXPECT_EQ(config.get<TcpSettings>().sockets, 3);
  EXPECT_EQ(config.source("tcp_sockets"), "program");
  EXPECT_EQ(config.source("tcp_eager_bytes"), "default");
  TcpSettings many;
  many.sockets = 17;
  EXPECT_THROW(config.put(many), std::invalid_argument);
  EXPECT_EQ(config.get<TcpSettings>().sockets, 3);
  LossSettings loss;
  loss.critical_tolerance_ppm = 5000;
  config.put(loss);
  EXPECT_EQ(config.get<LossSettings>().critical_tolerance_ppm, 5000u);
  config.put(LossSettings{});
  EXPECT_EQ(config.get<LossSettings>().critical_tolerance_ppm, std::nullopt);
}

// What is shown is what would be read: put() rests on it.
TEST(Config, EveryDefaultIsAValue) {
  for (const SettingTable* table : all_settings()) {
    for (std::size_t i = 0; i < table->size(); ++i) {
      const std::string text = table->counts(i, Config{});
      EXPECT_TRUE(text.empty() || table->allows(i, text)) << table->info(i).name << " = " << text;
      EXPECT_FALSE(table->info(i).help.empty()) << table->info(i).name;
    }
  }
}

TEST(Config, NcclsInterfaceSettingCountsUnlessOursIsSet) {
  const auto theirs = load_settings({{"NCCL_SOCKET_IFNAME", "=eth1"}, {"NCCL_SOCKET_FAMILY", "AF_INET6"}});
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->get<NetworkSettings>().interfaces, "=eth1");
  EXPECT_EQ(theirs->get<NetworkSettings>().family_name, "ipv6");
  const auto ours = load_settings({{"NCCL_SOCKET_IFNAME", "eth1"}, {"CLUSTAR_SOCKET_IFNAME", "lo"}});
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->get<NetworkSettings>().interfaces, "lo");
}

}  // namespace
}  // namespace clustar
