#include "transport/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tests/temp_path.h"

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
  const auto config = Config::load_from(environment);
  return config ? "no error" : config.error().message;
}

TEST(Config, DefaultsWhenNothingIsSet) {
  const auto config = Config::load_from({});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->transport, "auto");
  EXPECT_EQ(config->tcp_sockets, Config{}.tcp_sockets);
  EXPECT_THAT(config->describe(), Contains(HasSubstr("stall_timeout = 0 (default)")));
}

TEST(Config, EnvironmentIsTypedAndItsSourceIsKept) {
  const auto config = Config::load_from({{"CLUSTAR_TRANSPORT", "tcp"},
                                         {"CLUSTAR_TCP_SOCKETS", "8"},
                                         {"CLUSTAR_TCP_EAGER_BYTES", "16K"},
                                         {"CLUSTAR_STALL_TIMEOUT", "2.5"},
                                         {"CLUSTAR_REQUIRE", "tcp|mlt"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->tcp_sockets, 8);
  EXPECT_EQ(config->tcp_eager_bytes, 16384u);
  EXPECT_EQ(config->stall_timeout, std::chrono::milliseconds(2500));
  EXPECT_THAT(config->require, ::testing::ElementsAre("tcp", "mlt"));
  EXPECT_THAT(config->describe(), Contains("tcp_sockets = 8 (environment)"));
}

TEST(Config, UnknownNamesAndBadValuesNameTheKeyAndWhatIsAllowed) {
  EXPECT_THAT(error_of({{"CLUSTAR_TRANSPROT", "tcp"}}),
              AllOf(HasSubstr("CLUSTAR_TRANSPROT"), HasSubstr("CLUSTAR_TRANSPORT,")));
  EXPECT_THAT(error_of({{"CLUSTAR_TRANSPORT", "udp"}}), AllOf(HasSubstr("CLUSTAR_TRANSPORT"), HasSubstr("tcp | mlt")));
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
  const auto config = Config::load_from({{"CLUSTAR_PSK_FILE", "/etc/psk"}, {"CLUSTAR_PSK_MODE", "encrypt"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->psk_file, "/etc/psk");
  EXPECT_EQ(config->psk_mode, "encrypt");
  EXPECT_EQ(Config::load_from({{"CLUSTAR_PSK_FILE", "/etc/psk"}})->psk_mode, "authenticate");
  EXPECT_THAT(error_of({{"CLUSTAR_PSK_MODE", "encrypt"}}), HasSubstr("psk_mode protects nothing without psk_file"));
  EXPECT_THAT(error_of({{"CLUSTAR_PSK_FILE", ""}}), HasSubstr("CLUSTAR_PSK_FILE"));
  EXPECT_THAT(error_of({{"CLUSTAR_PSK_FILE", "/etc/psk"}, {"CLUSTAR_PSK_MODE", "none"}}),
              HasSubstr("authenticate | encrypt"));
}

TEST(Config, TestVariablesAreLeftAlone) { EXPECT_TRUE(Config::load_from({{"CLUSTAR_TEST_MNIST", "x"}})); }

TEST(Config, EnvironmentBeatsFileBeatsDefault) {
  const ConfigFile file("transport = \"tcp\"\ntcp_sockets = 3\ntcp_chunk_bytes = \"64K\"\n");
  const auto config = Config::load_from({{"CLUSTAR_CONFIG", file.path()}, {"CLUSTAR_TCP_SOCKETS", "5"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->transport, "tcp");
  EXPECT_EQ(config->tcp_sockets, 5);
  EXPECT_EQ(config->tcp_chunk_bytes, 65536u);
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

TEST(Config, FaultsAreForMltOnly) {
  EXPECT_THAT(error_of({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}}),
              AllOf(HasSubstr("mlt only"), HasSubstr("CLUSTAR_TRANSPORT=mlt")));
  EXPECT_THAT(error_of({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_TRANSPORT", "tcp"}}), HasSubstr("is tcp"));
  EXPECT_THAT(error_of({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_REQUIRE", "mlt|tcp"}}), HasSubstr("is auto"));
  EXPECT_TRUE(Config::load_from({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_REQUIRE", "mlt"}}));
  const auto config = Config::load_from({{"CLUSTAR_INJECT_FAULTS", "loss=0.01"}, {"CLUSTAR_TRANSPORT", "mlt"}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->inject_faults, "loss=0.01");
}

TEST(Config, AStaticDeadlineIsForMltOnly) {
  EXPECT_THAT(error_of({{"CLUSTAR_STATIC_DEADLINE", "0.01"}}), HasSubstr("CLUSTAR_TRANSPORT=mlt"));
  EXPECT_THAT(error_of({{"CLUSTAR_STATIC_DEADLINE", "-1"}, {"CLUSTAR_TRANSPORT", "mlt"}}), HasSubstr("3600"));
  const auto config = Config::load_from({{"CLUSTAR_STATIC_DEADLINE", "0.0125"}, {"CLUSTAR_TRANSPORT", "mlt"}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->static_deadline, std::chrono::microseconds(12500));
}

TEST(Config, LossIsOffAndItsKeysAreTyped) {
  const Config none = Config::load_from({}).value();
  EXPECT_EQ(none.loss_tolerance_ppm, 10'000u);
  EXPECT_EQ(none.loss_traffic_classes + none.loss_rules + none.chain_profiler, "");
  EXPECT_EQ(none.loss_critical_tolerance_ppm, std::nullopt);
  EXPECT_EQ(none.tuner, "on");
  EXPECT_THAT(none.describe(), Contains("loss_tolerance = 0.01 (default)"));

  const auto config = Config::load_from({{"CLUSTAR_LOSS_TOLERANCE", "0.0123456"},
                                         {"CLUSTAR_LOSS_TRAFFIC_CLASSES", "160-167"},
                                         {"CLUSTAR_LOSS_RULES", "comm=dp*,p=0.02; comm=tp*, p=0"},
                                         {"CLUSTAR_LOSS_WARMUP", "4294967295"},
                                         {"CLUSTAR_LOSS_CRITICAL_TOLERANCE", "0"},
                                         {"CLUSTAR_LOSS_CRITICAL_DROP", "1"},
                                         {"CLUSTAR_LOSS_TRUST_PROFILER", "1"},
                                         {"CLUSTAR_TUNER", "off"},
                                         {"CLUSTAR_CHAIN_PROFILER", "inspector"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->loss_tolerance_ppm, 12'346u);
  EXPECT_EQ(config->loss_traffic_classes, "160-167");
  EXPECT_EQ(config->loss_rules, "comm=dp*,p=0.02; comm=tp*, p=0");
  EXPECT_EQ(config->loss_warmup, 4294967295u);
  EXPECT_EQ(config->loss_critical_tolerance_ppm, 0u);
  EXPECT_EQ(config->loss_critical_drop, 1.0);
  EXPECT_TRUE(config->loss_trust_profiler);
  EXPECT_EQ(config->tuner, "off");
  EXPECT_EQ(config->chain_profiler, "inspector");
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
  const auto digests = [](const std::map<std::string, std::string>& environment) {
    return Config::load_from(environment).value().shared_digests();
  };
  const SharedDigests none = digests({});
  EXPECT_EQ(digests({{"CLUSTAR_LOSS_TOLERANCE", "1e-2"}, {"CLUSTAR_TUNER", "on"}, {"CLUSTAR_TCP_SOCKETS", "4"}}), none);
  // What counts where it is not set.
  EXPECT_EQ(digests({{"CLUSTAR_LOSS_CRITICAL_TOLERANCE", "0.01"}}), none);
  const std::map<std::string, std::string> others{
      {"CLUSTAR_LOSS_TOLERANCE", "0.02"},       {"CLUSTAR_LOSS_TRAFFIC_CLASSES", "160"},
      {"CLUSTAR_LOSS_RULES", "p=0.01"},         {"CLUSTAR_LOSS_WARMUP", "0"},
      {"CLUSTAR_LOSS_CRITICAL_TOLERANCE", "0"}, {"CLUSTAR_LOSS_CRITICAL_DROP", "0.25"},
      {"CLUSTAR_LOSS_TRUST_PROFILER", "1"},     {"CLUSTAR_TUNER", "off"},
  };
  const auto keys = Config::shared_keys();
  ASSERT_EQ(others.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::map<std::string, std::string> changed{*others.find(keys[i])};
    // Else the tolerance of critical phases would follow it, and rightly differ, too.
    if (std::string(keys[i]) == "CLUSTAR_LOSS_TOLERANCE") changed["CLUSTAR_LOSS_CRITICAL_TOLERANCE"] = "0.01";
    const SharedDigests now = digests(changed);
    for (std::size_t j = 0; j < now.size(); ++j) EXPECT_EQ(now[j] != none[j], i == j) << keys[i] << " " << j;
  }
}

TEST(Config, NcclsInterfaceSettingCountsUnlessOursIsSet) {
  const auto theirs = Config::load_from({{"NCCL_SOCKET_IFNAME", "=eth1"}, {"NCCL_SOCKET_FAMILY", "AF_INET6"}});
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->socket_ifname, "=eth1");
  EXPECT_EQ(theirs->socket_family, "ipv6");
  const auto ours = Config::load_from({{"NCCL_SOCKET_IFNAME", "eth1"}, {"CLUSTAR_SOCKET_IFNAME", "lo"}});
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->socket_ifname, "lo");
}

}  // namespace
}  // namespace clustar
