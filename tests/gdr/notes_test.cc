// What NCCL's decision does not look at: ACS, IOMMU, settings that mean nothing.
#include "gdr/core/notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gdr/machine_tree.h"

namespace clustar::gdr {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tests::MachineTree;

std::vector<std::string> lines(const Machine& machine, int gpu, int nic, const Facts& facts = {}) {
  std::vector<std::string> all;
  for (const Note& note : notes(machine, machine.gpus.at(gpu), machine.nics.at(nic), facts)) {
    all.push_back(note.why + " | " + note.fix);
  }
  return all;
}

TEST(Notes, AcsThatRedirects) {
  const Machine machine = MachineTree("acs").read();
  EXPECT_THAT(
      lines(machine, 0, 0),
      ElementsAre(
          "ACS sends what goes between GPU 0000:43:00.0 and mlx5_0 up to the CPU, though NCCL counts their switch as "
          "near: 0000:42:00.0 (ACS control 0x001d), 0000:42:01.0 (ACS control 0x0004) | setpci -s 0000:42:00.0 "
          "ECAP_ACS+6.w=0000; setpci -s 0000:42:01.0 ECAP_ACS+6.w=0000; until the next boot, for good in the BIOS; "
          "where virtual machines need ACS, use ATS",
          "the IOMMU translates the DMA of mlx5_0 (iommu_group 32, DMA-FQ), so what goes to its neighbours may be slow "
          "or refused | kernel parameter iommu=pt; in a virtual machine as its host says"));
}

TEST(Notes, AcsThatOnlyRootSees) {
  const Machine machine = MachineTree("acs").read();
  EXPECT_THAT(lines(machine, 1, 1),
              ElementsAre("whether ACS sends what goes between GPU 0000:46:00.0 and mlx5_1 up to the CPU "
                          "is unknown: 0000:42:02.0 (config shows 64 bytes only) | run this as root"));
}

// To be root helps only against a lack of rights.
TEST(Notes, AcsThatNobodySees) {
  Machine machine = MachineTree("acs").read();
  Bridge& bridge = machine.bridges.at("0000:42:02.0");
  bridge.acs_needs_root = false;
  bridge.acs_problem = "the device does not answer (asleep, or gone)";
  EXPECT_THAT(lines(machine, 1, 1),
              ElementsAre("whether ACS sends what goes between GPU 0000:46:00.0 and mlx5_1 up to the CPU is unknown: "
                          "0000:42:02.0 (the device does not answer (asleep, or gone)) | see what `lspci -vv -s "
                          "0000:42:02.0` says of it, and the kernel's log"));
}

TEST(Notes, AcsThatDoesNotRedirect) {
  const Machine machine = MachineTree("acs").read();
  EXPECT_THAT(lines(machine, 1, 2), IsEmpty());
}

TEST(Notes, SettingsThatMeanNothing) {
  Machine machine = MachineTree("dgx").read();
  Facts facts;
  facts.settings.gdr_level = "pxb";
  EXPECT_THAT(
      lines(machine, 0, 1, facts),
      ElementsAre("NCCL_NET_GDR_LEVEL='pxb' is no level, so NCCL ignores it | LOC, PIX, PXB, P2C, PHB or SYS, in "
                  "capitals"));
  facts.settings.gdr_level = "2147483648";
  EXPECT_THAT(lines(machine, 0, 1, facts),
              ElementsAre("NCCL_NET_GDR_LEVEL='2147483648' overflows NCCL's number, and what NCCL then takes it for is "
                          "undefined | LOC, PIX, PXB, P2C, PHB or SYS, in capitals"));
  facts.settings.gdr_level.reset();
  facts.settings.gdrcopy_flush = "1";
  EXPECT_THAT(lines(machine, 0, 1, facts),
              ElementsAre("NCCL_GDRCOPY_FLUSH_ENABLE means nothing without NCCL_GDRCOPY_ENABLE=1 "
                          "| NCCL_GDRCOPY_ENABLE=1, or unset both"));
  facts.settings.gdrcopy_enable = "1";
  EXPECT_THAT(
      lines(machine, 0, 1, facts),
      ElementsAre("NCCL_GDRCOPY_FLUSH_ENABLE is set, but gdrcopy's module is not loaded: /sys/module/gdrdrv is not "
                  "there | modprobe gdrdrv"));
  machine.system.gdrcopy_module = Known::kYes;
  EXPECT_THAT(lines(machine, 0, 1, facts), IsEmpty());
  facts.x86 = false;
  EXPECT_THAT(lines(machine, 0, 1, facts),
              ElementsAre("NCCL flushes by gdrcopy on x86_64 only | unset NCCL_GDRCOPY_FLUSH_ENABLE"));
}

}  // namespace
}  // namespace clustar::gdr
