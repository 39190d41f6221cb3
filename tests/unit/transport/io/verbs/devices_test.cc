#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_path.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/hca_filter.h"

namespace clustar::transport::io::verbs {
namespace {

bool passes(const std::string& filter, const std::string& device, int port = 1) {
  const auto parsed = HcaFilter::parse(filter);
  EXPECT_TRUE(parsed) << filter;
  return parsed && parsed->matches(device, port);
}

TEST(HcaFilter, HasTheMeaningOfNcclIbHca) {
  EXPECT_TRUE(passes("", "mlx5_0"));
  EXPECT_TRUE(passes("mlx5", "mlx5_3"));
  EXPECT_TRUE(passes("mlx5_1", "mlx5_10")) << "a prefix";
  EXPECT_FALSE(passes("=mlx5_1", "mlx5_10"));
  EXPECT_TRUE(passes("=mlx5_1,mlx5_10", "mlx5_10"));
  EXPECT_TRUE(passes("mlx5_0:1", "mlx5_0", 1));
  EXPECT_FALSE(passes("mlx5_0:1", "mlx5_0", 2));
  EXPECT_TRUE(passes("mlx5_0:1,mlx5_1", "mlx5_1", 2));
  EXPECT_FALSE(passes("^mlx5_3", "mlx5_3"));
  EXPECT_TRUE(passes("^mlx5_3", "mlx5_4"));
  EXPECT_FALSE(passes("^=mlx5_3:1", "mlx5_3", 1));
  EXPECT_TRUE(passes("^=mlx5_3:1", "mlx5_3", 2));
  EXPECT_TRUE(passes(",rxe_a,", "rxe_a"));
}

TEST(HcaFilter, ADeviceWhosePortsAreNotKnownMatchesByItsName) {
  EXPECT_TRUE(passes("mlx5_0:1", "mlx5_0", 0));
  EXPECT_TRUE(passes("=mlx5_0:2", "mlx5_0", 0));
  EXPECT_FALSE(passes("mlx5_0:1", "mlx5_1", 0));
  EXPECT_TRUE(passes("^mlx5_0:1", "mlx5_0", 0)) << "its other port may be used";
  EXPECT_FALSE(passes("^mlx5_0", "mlx5_0", 0));
}

TEST(HcaFilter, RefusesWhatIsNoPort) {
  for (const char* text : {"mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:1x", ":1", "mlx5_0:-1"}) {
    const auto parsed = HcaFilter::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().message, ::testing::HasSubstr("NAME:PORT"));
  }
}

TEST(DeviceList, SpeedIsLanesTimesRate) {
  EXPECT_EQ(speed_mbps(1, 1), 2'500) << "what rdma_rxe says";
  EXPECT_EQ(speed_mbps(32, 2), 100'000) << "EDR x4";
  EXPECT_EQ(speed_mbps(64, 2), 200'000) << "HDR x4";
  EXPECT_EQ(speed_mbps(128, 2), 400'000) << "NDR x4";
  EXPECT_EQ(speed_mbps(64, 16), 100'000) << "HDR x2";
  EXPECT_EQ(speed_mbps(0, 2), 0);
  EXPECT_EQ(speed_mbps(32, 128), 0);
}

TEST(DeviceList, PciPathAndNumaNodeComeFromSysfs) {
  namespace fs = std::filesystem;
  const fs::path root = tests::temp_path("sysfs_verbs");
  fs::remove_all(root);
  const fs::path pci = root / "devices/pci0000:80/0000:83:00.0";
  fs::create_directories(pci);
  fs::create_directories(root / "class/infiniband/mlx5_0");
  fs::create_directories(root / "class/infiniband/rxe_a");
  fs::create_symlink(pci, root / "class/infiniband/mlx5_0/device");
  std::ofstream(pci / "numa_node") << "1\n";
  EXPECT_EQ(device_pci_path(root, "mlx5_0"), fs::canonical(pci));
  EXPECT_EQ(device_numa_node(root, "mlx5_0"), 1);
  EXPECT_EQ(device_pci_path(root, "rxe_a"), "");
  EXPECT_EQ(device_numa_node(root, "rxe_a"), -1);
  fs::remove_all(root);
}

}  // namespace
}  // namespace clustar::transport::io::verbs
