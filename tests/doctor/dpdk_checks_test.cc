#include "bench/doctor/dpdk_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/temp_path.h"
#include "transport/io/dpdk/huge_pages.h"

namespace clustar::bench::doctor {
namespace {

using ::testing::HasSubstr;

DpdkFacts ready_machine() {
  DpdkFacts facts{.module = true, .devices = "0000:65:00.0@10.0.0.1/24", .free_huge_mb = 1024};
  facts.has_iommu = facts.has_vfio = facts.raw_sockets = true;
  facts.ports = {{.address = "0000:65:00.0",
                  .driver = "vfio-pci",
                  .vendor = "0x8086",
                  .has_group = true,
                  .group_file = "/dev/vfio/12",
                  .group_opens = true}};
  return facts;
}

// The one that is not well.
Check the_odd_one(const DpdkFacts& facts) {
  Check found;
  std::size_t count = 0;
  for (const Check& check : dpdk_checks(facts)) {
    if (check.outcome == Outcome::kOk) continue;
    found = check;
    ++count;
  }
  EXPECT_EQ(count, 1u);
  return found;
}

TEST(DpdkChecks, AllIsWell) { EXPECT_EQ(counts(dpdk_checks(ready_machine())), "0 failed, 0 warnings, 4 ok"); }

TEST(DpdkChecks, ADriverOfTheKernelIsUnboundByTheCommandThatIsSaid) {
  DpdkFacts facts = ready_machine();
  facts.ports[0] = {
      .address = "0000:65:00.0", .driver = "ixgbe", .interface = "eth1", .is_up = true, .has_group = true};
  const Check check = the_odd_one(facts);
  EXPECT_EQ(check.outcome, Outcome::kFailed);
  EXPECT_THAT(check.evidence, HasSubstr("ixgbe has it as eth1, which is up"));
  EXPECT_THAT(check.fix,
              HasSubstr("echo vfio-pci > /sys/bus/pci/devices/0000:65:00.0/driver_override; echo 0000:65:00.0 "
                        "> /sys/bus/pci/devices/0000:65:00.0/driver/unbind; echo 0000:65:00.0 > "
                        "/sys/bus/pci/drivers_probe"));
  facts.ports[0].driver = "mlx5_core";
  facts.has_vfio = facts.has_iommu = false;  // not needed then
  EXPECT_FALSE(any_failed(dpdk_checks(facts)));
}

TEST(DpdkChecks, EachThingThatLacksSaysWhatMendsIt) {
  DpdkFacts facts = ready_machine();
  facts.free_huge_mb = 10;
  EXPECT_EQ(the_odd_one(facts).fix, "echo 128 > /proc/sys/vm/nr_hugepages");
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kWarning);
  facts.huge_pages = "yes";
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kFailed);
  facts = ready_machine();
  facts.has_vfio = false;
  EXPECT_EQ(the_odd_one(facts).fix, "modprobe vfio-pci");
  facts = ready_machine();
  facts.has_iommu = false;
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("intel_iommu=on"));
  facts.unsafe_vfio = true;
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kWarning);
  facts = ready_machine();
  facts.ports[0].group_opens = false;
  EXPECT_EQ(the_odd_one(facts).fix, "chown $USER /dev/vfio/12");
  facts = ready_machine();
  facts.ports.clear();
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("no network controller"));
  facts = ready_machine();
  facts.module.reset();
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("libdpdk-dev"));
  facts.module = false;
  facts.why = "librte_eal.so.23: cannot open shared object file";
  EXPECT_EQ(the_odd_one(facts).evidence, facts.why);
  facts = ready_machine();
  facts.settings_error = "dpdk_mtu = 'x'";
  EXPECT_EQ(the_odd_one(facts).evidence, facts.settings_error);
}

TEST(DpdkChecks, VirtualDevicesNeedARightAndTheirInterface) {
  DpdkFacts facts{.module = true, .devices = "net_af_packet0,iface=eth1"};
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("cap_net_raw"));
  facts.raw_sockets = true;
  EXPECT_EQ(the_odd_one(facts).evidence, "the kernel has no interface eth1");
  facts.interfaces["eth1"] = {.index = 3};
  EXPECT_EQ(the_odd_one(facts).fix, "ip link set eth1 up");
  facts.interfaces["eth1"].is_up = true;
  EXPECT_EQ(counts(dpdk_checks(facts)), "0 failed, 0 warnings, 3 ok");
  facts.devices = "net_memif0,role=server@10.0.0.1/24;net_tap0,iface=dtap0@10.0.1.1/24";
  EXPECT_EQ(counts(dpdk_checks(facts)), "0 failed, 0 warnings, 4 ok");
  facts.devices = "eth1";
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("'eth1' is neither"));
  facts.devices.clear();
  facts.ports = ready_machine().ports;
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kWarning);
}

TEST(DpdkChecks, AnInterfaceForXdpIsWholeAndFree) {
  DpdkFacts facts{.module = true, .devices = "net_af_xdp0,iface=eth1", .raw_sockets = true};
  facts.interfaces["eth1"] = {.index = 3, .is_up = true, .mtu = 1500, .receive_queues = 1};
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("cap_bpf"));
  facts.may_load_xdp = true;
  EXPECT_FALSE(any_failed(dpdk_checks(facts)));
  auto& eth1 = facts.interfaces["eth1"];
  eth1.receive_queues = 8;
  EXPECT_EQ(the_odd_one(facts).fix, "ethtool -L eth1 combined 1 (or rx 1)");
  facts.devices += ",queue_count=8";
  EXPECT_FALSE(any_failed(dpdk_checks(facts)));
  eth1.mtu = 9000;
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("ip link set eth1 mtu 3500"));
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kWarning) << "some drivers take them";
  eth1.mtu = 3000;
  eth1.has_xdp = true;
  eth1.xdp_name = "firewall";
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("(firewall)"));
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("ip link set eth1 xdp off"));
  eth1.xdp_name = transport::io::dpdk::kSteeringName;
  EXPECT_FALSE(any_failed(dpdk_checks(facts))) << "a killed rank's is removed";
  eth1.has_port = true;
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("another process has a net_af_xdp port on eth1"));
}

TEST(DpdkFactsOfSysfs, PortsDriversAndHugePages) {
  namespace fs = std::filesystem;
  const std::string root = tests::temp_path("dpdk_sysfs");
  const auto write = [&](const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  const std::string nic = "/sys/bus/pci/devices/0000:65:00.0";
  write(nic + "/class", "0x020000\n");
  write(nic + "/vendor", "0x8086\n");
  write(nic + "/net/eth1/operstate", "up\n");
  write("/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
  write("/dev/vfio/12", "");
  fs::create_directories(root + "/sys/kernel/iommu_groups/12");
  fs::create_symlink("../../../../kernel/iommu_groups/12", root + nic + "/iommu_group");
  fs::create_symlink("../../drivers/vfio-pci", root + nic + "/driver");
  const auto ports = pci_ports(root + "/sys", root + "/dev");
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].address, "0000:65:00.0");
  EXPECT_EQ(ports[0].driver, "vfio-pci");
  EXPECT_EQ(ports[0].interface, "eth1");
  EXPECT_TRUE(ports[0].is_up);
  EXPECT_TRUE(ports[0].group_opens);
  write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n");
  write("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1\n");
  EXPECT_EQ(transport::io::dpdk::free_huge_pages_mb(root + "/sys"), 1224u);
  fs::remove_all(root);
}

}  // namespace
}  // namespace clustar::bench::doctor
