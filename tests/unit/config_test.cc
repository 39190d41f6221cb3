#include "transport/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace clustar {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(std::string(::testing::TempDir()) + "clustar_config_test.toml") {
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
