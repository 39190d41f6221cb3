#include "transport/verbs/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "nccl_plugin/settings/all_settings.h"
#include "tests/temp_path.h"
#include "transport/io/verbs/settings.h"

namespace clustar::transport::verbs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

UsablePort port_of(const std::string& device, int port, const std::string& pci_path) {
  UsablePort usable;
  usable.info.device = device;
  usable.info.port = port;
  usable.info.pci_path = pci_path;
  usable.info.speed_mbps = 100000;
  usable.chip_guid = 42;
  usable.max_queue_pairs = 1000;
  return usable;
}

class VerbsPorts : public ::testing::Test {
 protected:
  VerbsPorts() : bus_(tests::temp_path("pci") + "/0000:00:01.0") {
    for (const char* function : {"0000:01:00.0", "0000:01:00.1", "0000:01:02.3", "0000:02:00.1"}) {
      fs::create_directories(bus_ / function);
    }
    fs::create_directory_symlink("../0000:01:00.1", bus_ / "0000:01:02.3" / "physfn");
  }
  ~VerbsPorts() override { fs::remove_all(bus_.parent_path()); }
  std::string at(const char* function) const { return (bus_ / function).string(); }
  fs::path bus_;
};

TEST_F(VerbsPorts, FunctionsOfOneNicAreOnePciDevice) {
  EXPECT_EQ(chip_pci_path(at("0000:01:00.0")), at("0000:01:00.0"));
  EXPECT_EQ(chip_pci_path(at("0000:01:00.1")), at("0000:01:00.0"));
  EXPECT_EQ(chip_pci_path(at("0000:01:02.3")), at("0000:01:00.0")) << "a virtual function";
  EXPECT_EQ(chip_pci_path(at("0000:02:00.1")), at("0000:02:00.1")) << "function 0 was not handed to this machine";
  EXPECT_EQ(chip_pci_path("/sys/devices/virtual/net"), "/sys/devices/virtual/net");
  EXPECT_EQ(chip_pci_path(""), "");
}

TEST_F(VerbsPorts, DevicesAreWhatNcclFusesBy) {
  const std::vector<UsablePort> ports{port_of("mlx5_0", 1, at("0000:01:00.0")),
                                      port_of("mlx5_1", 1, at("0000:01:00.1")),
                                      port_of("qib0", 1, at("0000:02:00.1")),
                                      port_of("qib0", 2, at("0000:02:00.1")),
                                      port_of("rxe_a", 1, ""),
                                      port_of("rxe_b", 1, "")};
  const auto devices = device_properties(ports);
  ASSERT_EQ(devices.size(), ports.size());
  const std::vector<std::string> names{"mlx5_0", "mlx5_1", "qib0:1", "qib0:2", "rxe_a", "rxe_b"};
  const std::vector<int> numbers{1, 2, 1, 3, 1, 1};  // different on one chip
  for (std::size_t i = 0; i < devices.size(); ++i) {
    EXPECT_EQ(devices[i].name, names[i]);
    EXPECT_EQ(devices[i].port, numbers[i]) << names[i];
    EXPECT_EQ(devices[i].guid, 42u);
    EXPECT_EQ(devices[i].speed_mbps, 100000);
    EXPECT_EQ(devices[i].max_channels, 1000);
  }
  EXPECT_EQ(devices[0].pci_path, devices[1].pci_path);
  EXPECT_EQ(devices[4].pci_path, "");
}

TEST_F(VerbsPorts, ASpeedThatTheDriverDoesNotTellIsNcclsDefault) {
  UsablePort port = port_of("x", 1, "");
  port.info.speed_mbps = 0;
  EXPECT_EQ(device_properties({&port, 1})[0].speed_mbps, 10000);
}

TEST(VerbsSettings, AreThoseOfTheConfig) {
  const Settings defaults{Config{}};
  EXPECT_EQ(defaults.gid.index, -1);
  EXPECT_EQ(defaults.retry.timeout, 20);
  EXPECT_EQ(defaults.retry.retry_cnt, 6);
  EXPECT_EQ(defaults.traffic_class, -1);
  EXPECT_EQ(defaults.adaptive_routing, Choice::kAuto);
  const auto config = load_settings({{"NCCL_IB_GID_INDEX", "3"},
                                     {"NCCL_IB_ADDR_FAMILY", "AF_INET6"},
                                     {"NCCL_IB_TC", "104"},
                                     {"NCCL_IB_QPS_PER_CONNECTION", "4"},
                                     {"NCCL_IB_ADAPTIVE_ROUTING", "1"},
                                     {"CLUSTAR_IB_RELAXED_ORDERING", "off"},
                                     {"CLUSTAR_IB_MTU", "2048"},
                                     {"CLUSTAR_SOCKET_FAMILY", "ipv4"}});
  ASSERT_TRUE(config) << config.error().message;
  const Settings settings(*config);
  EXPECT_EQ(settings.gid.index, 3);
  EXPECT_EQ(settings.gid.family, io::verbs::GidFamily::kIpv6);
  EXPECT_EQ(settings.traffic_class, 104);
  EXPECT_EQ(settings.queue_pairs, 4);
  EXPECT_EQ(settings.adaptive_routing, Choice::kOn);
  EXPECT_EQ(settings.relaxed_ordering, Choice::kOff);
  EXPECT_EQ(settings.mtu, 2048);
  EXPECT_EQ(settings.family, net::Family::kIpv4);
}

TEST(VerbsSettings, ATrafficClassIsAServiceLevelAsInNcclWhereItCanBe) {
  EXPECT_EQ(service_level_of(-1), 0);
  EXPECT_EQ(service_level_of(3), 3);
  EXPECT_EQ(service_level_of(15), 15);
  EXPECT_EQ(service_level_of(104), 3) << "DSCP 26: class 3";
  EXPECT_EQ(service_level_of(255), 7);
}

TEST(VerbsPortSearch, WhatNoDeviceMatchesIsAnErrorThatNamesTheFilter) {
  Config config;
  config.edit<IbSettings>()->hca = "=no_such_device";
  const auto none = usable_ports(Settings(config));
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message,
              HasSubstr("no RDMA device matches CLUSTAR_IB_HCA or NCCL_IB_HCA = '=no_such_device'"));
  config.edit<IbSettings>()->hca = "mlx5_0:x";
  const auto bad = usable_ports(Settings(config));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalidArgument) << bad.error().message;
}

}  // namespace
}  // namespace clustar::transport::verbs
