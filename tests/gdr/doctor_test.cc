// The report on machines of the folder, with answers of drivers put in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/doctor/gdr_report.h"
#include "tests/gdr/machine_tree.h"

namespace clustar::bench::doctor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using tests::MachineTree;

// GPUs of compute capability 9.0 whose driver can all; NICs whose drivers take dma-bufs.
Probes good(const gdr::Machine& machine) {
  gdr::CudaAnswers answers;
  for (const gdr::Gpu& gpu : machine.gpus) {
    answers.gpus[gpu.pci.address] = {.direct_rdma = gdr::Known::kYes,
                                     .dma_buf = gdr::Known::kYes,
                                     .c2c = gdr::Known::kNo,
                                     .compute_capability = 90,
                                     .cuda_version = 12080};
  }
  return {.cuda = [answers] { return answers; },
          .nic =
              [](const std::string&) {
                return gdr::NicFacts{
                    .dma_buf = gdr::Known::kYes, .data_direct = gdr::Known::kNo, .data_direct_evidence = "none"};
              }};
}

TEST(Doctor, OnADgxEveryGpuHasItsNic) {
  const gdr::Machine machine = MachineTree("dgx").read();
  const GdrReport report = examine(machine, good(machine));
  EXPECT_EQ(report.verdict(), Verdict::kOk);
  EXPECT_EQ(report.pairs.size(), 72u);
  ASSERT_EQ(report.best.size(), 8u);
  EXPECT_EQ(report.pairs[report.best[2].value()].nic, "mlx5_2") << "the nearest";
  const std::string text = to_text(report, false);
  EXPECT_THAT(text,
              HasSubstr("GPUDirect RDMA: 8 GPUs, 9 NICs; driver 570.86.15 (open modules); Linux 6.8.0-57-generic; "
                        "nvidia_peermem loaded\n"));
  EXPECT_THAT(text, HasSubstr("0000:13:00.0  mlx5_0 *  PIX       dma-buf      dma-buf      none\n"));
  EXPECT_THAT(text, HasSubstr("0000:13:00.0  eno1      PHB       pinned host  pinned host  none\n"));
  EXPECT_THAT(text, Not(HasSubstr("distance SYS"))) << "of other NICs";
  EXPECT_THAT(text, HasSubstr("\nOK: every GPU has a NIC that writes to its memory.\n"));
  EXPECT_THAT(to_text(report, true), HasSubstr("GPU 0000:13:00.0 and mlx5_7 are at distance SYS"));
}

TEST(Doctor, AGpuWithoutIsNamed) {
  const gdr::Machine machine = MachineTree("two_sockets").read();
  const GdrReport report = examine(machine, good(machine));
  EXPECT_EQ(report.verdict(), Verdict::kMissing);
  EXPECT_THAT(report.gpus_without(), ElementsAre("0000:17:00.0", "0000:b1:00.0"));
  EXPECT_THAT(to_text(report, false),
              AllOf(HasSubstr("Off: no NIC is known to write to the memory of GPU 0000:17:00.0, 0000:b1:00.0.\n"),
                    HasSubstr("fix: a NIC behind the GPU's PCIe switch, or NCCL_NET_GDR_LEVEL=PHB")));
}

TEST(Doctor, WhatIsUnknownIsNoYes) {
  const gdr::Machine machine = MachineTree("dgx").read();
  const GdrReport report = examine(machine, probes_elsewhere());
  EXPECT_EQ(report.verdict(), Verdict::kMissing);
  EXPECT_THAT(to_text(report, false),
              AllOf(HasSubstr("pinned host?"), HasSubstr("unknown: not asked: the tree is not this machine's")));
}

TEST(Doctor, NotesComeOnce) {
  const gdr::Machine machine = MachineTree("acs").read();
  const std::string text = to_text(examine(machine, good(machine)), true);
  const std::string line = "the IOMMU translates the DMA of mlx5_0";
  ASSERT_THAT(text, HasSubstr(line));
  EXPECT_EQ(text.find(line, text.find(line) + 1), std::string::npos);
  EXPECT_THAT(text, HasSubstr("setpci -s 0000:42:00.0 ECAP_ACS+6.w=0000"));
}

TEST(Doctor, WithoutGpuThereIsNothingToDo) {
  const gdr::Machine machine = MachineTree("bare").read();
  bool asked = false;
  Probes probes = good(machine);
  probes.cuda = [&asked] {
    asked = true;
    return gdr::CudaAnswers{};
  };
  const GdrReport report = examine(machine, probes);
  EXPECT_EQ(report.verdict(), Verdict::kNothingToDo);
  EXPECT_FALSE(asked) << "no need to start the CUDA driver";
  EXPECT_THAT(
      to_text(report, false),
      AllOf(HasSubstr("0 GPUs, 1 NIC;"), HasSubstr("  eth0: its device is of the kind virtio, not pci; no RDMA\n"),
            HasSubstr("`lspci -d 10de:`"), HasSubstr("No RDMA device is there"), HasSubstr("Nothing to do: no GPU.")));
}

TEST(Doctor, AGpuWithoutAnyNic) {
  MachineTree tree;
  tree.add("gpu pci0000:00/0000:00:05.0 10de:2330");
  const gdr::Machine machine = tree.read();
  const GdrReport report = examine(machine, good(machine));
  EXPECT_EQ(report.verdict(), Verdict::kMissing);
  EXPECT_THAT(to_text(report, false), AllOf(HasSubstr("  GPU 0000:00:05.0, no NUMA node named\n"),
                                            HasSubstr("No RDMA device is there"), HasSubstr("of GPU 0000:00:05.0.")));
}

TEST(Doctor, WhatCouldNotBeReadIsSaid) {
  MachineTree tree("dgx");
  std::filesystem::remove_all(tree.device("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0"));
  const gdr::Machine machine = tree.read();
  EXPECT_EQ(examine(machine, good(machine)).verdict(), Verdict::kUnknown);
  EXPECT_THAT(to_text(examine(machine, good(machine)), false),
              HasSubstr("Could not be read, and is left out:\n  " + tree.sysfs().string() +
                        "/bus/pci/devices/0000:13:00.0: No such file or directory\n"));
}

TEST(Doctor, JsonHasEveryPairAndFact) {
  const gdr::Machine machine = MachineTree("gh200").read();
  Probes probes = good(machine);
  probes.settings.gdr_level = "PHB";
  const nlohmann::json json = to_json(examine(machine, probes));
  EXPECT_EQ(json["verdict"], "ok");
  EXPECT_THAT(json["gpus_without"], IsEmpty());
  ASSERT_EQ(json["pairs"].size(), 4u);
  EXPECT_EQ(json["pairs"][0]["distance"], "PHB");
  EXPECT_EQ(json["pairs"][0]["receive"], "dma-buf");
  EXPECT_EQ(json["pairs"][1]["receive"], "pinned host");
  EXPECT_EQ(json["pairs"][1]["refused"][2]["tiers"], nlohmann::json::array({"nvidia_peermem"}));
  EXPECT_EQ(json["gpus"][0]["pci"]["address"], "0009:01:00.0");
  EXPECT_EQ(json["gpus"][0]["best_nic"], "mlx5_0");
  EXPECT_EQ(json["nics"][0]["dma_buf"], "yes");
  EXPECT_EQ(json["settings"]["NCCL_NET_GDR_LEVEL"], "PHB");
  EXPECT_EQ(json["settings"]["NCCL_NET_GDR_READ"], nullptr);
  EXPECT_EQ(json["system"]["peermem"], nullptr);
}

}  // namespace
}  // namespace clustar::bench::doctor
