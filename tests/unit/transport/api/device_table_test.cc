#include "transport/api/device_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace clustar::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<DeviceProperties> ports(int count) {
  std::vector<DeviceProperties> all;
  for (int i = 0; i < count; ++i) {
    DeviceProperties port;
    port.name = "nic_" + std::to_string(i);
    port.pci_path = "/sys/devices/" + port.name;
    port.speed_mbps = 100000 + i;
    port.port = i + 1;
    port.guid = 77;
    port.max_channels = 1000 - i;
    port.memory_kinds = i == 0 ? 3 : 1;
    port.gdr = i == 2 ? "off: a reason" : "dma-buf";
    port.global_registration = true;
    port.ordered_lines = i == 0;
    all.push_back(port);
  }
  return all;
}

Result<int> fuse(DeviceTable& table, const std::vector<int>& members) { return table.fuse(members); }

TEST(DeviceTable, AFusedDeviceIsWhatAllItsMembersAre) {
  DeviceTable table(ports(3));
  ASSERT_EQ(table.devices().size(), 3u);
  EXPECT_THAT(table.devices()[1].fused, ElementsAre());
  const auto plain = table.devices();
  ASSERT_EQ(fuse(table, {0, 2}), 3);
  ASSERT_EQ(table.devices().size(), 4u);
  EXPECT_EQ(table.plain_count(), 3u);
  const DeviceProperties& fused = table.devices()[3];
  EXPECT_EQ(fused.name, "nic_0+nic_2");
  EXPECT_THAT(fused.fused, ElementsAre(0, 2));
  EXPECT_EQ(fused.speed_mbps, 200002);
  EXPECT_EQ(fused.pci_path, "/sys/devices/nic_0");
  EXPECT_EQ(fused.port, 1);
  EXPECT_EQ(fused.guid, 77u);
  EXPECT_EQ(fused.max_channels, 998);
  EXPECT_EQ(fused.memory_kinds, 1u);
  EXPECT_EQ(fused.gdr, "dma-buf; off: a reason");
  EXPECT_TRUE(fused.global_registration);
  EXPECT_FALSE(fused.ordered_lines);
  EXPECT_EQ(plain.data(), table.devices().data()) << "what was given before stays valid";
}

TEST(DeviceTable, RailsAndPlanesAreKeptWhereAllShareThem) {
  auto devices = ports(3);
  for (auto& device : devices) device.rail_id = 4;
  devices[1].plane_id = 1;
  devices[2].may_lose = devices[2].force_flush = true;
  const std::array members{0, 1, 2};
  const DeviceProperties fused = fused_properties(devices, members);
  EXPECT_EQ(fused.rail_id, 4);
  EXPECT_EQ(fused.plane_id, -1);
  EXPECT_TRUE(fused.may_lose);
  EXPECT_TRUE(fused.force_flush);
}

TEST(DeviceTable, TheSameMembersGiveTheSameDeviceAndOneMemberIsItself) {
  DeviceTable table(ports(4));
  ASSERT_EQ(fuse(table, {0, 1}), 4);
  ASSERT_EQ(fuse(table, {2, 3}), 5);
  EXPECT_EQ(fuse(table, {0, 1}), 4);
  EXPECT_EQ(fuse(table, {1, 0}), 6) << "another order is another device: its first member gives the place";
  EXPECT_EQ(fuse(table, {3}), 3);
  const std::array known{2, 3};
  const std::array unknown{3, 2};
  EXPECT_EQ(table.find(known).value(), 5);
  EXPECT_EQ(table.find(unknown).value(), std::nullopt);
  EXPECT_EQ(table.devices().size(), 7u);
}

TEST(DeviceTable, WhatCannotBeFusedIsSaid) {
  DeviceTable table(ports(10));
  ASSERT_EQ(fuse(table, {0, 1}), 10);
  const auto error = [&](const std::vector<int>& members) {
    const auto fused = fuse(table, members);
    return fused ? "no error" : fused.error().message;
  };
  EXPECT_THAT(error({}), HasSubstr("1 to 8"));
  EXPECT_THAT(error({0, 1, 2, 3, 4, 5, 6, 7, 8}), HasSubstr("9 devices"));
  EXPECT_THAT(error({0, 11}), HasSubstr("device 11 cannot be fused: 0 to 9"));
  EXPECT_THAT(error({-1, 0}), HasSubstr("device -1"));
  EXPECT_THAT(error({10, 2}), HasSubstr("fused already"));
  EXPECT_THAT(error({2, 2}), HasSubstr("device 2 is to be fused with itself"));
  EXPECT_EQ(table.devices().size(), 11u);
  EXPECT_EQ(fuse(table, {0, 1, 2, 3, 4, 5, 6, 7}), 11);
}

TEST(DeviceTable, ItsRoomEndsWithAnError) {
  DeviceTable table(ports(12));
  std::size_t made = 0;
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 12; ++j) {
      if (i != j && fuse(table, {i, j})) ++made;
    }
  }
  EXPECT_EQ(made, DeviceTable::kMostFused);
  EXPECT_EQ(table.devices().size(), 12 + DeviceTable::kMostFused);
  EXPECT_THAT(fuse(table, {11, 10}).error().message, HasSubstr("64 fused devices"));
  EXPECT_EQ(fuse(table, {0, 1}), 12) << "those that exist are still found";
}

// For the thread sanitizer, and for what a reader may see of a device that is being added.
TEST(DeviceTable, MayBeReadWhileItGrows) {
  DeviceTable table(ports(8));
  std::atomic<bool> done{false};
  std::thread reader([&] {
    bool last = false;
    while (!last) {
      last = done;
      const auto devices = table.devices();
      for (std::size_t i = table.plain_count(); i < devices.size(); ++i) EXPECT_EQ(devices[i].fused.size(), 2u);
    }
  });
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      if (i == j) continue;
      EXPECT_TRUE(fuse(table, {i, j}));
    }
  }
  done = true;
  reader.join();
}

}  // namespace
}  // namespace clustar::transport
