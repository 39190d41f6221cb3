// What is read of a machine, and that nothing in a damaged tree ends worse than in a sentence.
#include "gdr/topology/read_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "gdr/topology/pci.h"
#include "gdr/topology/small_file.h"
#include "tests/gdr/machine_tree.h"

namespace clustar::gdr {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::MachineTree;

constexpr const char* kGpu = "gpu pci0000:00/0000:00:01.0/0000:01:00.0 10de:2330 numa=0";
constexpr const char* kGpuPath = "pci0000:00/0000:00:01.0/0000:01:00.0";
constexpr const char* kNic = "rdma mlx5_0 pci0000:00/0000:00:02.0/0000:02:00.0 15b3:1021 numa=0";
constexpr const char* kNicPath = "pci0000:00/0000:00:02.0/0000:02:00.0";

TEST(ReadMachine, ReadsDevicesBridgesAndModules) {
  const MachineTree tree("acs");
  const Machine machine = tree.read();
  ASSERT_EQ(machine.gpus.size(), 2u);
  const PciDevice& gpu = machine.gpus[0].pci;
  EXPECT_EQ(gpu.address, "0000:43:00.0");
  EXPECT_EQ(gpu.path, fs::canonical(tree.sysfs() / "bus/pci/devices/0000:43:00.0"));
  EXPECT_THAT(gpu.bridges, ElementsAre("0000:40:01.1", "0000:41:00.0", "0000:42:00.0"));
  EXPECT_EQ(gpu.ids.vendor, 0x10de);
  EXPECT_EQ(gpu.class_code, 0x030200u);
  EXPECT_EQ(gpu.numa_node, 0);
  EXPECT_EQ(gpu.iommu, Iommu::kPassthrough);
  EXPECT_EQ(machine.gpus[1].pci.iommu, Iommu::kOff);
  EXPECT_EQ(machine.nics[0].pci.iommu, Iommu::kTranslates);
  EXPECT_EQ(machine.nics[0].pci.iommu_type, "32, DMA-FQ");
  EXPECT_EQ(machine.bridges.at("0000:42:00.0").redirects, Known::kYes);
  EXPECT_EQ(machine.bridges.at("0000:42:00.0").acs_control, 0x001d);
  EXPECT_EQ(machine.bridges.at("0000:42:02.0").redirects, Known::kUnknown);
  EXPECT_EQ(machine.bridges.at("0000:42:02.0").acs_problem, "config shows 64 bytes only");
  EXPECT_TRUE(machine.bridges.at("0000:42:02.0").acs_needs_root);
  EXPECT_EQ(machine.bridges.at("0000:42:03.0").redirects, Known::kNo) << "source validation redirects nothing";
  EXPECT_EQ(machine.bridges.at("0000:42:04.0").redirects, Known::kNo) << "no such capability";
  EXPECT_EQ(machine.system.driver_version, "570.86.15");
  EXPECT_EQ(machine.system.peermem, tree.sysfs() / "module/nvidia_peermem/version");
  EXPECT_EQ(machine.system.gdrcopy_module, Known::kYes);
  EXPECT_EQ(machine.system.kernel_release, "6.1.0-31-amd64");
  EXPECT_EQ(machine.system.open_modules, Known::kYes);
}

TEST(ReadMachine, AnRdmaDevicesInterfaceIsNoNicOfItsOwn) {
  const Machine machine = MachineTree("two_sockets").read();
  ASSERT_EQ(machine.nics.size(), 3u);
  EXPECT_THAT(machine.nics[0].interfaces, ElementsAre("ens3f0np0"));
  EXPECT_EQ(machine.system.open_modules, Known::kNo);
  EXPECT_THAT(machine.system.peermem, HasSubstr("memory_peers/nv_mem"));
}

TEST(ReadMachine, VirtualInterfacesAreNoNics) {
  MachineTree tree("bare");
  fs::create_directories(tree.device("virtual/net/lo"));
  fs::create_symlink(tree.device("virtual/net/lo"), tree.sysfs() / "class/net/lo");
  const Machine machine = tree.read();
  ASSERT_EQ(machine.nics.size(), 1u);
  EXPECT_EQ(machine.nics[0].name, "eth0");
  EXPECT_EQ(machine.nics[0].no_pci, "its device is of the kind virtio, not pci");
}

TEST(ReadMachine, NothingAtAllIsAnEmptyMachine) {
  const Machine machine = read_machine({"/nowhere/at/all", "/nowhere"});
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_TRUE(machine.nics.empty());
  EXPECT_TRUE(machine.system.driver_version.empty());
  EXPECT_EQ(machine.system.open_modules, Known::kUnknown);
}

TEST(ReadMachine, ThisMachineIsReadWithoutAWordOfDoubt) {
  for (const Gpu& gpu : read_machine({}).gpus) EXPECT_TRUE(is_pci_address(gpu.pci.address));
}

// A GPU and a NIC, of which one is spoilt.
class HostileTree : public ::testing::Test {
 protected:
  HostileTree() {
    tree_.add("bridge pci0000:00/0000:00:01.0 8086:1111 numa=0");
    tree_.add(kGpu);
    tree_.add("bridge pci0000:00/0000:00:02.0 8086:1111 numa=0");
    tree_.add(kNic);
  }
  fs::path gpu(const std::string& file) const { return tree_.device(kGpuPath) / file; }
  fs::path nic(const std::string& file) const { return tree_.device(kNicPath) / file; }
  static void overwrite(const fs::path& path, const std::string& text) {
    fs::remove_all(path);
    std::ofstream(path) << text;
  }

  MachineTree tree_;
};

TEST_F(HostileTree, AGpuThatDisappearsIsLeftOutWithAWord) {
  fs::remove_all(tree_.device(kGpuPath));
  const Machine machine = tree_.read();
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_THAT(machine.problems, Contains(HasSubstr("0000:01:00.0: No such file or directory")));
  EXPECT_EQ(machine.nics.size(), 1u);
}

TEST_F(HostileTree, FilesThatDisappearMeanwhile) {
  for (const char* file : {"class", "vendor", "numa_node"}) fs::remove(gpu(file));
  const Machine machine = tree_.read();
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_THAT(machine.problems, Contains(HasSubstr("class: cannot be read, or is no number")));
}

TEST_F(HostileTree, EmptyAndNonsenseFiles) {
  for (const char* content : {"", "\n", "0x", "x", "0x03020z", "0xffffffffff"}) {
    overwrite(gpu("class"), content);
    const Machine machine = tree_.read();
    EXPECT_TRUE(machine.gpus.empty()) << content;
    EXPECT_THAT(machine.problems, ::testing::Not(IsEmpty())) << content;
  }
}

TEST_F(HostileTree, AVendorThatCannotBeReadIsNoNvidia) {
  overwrite(gpu("vendor"), "");
  EXPECT_TRUE(tree_.read().gpus.empty());
}

TEST_F(HostileTree, NodesThatAreNoNumbers) {
  for (const char* content : {"", "-1\n", "node\n", "-7", "99999999999999999999"}) {
    overwrite(gpu("numa_node"), content);
    const Machine machine = tree_.read();
    ASSERT_EQ(machine.gpus.size(), 1u);
    EXPECT_EQ(machine.gpus[0].pci.numa_node, -1) << content;
  }
}

TEST_F(HostileTree, ANicWhoseDeviceLeadsNowhere) {
  fs::remove_all(nic("infiniband/mlx5_0/device"));
  fs::create_symlink("/nowhere", nic("infiniband/mlx5_0/device"));
  const Machine machine = tree_.read();
  ASSERT_EQ(machine.nics.size(), 1u);
  EXPECT_EQ(machine.nics[0].no_pci, "its link `device` leads nowhere");
}

TEST_F(HostileTree, ANicThatDisappears) {
  fs::remove_all(tree_.device(kNicPath));
  const Machine machine = tree_.read();
  EXPECT_TRUE(machine.nics.empty());
  EXPECT_THAT(machine.problems, Contains(HasSubstr("mlx5_0: the link leads nowhere")));
}

TEST_F(HostileTree, ADeviceThatOnlyLooksLikePci) {
  fs::remove(nic("subsystem"));
  EXPECT_EQ(tree_.read().nics[0].no_pci, "its device is of the kind unknown, not pci");
  fs::create_directories(tree_.sysfs() / "bus/auxiliary");
  fs::create_symlink(tree_.sysfs() / "bus/auxiliary", nic("subsystem"));
  const Machine machine = tree_.read();
  EXPECT_EQ(machine.nics[0].no_pci, "its device is of the kind auxiliary, not pci");
  EXPECT_TRUE(machine.nics[0].pci.address.empty());
}

TEST_F(HostileTree, LinksThatBiteTheirTails) {
  const fs::path gpu_link = tree_.sysfs() / "bus/pci/devices/0000:01:00.0";
  fs::remove(gpu_link);
  fs::create_symlink(gpu_link, gpu_link);
  fs::remove(nic("infiniband/mlx5_0/device"));
  fs::create_symlink(nic("infiniband/mlx5_0/device"), nic("infiniband/mlx5_0/device"));
  const Machine machine = tree_.read();
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_THAT(machine.problems, Contains(HasSubstr("Too many levels of symbolic links")));
  ASSERT_EQ(machine.nics.size(), 1u);
  EXPECT_EQ(machine.nics[0].no_pci, "its link `device` leads nowhere");
}

TEST_F(HostileTree, FoldersAndPipesInPlaceOfFiles) {
  fs::remove(gpu("numa_node"));
  fs::create_directory(gpu("numa_node"));
  fs::remove(gpu("device"));
  ASSERT_EQ(mkfifo(gpu("device").c_str(), 0600), 0);
  const fs::path config = tree_.device("pci0000:00/0000:00:01.0/config");
  fs::remove(config);
  fs::create_directory(config);
  const Machine machine = tree_.read();
  ASSERT_EQ(machine.gpus.size(), 1u);
  EXPECT_EQ(machine.gpus[0].pci.numa_node, -1);
  EXPECT_EQ(machine.gpus[0].pci.ids.device, 0);
  const Bridge& bridge = machine.bridges.at("0000:00:01.0");
  EXPECT_EQ(bridge.redirects, Known::kUnknown);
  EXPECT_THAT(bridge.acs_problem, HasSubstr("not a plain file"));
  EXPECT_FALSE(bridge.acs_needs_root);
}

// Without its right to, a process is shown 64 bytes, 128 of a CardBus bridge; 256 are all that the kernel itself
// reaches.
TEST_F(HostileTree, AShortConfigurationSpaceIsALackOfRightsOrOfMore) {
  const fs::path config = tree_.device("pci0000:00/0000:00:01.0/config");
  for (const auto& [bytes, needs_root] : {std::pair(64, true), std::pair(128, true), std::pair(256, false)}) {
    overwrite(config, std::string(static_cast<std::size_t>(bytes), '\0'));
    const Bridge bridge = read_bridge(config.parent_path());
    EXPECT_EQ(bridge.redirects, Known::kUnknown) << bytes;
    EXPECT_EQ(bridge.acs_needs_root, needs_root) << bytes;
  }
}

// A child without root's rights, to whom no file is closed.
TEST_F(HostileTree, AClosedConfigurationSpaceIsALackOfRights) {
  const fs::path config = tree_.device("pci0000:00/0000:00:01.0/config");
  overwrite(config, std::string(4096, '\0'));
  ASSERT_EQ(chmod(config.c_str(), 0), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(77);
    const Bridge bridge = read_bridge(config.parent_path());
    _exit(bridge.redirects == Known::kUnknown && bridge.acs_needs_root ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "root here may not become another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(HostileTree, AFileInPlaceOfTheFolder) {
  fs::remove_all(tree_.sysfs() / "class/infiniband");
  std::ofstream(tree_.sysfs() / "class/infiniband") << "x";
  const Machine machine = tree_.read();
  EXPECT_TRUE(machine.nics.empty());
  EXPECT_THAT(machine.problems, Contains(HasSubstr("class/infiniband: Not a directory")));
}

TEST_F(HostileTree, NamesCannotSpeakToTheTerminal) {
  fs::create_directories(tree_.device("virtual/infiniband/x"));
  fs::create_symlink(tree_.device("virtual/infiniband/x"), tree_.sysfs() / "class/infiniband/\033[2Jrxe");
  tree_.add("file sys/module/nvidia/version 5\a70");
  const Machine machine = tree_.read();
  ASSERT_EQ(machine.nics.size(), 2u);
  EXPECT_EQ(machine.nics[1].name, "?[2Jrxe");
  EXPECT_EQ(machine.system.driver_version, "5?70");
}

TEST_F(HostileTree, IommuGroupsThatTellNothing) {
  fs::create_symlink("/nowhere", nic("iommu_group"));
  EXPECT_EQ(tree_.read().nics[0].pci.iommu, Iommu::kOff) << "a link that leads nowhere is none";
  fs::remove(nic("iommu_group"));
  fs::create_directories(tree_.sysfs() / "kernel/iommu_groups/5");
  fs::create_symlink(tree_.sysfs() / "kernel/iommu_groups/5", nic("iommu_group"));
  EXPECT_EQ(tree_.read().nics[0].pci.iommu, Iommu::kUnknown);
}

// A configuration space with these 32-bit words from 0x100 on.
std::string config(std::initializer_list<std::uint32_t> words) {
  std::string bytes(256, '\0');
  for (const std::uint32_t word : words) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(word >> (8 * i));
  }
  return bytes;
}

TEST(AcsControl, ReadsTheCapabilityWhereverItIs) {
  EXPECT_EQ(acs_control(config({0x0001000d, 0x001d005f})).value(), 0x001d);
  EXPECT_EQ(acs_control(config({0x11000001, 0, 0, 0, 0x0001000d, 0x00040000})).value(), 0x0004);
  EXPECT_EQ(acs_control(config({0, 0})).value(), std::nullopt);
}

TEST(AcsControl, DamagedListsEnd) {
  const auto problem = [](const std::string& bytes) {
    const auto control = acs_control(bytes);
    return control ? std::string("none") : control.error().message;
  };
  EXPECT_EQ(problem(""), "config shows 0 bytes only");
  EXPECT_EQ(problem(config({})), "config shows 256 bytes only");
  EXPECT_EQ(problem(config({0x0001000d})), "config is damaged, or not read to its end");
  EXPECT_EQ(problem(config({0x10000001, 0})), "config is damaged: its list of capabilities does not end") << "itself";
  EXPECT_EQ(problem(config({0x04000001, 0})), "config is damaged: its list of capabilities does not end") << "backward";
  EXPECT_EQ(problem(config({0xffffffff, 0xffffffff})), "the device does not answer (asleep, or gone)");
  EXPECT_EQ(problem(config({0xffc00001, 0})), "config is damaged, or not read to its end");
}

TEST(PciAddress, HasOneShape) {
  EXPECT_TRUE(is_pci_address("0000:1b:00.0"));
  EXPECT_TRUE(is_pci_address("ABCD:1B:00.7"));
  EXPECT_FALSE(is_pci_address("pci0000:00"));
  EXPECT_FALSE(is_pci_address("10000:e0:01.0")) << "behind Intel's VMD, where NCCL sees the CPU";
  EXPECT_FALSE(is_pci_address("0000:1b:00"));
  EXPECT_FALSE(is_pci_address(""));
}

TEST(PciAddress, BridgesEndAtWhatIsNoAddress) {
  EXPECT_THAT(bridges_of("/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/0000:e1:00.0"), IsEmpty());
  EXPECT_THAT(bridges_of("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"), ElementsAre("0000:00:01.0"));
  EXPECT_THAT(bridges_of("0000:00:01.0"), IsEmpty());
  EXPECT_THAT(bridges_of(""), IsEmpty());
}

}  // namespace
}  // namespace clustar::gdr
