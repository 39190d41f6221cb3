// Distances as NCCL has them (2.28.9: graph/xml.cc makes the tree, graph/topo.cc the nodes, graph/paths.cc the types).
#include "gdr/core/distance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gdr/core/settings.h"
#include "tests/gdr/machine_tree.h"

namespace clustar::gdr {
namespace {

using tests::MachineTree;

// `expected`: a row per GPU, a word per NIC, each in the order of the addresses. `c2c`: of all GPUs.
void expect_distances(const std::string& name, const std::vector<std::string>& nics,
                      const std::vector<std::string>& expected, bool c2c = false) {
  const Machine machine = MachineTree(name).read();
  EXPECT_THAT(machine.problems, ::testing::IsEmpty());
  std::vector<std::string> names;
  for (const Nic& nic : machine.nics) names.push_back(nic.name);
  ASSERT_EQ(names, nics);
  ASSERT_EQ(machine.gpus.size(), expected.size());
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
    std::string row;
    for (const Nic& nic : machine.nics) {
      row += row.empty() ? "" : " ";
      row += to_string(distance(machine, machine.gpus[g].pci, nic.pci, c2c));
    }
    EXPECT_EQ(row, expected[g]) << name << ": GPU " << machine.gpus[g].pci.address;
  }
}

TEST(Distance, DgxHasTwoNicsBehindEachGpusSwitch) {
  // PIX: GPU and NIC hang on one PCI node, the switch (topo.h: at most one bridge is passed). PHB: the path passes the
  // CPU node, which NCCL makes per NUMA node, not per socket or root complex. SYS: it passes two CPU nodes. eno1 is on
  // node 0's root bus.
  expect_distances("dgx", {"eno1", "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"},
                   {"PHB PIX PIX PHB PHB SYS SYS SYS SYS", "PHB PIX PIX PHB PHB SYS SYS SYS SYS",
                    "PHB PHB PHB PIX PIX SYS SYS SYS SYS", "PHB PHB PHB PIX PIX SYS SYS SYS SYS",
                    "SYS SYS SYS SYS SYS PIX PIX PHB PHB", "SYS SYS SYS SYS SYS PIX PIX PHB PHB",
                    "SYS SYS SYS SYS SYS PHB PHB PIX PIX", "SYS SYS SYS SYS SYS PHB PHB PIX PIX"});
}

TEST(Distance, WorkstationHasASwitchBehindASwitch) {
  // PXB: two PCI nodes are passed (paths.cc: a link between PCI nodes is PXB). The NIC in the CPU's slot is PHB: both
  // hang on node "-1", which NCCL takes for a node like any other.
  expect_distances("workstation", {"mlx5_0", "mlx5_1", "mlx5_2"}, {"PIX PXB PHB", "PXB PIX PHB"});
}

TEST(Distance, TwoSocketsWithoutSwitches) {
  // Root ports are no nodes (xml.cc goes up two steps), so all hang on their CPUs; two ports of a NIC are alike.
  expect_distances("two_sockets", {"mlx5_0", "mlx5_1", "mlx5_2"}, {"PHB PHB SYS", "SYS SYS PHB"});
}

TEST(Distance, VirtualMachineHidesTheSwitches) {
  // On the root bus, or behind one emulated port: nothing but the CPU between. eth0's device is virtio's, no PCI
  // device.
  expect_distances("vm", {"mlx5_0", "mlx5_1", "eth0"}, {"PHB PHB unknown", "PHB PHB unknown"});
}

TEST(Distance, AcsIsNotPartOfIt) {
  // NCCL does not read ACS: all five are behind one switch.
  expect_distances("acs", {"mlx5_0", "mlx5_1", "mlx5_2"}, {"PIX PIX PIX", "PIX PIX PIX"});
}

TEST(Distance, GraceHopperReachesItsNicByC2c) {
  // paths.cc, mergePathType: C2C from the GPU to its CPU and PHB from there to the NIC is P2C; with another node in
  // between the farther one counts.
  expect_distances("gh200", {"mlx5_0", "mlx5_1"}, {"P2C SYS", "SYS P2C"}, true);
  // Without C2C (older NCCL, NVML gone) it is a machine with a NIC at another root port.
  expect_distances("gh200", {"mlx5_0", "mlx5_1"}, {"PHB SYS", "SYS PHB"}, false);
}

TEST(Distance, C2cIsNoDetourForWhatIsBehindOneSwitch) {
  // paths.cc takes the smaller of P2C and the path that there is, and PIX is smaller.
  const Machine machine = MachineTree("acs").read();
  EXPECT_EQ(distance(machine, machine.gpus[0].pci, machine.nics[0].pci, true), Distance::kPix);
}

TEST(Distance, SomeBroadcomSwitchesShowAsTwoAndCountAsOne) {
  // topo.cc flattens generation 4 (alike numbers) and 5 (bit 12 of the subsystem tells the level); another make stays
  // two.
  expect_distances("broadcom", {"mlx5_0", "mlx5_1", "mlx5_2"}, {"PIX PHB PHB", "PHB PIX PHB", "PHB PHB PXB"});
}

TEST(Distance, SuchASwitchTakesInOneLevelOnly) {
  // topo.cc marks a flattened switch, so that a third one below stays.
  MachineTree tree;
  std::string path = "pci0000:00/0000:00:01.0";
  tree.add("bridge " + path + " 8086:1111 numa=0");
  for (const char* bridge :
       {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0", "0000:06:00.0"}) {
    path += std::string("/") + bridge;
    tree.add("bridge " + path + " 1000:c010 numa=0 subsystem=1000:a096");
  }
  tree.add("gpu " + path + "/0000:07:00.0 10de:2330 numa=0");
  const std::string port = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0";
  tree.add("bridge " + port + " 1000:c010 numa=0 subsystem=1000:a096");
  tree.add("rdma mlx5_0 " + port + "/0000:08:00.0 15b3:1021 numa=0");
  const Machine machine = tree.read();
  EXPECT_THAT(switches_above(machine, machine.gpus[0].pci), ::testing::ElementsAre("0000:05:00.0", "0000:01:00.0"));
  EXPECT_EQ(distance(machine, machine.gpus[0].pci, machine.nics[0].pci, false), Distance::kPxb);
}

TEST(Distance, NicsWithoutAPciDeviceAreUnknown) {
  // xml.cc hangs such a NIC on the first CPU: PHB or SYS.
  expect_distances("softroce", {"rxe_a"}, {"unknown"});
}

TEST(Distance, BareMachineHasNoPair) { expect_distances("bare", {"eth0"}, {}); }

TEST(Distance, EveryMachineOfTheFolderIsTestedHere) {
  const std::set<std::string> tested = {"dgx",   "workstation", "two_sockets", "vm",  "acs",
                                        "gh200", "broadcom",    "softroce",    "bare"};
  std::set<std::string> there;
  for (const auto& file : std::filesystem::directory_iterator(tests::machines_folder()))
    there.insert(file.path().stem());
  EXPECT_EQ(there, tested);
}

TEST(Distance, OneNodeOfTwoNeedsBothToBeNamed) {
  // A GPU whose firmware names no node hangs on node "-1", another than 0.
  MachineTree tree;
  tree.add("bridge pci0000:00/0000:00:01.0 8086:1111 numa=-1");
  tree.add("gpu pci0000:00/0000:00:01.0/0000:01:00.0 10de:2330 numa=-1");
  tree.add("bridge pci0000:00/0000:00:02.0 8086:1111 numa=0");
  tree.add("rdma mlx5_0 pci0000:00/0000:00:02.0/0000:02:00.0 15b3:1021 numa=0");
  const Machine machine = tree.read();
  EXPECT_EQ(distance(machine, machine.gpus[0].pci, machine.nics[0].pci, false), Distance::kSys);
}

TEST(Distance, OneDeviceIsLoc) {
  const Machine machine = MachineTree("dgx").read();
  EXPECT_EQ(distance(machine, machine.gpus[0].pci, machine.gpus[0].pci, false), Distance::kLoc);
}

TEST(Distance, BridgesBetweenAreThoseBelowTheCommonSwitch) {
  const Machine machine = MachineTree("workstation").read();
  const auto between = [&](int gpu, int nic) {
    std::string text;
    for (const auto& bridge : bridges_between(machine, machine.gpus[gpu].pci, machine.nics[nic].pci))
      text += bridge + " ";
    return text;
  };
  EXPECT_EQ(between(0, 0), "0000:04:00.0 0000:04:01.0 ");
  EXPECT_EQ(between(0, 1), "0000:02:00.0 0000:03:00.0 0000:04:00.0 0000:02:02.0 ");
  EXPECT_EQ(between(0, 2), "") << "goes to the root complex anyway";
}

TEST(Level, IsANameOrAnOldNumber) {
  EXPECT_EQ(parse_level("LOC"), Distance::kLoc);
  EXPECT_EQ(parse_level("PXB"), Distance::kPxb);
  EXPECT_EQ(parse_level("P2C"), Distance::kP2c);
  EXPECT_EQ(parse_level("SYS"), Distance::kSys);
  EXPECT_EQ(parse_level("0"), Distance::kLoc);
  EXPECT_EQ(parse_level("1"), Distance::kPix);
  EXPECT_EQ(parse_level("2"), Distance::kPxb);
  EXPECT_EQ(parse_level("3"), Distance::kPhb);
  EXPECT_EQ(parse_level("4"), Distance::kSys);
  EXPECT_EQ(parse_level("5"), Distance::kSys);
  EXPECT_EQ(parse_level("2147483647"), Distance::kSys);
  EXPECT_EQ(parse_level("3x"), Distance::kPhb) << "strtol";
  EXPECT_EQ(parse_level("0x1"), Distance::kPix);
  EXPECT_EQ(parse_level("0X3"), Distance::kPhb);
  EXPECT_EQ(parse_level("0x4"), Distance::kSys);
  EXPECT_EQ(parse_level("0x"), Distance::kLoc);
  EXPECT_EQ(parse_level("03"), Distance::kPhb);
  EXPECT_EQ(parse_level("08"), Distance::kLoc) << "no octal digit";
  EXPECT_EQ(parse_level("018"), Distance::kPix) << "octal, up to the 8";
  EXPECT_EQ(parse_level("4294967298"), Distance::kPxb) << "cut to an int";
  EXPECT_EQ(parse_level("2147483648"), std::nullopt) << "NCCL takes it for a negative index: undefined";
  EXPECT_EQ(parse_level("99999999999999999999"), std::nullopt) << "LONG_MAX, cut to -1: undefined";
  EXPECT_EQ(parse_level(" 3"), std::nullopt);
  EXPECT_EQ(parse_level("+3"), std::nullopt);
  EXPECT_EQ(parse_level("pxb"), std::nullopt);
  EXPECT_EQ(parse_level("unknown"), std::nullopt);
  EXPECT_EQ(parse_level(""), std::nullopt);
  EXPECT_EQ(parse_level("-1"), std::nullopt);
}

TEST(Settings, NumbersAreReadAsNcclReadsThem) {
  EXPECT_EQ(number_of(std::nullopt, 7), 7);
  EXPECT_EQ(number_of("", 7), 7);
  EXPECT_EQ(number_of("0", 7), 0);
  EXPECT_EQ(number_of(" -2", 7), -2);
  EXPECT_EQ(number_of("0x10", 7), 16);
  EXPECT_EQ(number_of("010", 7), 8);
  EXPECT_EQ(number_of("3x", 7), 3);
  EXPECT_EQ(number_of("no", 7), 0);
  EXPECT_EQ(number_of("--1", 7), 0);
  EXPECT_EQ(number_of("99999999999999999999", 7), 7) << "out of range: the default";
  EXPECT_EQ(number_of("-99999999999999999999", 7), 7);
  EXPECT_EQ(number_of("9223372036854775808", 7), 7);
  EXPECT_EQ(number_of("-9223372036854775808", 7), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(number_of("-9223372036854775809", 7), 7);
  EXPECT_EQ(number_of("0x7fffffffffffffff", 7), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(number_of("08", 7), 0);
  EXPECT_EQ(number_of("0x", 7), 0);
  EXPECT_EQ(number_of("0x-5", 7), 0);
  EXPECT_EQ(number_of("\t+1", 7), 1);
  EXPECT_EQ(number_of("- 1", 7), 0);
  EXPECT_EQ(number_of(" ", 7), 0);
}

}  // namespace
}  // namespace clustar::gdr
