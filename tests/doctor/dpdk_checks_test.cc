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
  facts.has_iommu = facts.has_vfio = true;
  facts.control_interfaces = "eth0";
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

TEST(DpdkChecks, AllIsWell) { EXPECT_EQ(counts(dpdk_checks(ready_machine())), "0 failed, 0 warnings, 5 ok"); }

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

// eth1 is up and has an address.
DpdkFacts with_interface(const std::string& devices) {
  DpdkFacts facts{.module = true, .devices = devices};
  facts.rights = {true, true, true, true};
  facts.xdp_memory = 34 << 20;
  facts.interfaces["eth1"] = {.index = 3, .is_up = true, .mtu = 1500, .receive_queues = 1, .has_ipv4 = true};
  return facts;
}

TEST(DpdkChecks, VirtualDevicesNeedRightsAndTheirInterface) {
  const DpdkFacts whole = with_interface("net_af_packet0,iface=eth1");
  EXPECT_EQ(counts(dpdk_checks(whole)), "0 failed, 0 warnings, 4 ok");
  DpdkFacts facts = whole;
  facts.rights = {};
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("open packet sockets, nor set up interfaces"));
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("setcap cap_net_raw,cap_net_admin+ep"));
  facts = whole;
  facts.interfaces["eth1"].is_up = false;
  EXPECT_EQ(the_odd_one(facts).fix, "ip link set eth1 up");
  facts = whole;
  facts.interfaces["eth1"].has_ipv4 = false;
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("ip addr add"));
  facts = whole;
  facts.interfaces["eth1"].mtu = 65536;
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("allowed is at most 32000"));
  facts = whole;
  facts.interfaces.clear();
  EXPECT_EQ(the_odd_one(facts).evidence, "the kernel has no interface eth1");
  facts = whole;
  facts.devices = "net_af_packet0@10.0.0.1/24";
  facts.control_interfaces = "eth0";
  EXPECT_EQ(the_odd_one(facts).fix, "net_af_packet0,iface=eth1");
  facts.devices = "net_bogus0@10.0.0.1/24";
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kWarning);
  facts.devices = "net_memif0,role=server@10.0.0.1/24;net_tap0,iface=dtap0@10.0.1.1/24";
  EXPECT_EQ(counts(dpdk_checks(facts)), "0 failed, 0 warnings, 5 ok");
  facts.devices = "eth1";
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("'eth1' is neither"));
  facts.devices.clear();
  facts.ports = ready_machine().ports;
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kWarning);
}

TEST(DpdkChecks, ControlConnectionsNeedAnAddressOfTheKernel) {
  DpdkFacts facts = with_interface("net_af_packet0,iface=eth1@10.0.0.1/24");
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("CLUSTAR_CONTROL_IFNAME=eth0"));
  facts.kernel_has = {0x0a000001};
  EXPECT_FALSE(any_failed(dpdk_checks(facts)));
  facts.kernel_has.clear();
  facts.control_interfaces = "eth0";
  EXPECT_FALSE(any_failed(dpdk_checks(facts)));
}

TEST(DpdkChecks, XdpNeedsMoreRights) {
  DpdkFacts facts = with_interface("net_af_xdp0,iface=eth1");
  facts.rights.lock = false;
  EXPECT_EQ(the_odd_one(facts).evidence, "this user may not lock 34 MiB of memory");
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("ulimit -l 34816"));
  facts.rights.load_xdp = false;
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep"));
}

TEST(DpdkChecks, AnInterfaceForXdpIsWholeAndFree) {
  const DpdkFacts whole = with_interface("net_af_xdp0,iface=eth1");
  EXPECT_FALSE(any_failed(dpdk_checks(whole)));
  DpdkFacts facts = whole;
  auto& eth1 = facts.interfaces.at("eth1");
  eth1.receive_queues = 8;
  EXPECT_EQ(the_odd_one(facts).fix, "ethtool -L eth1 combined 1 || ethtool -L eth1 rx 1");
  facts.devices += ",queue_count=8";
  EXPECT_FALSE(any_failed(dpdk_checks(facts)));
  facts.devices += "0";
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("'queue_count=80' is no number of queues"));
  facts.devices = whole.devices;
  facts.queues = 16;
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("8 receive queues, and 16 are asked for"));
  facts = whole;
  eth1.mtu = 9000;
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("ip link set eth1 mtu 3500"));
  EXPECT_EQ(the_odd_one(facts).outcome, Outcome::kWarning) << "some drivers take them";
  facts = whole;
  eth1.has_port = true;
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("another process has a net_af_xdp port on eth1"));
  facts = whole;
  facts.devices += ";net_af_xdp1,iface=eth1";
  EXPECT_EQ(the_odd_one(facts).evidence, "net_af_xdp0 is on the same interface");
}

TEST(DpdkChecks, AProgramThatIsThereAlready) {
  const DpdkFacts whole = with_interface("net_af_xdp0,iface=eth1");
  DpdkFacts facts = whole;
  auto& eth1 = facts.interfaces.at("eth1");
  eth1.has_xdp = true;
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("only CAP_SYS_ADMIN may ask"));
  eth1.xdp_name = "firewall";
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("(firewall)"));
  EXPECT_THAT(the_odd_one(facts).fix, HasSubstr("ip link set eth1 xdp off"));
  facts.devices += ",xdp_prog=/own.o";
  EXPECT_FALSE(any_failed(dpdk_checks(facts))) << "the user's own affair";
  eth1.xdp_name = "xsk_def_prog";
  facts.control_interfaces = "eth0";
  facts.devices = "net_af_xdp0,iface=eth1@10.0.0.1/24";
  EXPECT_FALSE(any_failed(dpdk_checks(facts)));
  facts.kernel_has = {0x0a000001};
  EXPECT_THAT(the_odd_one(facts).evidence, HasSubstr("(xsk_def_prog)")) << "it is steered then";
  eth1.xdp_name = transport::io::dpdk::kSteeringName;
  EXPECT_FALSE(any_failed(dpdk_checks(facts))) << "a killed rank's is removed";
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
