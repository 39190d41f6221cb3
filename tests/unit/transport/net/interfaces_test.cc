#include "transport/net/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/temp_path.h"

namespace clustar::transport::net {
namespace {

TEST(InterfaceFilter, PrefixesExactNamesAndExclusions) {
  EXPECT_TRUE(InterfaceFilter("eth").matches("eth0"));
  EXPECT_TRUE(InterfaceFilter("ib,eth").matches("eth0"));
  EXPECT_FALSE(InterfaceFilter("eth").matches("veth0"));
  EXPECT_TRUE(InterfaceFilter("=eth0").matches("eth0"));
  EXPECT_FALSE(InterfaceFilter("=eth0").matches("eth01"));
  EXPECT_FALSE(InterfaceFilter("^docker,lo").matches("docker0"));
  EXPECT_FALSE(InterfaceFilter("^docker,lo").matches("lo"));
  EXPECT_TRUE(InterfaceFilter("^docker,lo").matches("eth0"));
  EXPECT_TRUE(InterfaceFilter("^=eth0").matches("eth01"));
  EXPECT_FALSE(InterfaceFilter("^=eth0").matches("eth0"));
  EXPECT_TRUE(InterfaceFilter("").matches("anything"));
  EXPECT_TRUE(InterfaceFilter(",,eth,").matches("eth3"));
}

TEST(Interfaces, LoopbackIsFoundWhenAskedFor) {
  const auto found = find_interfaces("=lo", Family::kIpv4);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().name, "lo");
  EXPECT_EQ(found->front().addresses.front().to_string(), "127.0.0.1:0");
  EXPECT_TRUE(found->front().pci_path.empty());
}

TEST(Interfaces, AFilterThatMatchesNothingNamesWhatThereIs) {
  const auto found = find_interfaces("=nosuch", Family::kAny);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message,
              ::testing::AllOf(::testing::HasSubstr("nosuch"), ::testing::HasSubstr("CLUSTAR_SOCKET_IFNAME"),
                               ::testing::HasSubstr("lo")));
}

TEST(Interfaces, SpeedAndPciPathComeFromSysfs) {
  namespace fs = std::filesystem;
  const fs::path root = tests::temp_path("sysfs");
  fs::remove_all(root);
  fs::create_directories(root / "devices/pci0000:00/0000:00:05.0");
  fs::create_directories(root / "class/net/ens5");
  fs::create_directories(root / "class/net/tun0");
  fs::create_symlink(root / "devices/pci0000:00/0000:00:05.0", root / "class/net/ens5/device");
  std::ofstream(root / "class/net/ens5/speed") << "100000\n";
  std::ofstream(root / "class/net/tun0/speed") << "-1\n";
  EXPECT_EQ(interface_speed(root, "ens5"), 100000);
  EXPECT_EQ(interface_speed(root, "tun0"), 0) << "-1 means that the driver does not know";
  EXPECT_EQ(interface_speed(root, "absent"), 0);
  EXPECT_EQ(interface_pci_path(root, "ens5"), fs::canonical(root / "devices/pci0000:00/0000:00:05.0"));
  EXPECT_EQ(interface_pci_path(root, "tun0"), "");
  fs::remove_all(root);
}

// As virtio's in most virtual machines.
TEST(Interfaces, ADriverOnThePciBusThatTellsNoSpeedLeavesItUnknown) {
  namespace fs = std::filesystem;
  const fs::path root = tests::temp_path("sysfs_untold");
  fs::remove_all(root);
  fs::create_directories(root / "devices/pci0000:00/0000:00:05.0");
  fs::create_directories(root / "class/net/lo");
  fs::create_symlink(root / "devices/pci0000:00/0000:00:05.0", root / "class/net/lo/device");
  const auto speed = [&](const char* told, int set) {
    std::ofstream(root / "class/net/lo/speed") << told << "\n";
    auto found = find_interfaces("=lo", Family::kIpv4, root);
    EXPECT_TRUE(found && !found->front().pci_path.empty());
    set_speed(*found, set);
    return std::pair(found->front().knows_speed(), found->front().speed_mbps);
  };
  EXPECT_EQ(speed("-1", 0), std::pair(false, kUnknownMbps));
  EXPECT_EQ(speed("25000", 0), std::pair(true, 25000));
  EXPECT_EQ(speed("-1", 200), std::pair(true, 200));
  fs::remove_all(root);
}

}  // namespace
}  // namespace clustar::transport::net
