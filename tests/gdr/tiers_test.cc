// Tiers by NCCL's rules (2.28.9: graph/paths.cc for distance, sends and flush; init.cc and transport/net_ib.cc for
// dma-buf and nvidia_peermem), and the sentence of each refusal.
#include "gdr/core/tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gdr/core/explain.h"
#include "tests/gdr/machine_tree.h"

namespace clustar::gdr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::MachineTree;

// An H100 whose driver can all, and a NIC that takes dma-bufs but has no data direct.
Facts good() {
  Facts facts;
  facts.gpu = {.direct_rdma = Known::kYes,
               .dma_buf = Known::kYes,
               .cuda_flush = Known::kYes,
               .c2c = Known::kNo,
               .nvlink = Known::kYes,
               .compute_capability = 90,
               .cuda_version = 12080};
  facts.nic = {.dma_buf = Known::kYes,
               .dma_buf_evidence = "ibv_reg_dmabuf_mr: EBADF",
               .data_direct = Known::kNo,
               .data_direct_evidence = "mlx5dv says so"};
  return facts;
}

class Tiers : public ::testing::Test {
 protected:
  void use(const std::string& name) {
    tree_.reset();
    tree_ = std::make_unique<MachineTree>(name);
    machine_ = tree_->read();
  }
  Decision decided(const Facts& facts, int gpu = 0, int nic = 0) const {
    return decide(machine_, machine_.gpus.at(gpu), machine_.nics.at(nic), facts);
  }
  // "headline | fix" of what stands against better tiers.
  static std::vector<std::string> lines(const Decision& decision) {
    std::vector<std::string> all;
    for (const Explanation& one : explanations(decision)) all.push_back(headline(one) + " | " + one.fix);
    return all;
  }

  std::unique_ptr<MachineTree> tree_;
  Machine machine_;
};

TEST_F(Tiers, DgxTakesDmaBufForBothWays) {
  use("dgx");
  const Decision decision = decided(good(), 0, 1);
  EXPECT_EQ(decision.distance, Distance::kPix);
  EXPECT_EQ(decision.receive, Tier::kDmaBuf);
  EXPECT_EQ(decision.send, Tier::kDmaBuf);
  EXPECT_TRUE(decision.receive_certain);
  EXPECT_EQ(decision.flush, Flush::kNone);
  EXPECT_EQ(decision.flush_why, "compute capability 9.0, from Hopper's 9.0 on none is needed");
  EXPECT_FALSE(decision.pcie_mapping);
  EXPECT_THAT(decision.notes, IsEmpty());
  EXPECT_EQ(explain(decision),
            "GPU 0000:13:00.0, mlx5_0: distance PIX (one PCIe switch between them)\n"
            "  receive: dma-buf; flush: none (compute capability 9.0, from Hopper's 9.0 on none is needed)\n"
            "  send: dma-buf\n"
            "  no data direct: mlx5_0 has no data direct function: mlx5dv says so\n"
            "    fix: only some NICs have it (ConnectX-8 on C2C systems); dma-buf is next to it\n");
}

// The default level is PXB, so tiers follow from distances: every pair of every machine.
TEST_F(Tiers, EveryPairOfEveryMachine) {
  struct Expected {
    const char* machine;
    bool c2c;
    std::vector<std::string> rows;  // per GPU, a letter per NIC: d dma-buf, p nvidia_peermem, h pinned host
  };
  const std::vector<Expected> all = {
      {"dgx",
       false,
       {"hddhhhhhh", "hddhhhhhh", "hhhddhhhh", "hhhddhhhh", "hhhhhddhh", "hhhhhddhh", "hhhhhhhdd", "hhhhhhhdd"}},
      // dma-buf by the probes of `good`, whatever this kernel's age: NCCL, too, believes the probe. PXB is near enough.
      {"workstation", false, {"ddh", "ddh"}},
      {"two_sockets", false, {"hhh", "hhh"}},
      {"vm", false, {"hhh", "hhh"}},
      {"acs", false, {"ddd", "ddd"}},
      // P2C counts as C2C, which is nearer than PXB (NCCL_NET_GDR_C2C is 1 by default).
      {"gh200", true, {"dh", "hd"}},
      {"gh200", false, {"hh", "hh"}},
      {"broadcom", false, {"dhh", "hdh", "hhd"}},
      {"softroce", false, {"h"}},
      {"bare", false, {}},
  };
  for (const Expected& expected : all) {
    use(expected.machine);
    Facts facts = good();
    facts.gpu.c2c = expected.c2c ? Known::kYes : Known::kNo;
    ASSERT_EQ(machine_.gpus.size(), expected.rows.size());
    for (std::size_t g = 0; g < machine_.gpus.size(); ++g) {
      std::string row;
      for (std::size_t n = 0; n < machine_.nics.size(); ++n) {
        const Decision decision = decided(facts, static_cast<int>(g), static_cast<int>(n));
        EXPECT_EQ(decision.receive, decision.send);
        EXPECT_TRUE(decision.receive_certain) << explain(decision);
        row += decision.receive == Tier::kDmaBuf ? 'd' : decision.receive == Tier::kPeermem ? 'p' : 'h';
      }
      EXPECT_EQ(row, expected.rows[g]) << expected.machine << ", GPU " << g;
    }
  }
}

TEST_F(Tiers, DataDirectIsTheBest) {
  use("dgx");
  Facts facts = good();
  facts.nic.data_direct = Known::kYes;
  Decision decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kDataDirect);
  EXPECT_EQ(decision.send, Tier::kDataDirect);
  EXPECT_EQ(decision.flush, Flush::kRdmaRead) << "NCCL's IB plugin asks for flushes then, even on Hopper";
  EXPECT_EQ(decision.flush_why, "data direct needs it: data and completions take different ways");
  EXPECT_THAT(lines(decision), IsEmpty());

  facts.settings.data_direct = "0";
  decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kDmaBuf);
  EXPECT_THAT(lines(decision),
              ElementsAre("no data direct: NCCL_IB_DATA_DIRECT=0 forbids it | unset NCCL_IB_DATA_DIRECT"));

  facts.settings.data_direct.reset();
  facts.gpu.dma_buf = Known::kNo;
  decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kPeermem) << "data direct registers dma-bufs, too";
}

TEST_F(Tiers, UnknownDataDirectDoesNotMakeDmaBufDoubtful) {
  use("dgx");
  Facts facts = good();
  facts.nic.data_direct = Known::kUnknown;
  facts.nic.data_direct_evidence = "not asked";
  const Decision decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kDmaBuf);
  EXPECT_TRUE(decision.receive_certain);
  EXPECT_THAT(
      lines(decision),
      ElementsAre(HasSubstr("perhaps no data direct: mlx5_0 may or may not have a data direct function: not asked")));
}

TEST_F(Tiers, WhatRefusesDmaBuf) {
  use("dgx");
  const auto refusal = [&](const Facts& facts) {
    const Decision decision = decided(facts, 0, 1);
    EXPECT_EQ(decision.receive, Tier::kPeermem);
    const auto all = lines(decision);
    EXPECT_EQ(all.size(), 2u);
    return all.size() == 2 ? all[1] : std::string();
  };
  const std::string open = "the open kernel modules (package nvidia-open), for GPUs from Turing on";
  Facts facts = good();
  facts.settings.dmabuf_enable = "0";
  EXPECT_EQ(refusal(facts), "no dma-buf: NCCL_DMABUF_ENABLE=0 forbids it | unset NCCL_DMABUF_ENABLE");
  facts = good();
  facts.gpu.cuda_version = 11040;
  EXPECT_EQ(refusal(facts),
            "no dma-buf: driver 570.86.15 has CUDA 11.4, and NCCL takes dma-bufs from 11.7 on | driver 515 or later");
  facts = good();
  facts.gpu.dma_buf = Known::kNo;
  EXPECT_EQ(refusal(facts),
            "no dma-buf: GPU 0000:13:00.0 exports no dma-bufs: CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0 | " + open);
  machine_.system.open_modules = Known::kNo;
  machine_.system.open_evidence = "/proc/driver/nvidia/version: NVRM version: x";
  EXPECT_EQ(
      refusal(facts),
      "no dma-buf: the closed kernel modules are loaded, which export no dma-bufs: /proc/driver/nvidia/version: NVRM "
      "version: x | " +
          open);
  machine_.system.open_modules = Known::kYes;
  facts = good();
  facts.gpu.dma_buf = Known::kUnknown;
  EXPECT_EQ(
      refusal(facts),
      "perhaps no dma-buf: whether GPU 0000:13:00.0 exports dma-bufs is unknown | driver 515 or later, which knows "
      "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED");
  facts = good();
  facts.nic.dma_buf = Known::kNo;
  facts.nic.dma_buf_evidence = "ibv_reg_dmabuf_mr: errno 95";
  EXPECT_EQ(
      refusal(facts),
      "no dma-buf: the driver of mlx5_0 takes no dma-bufs: ibv_reg_dmabuf_mr: errno 95 | a driver that does (mlx5 "
      "from Linux 5.12 on does; rdma_rxe does not)");
  machine_.system.kernel_release = "5.11.22-generic";
  EXPECT_EQ(refusal(facts),
            "no dma-buf: Linux 5.11.22-generic has no dma-bufs for RDMA | Linux 5.12 or later, or nvidia_peermem");
  facts.nic.dma_buf = Known::kUnknown;
  machine_.system.kernel_release = "5.12.0";
  EXPECT_EQ(
      refusal(facts),
      "perhaps no dma-buf: whether mlx5_0 takes dma-bufs is unknown: ibv_reg_dmabuf_mr: errno 95 | run this where the "
      "RDMA device can be opened");
}

TEST_F(Tiers, WithoutDmaBufAndPeermemThereIsPinnedHost) {
  use("workstation");
  Facts facts = good();
  facts.gpu.dma_buf = Known::kNo;
  const Decision decision = decided(facts);
  EXPECT_EQ(decision.receive, Tier::kPinnedHost);
  EXPECT_EQ(decision.send, Tier::kPinnedHost);
  EXPECT_EQ(decision.flush, Flush::kNone);
  EXPECT_EQ(decision.flush_why, "nothing is received into GPU memory");
  EXPECT_THAT(
      lines(decision),
      ElementsAre(HasSubstr("no data direct: "), HasSubstr("no dma-buf: the closed kernel modules are loaded"),
                  "no nvidia_peermem: nvidia_peermem is not loaded: neither /sys/module/nvidia_peermem/version nor "
                  "/sys/kernel/mm/memory_peers/nv_mem/version is there | modprobe nvidia_peermem"));
}

TEST_F(Tiers, WhatRefusesGpuDirectAsSuch) {
  use("dgx");
  Facts facts = good();
  facts.gpu.direct_rdma = Known::kNo;
  Decision decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kPinnedHost);
  EXPECT_THAT(lines(decision), ::testing::Contains(HasSubstr(
                                   "no data direct, dma-buf, nvidia_peermem: GPU 0000:13:00.0 has no GPUDirect RDMA: "
                                   "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED is 0 | a data centre")));

  facts.gpu = {.not_asked = "not asked: libcuda.so.1 is not there"};
  decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kPinnedHost);
  EXPECT_FALSE(decision.receive_certain);
  EXPECT_FALSE(decision.send_certain);
  EXPECT_THAT(lines(decision), ::testing::Contains(HasSubstr(
                                   "perhaps no data direct, dma-buf, nvidia_peermem: what GPU 0000:13:00.0 can do is "
                                   "unknown: not asked: libcuda.so.1 is not there | run this where")));
  EXPECT_THAT(explain(decision), HasSubstr("receive: pinned host?"));

  machine_.system.driver_version.clear();
  decision = decided(facts, 0, 1);
  EXPECT_TRUE(decision.receive_certain);
  EXPECT_THAT(lines(decision),
              ::testing::Contains("no data direct, dma-buf, nvidia_peermem: the kernel module nvidia is not "
                                  "loaded: /sys/module/nvidia/version is not there | install NVIDIA's "
                                  "driver; modprobe nvidia"));

  decision = decided(good(), 0, 0);
  EXPECT_THAT(lines(decision), ::testing::Contains(HasSubstr("eno1 is a network interface without an RDMA device | ")));
}

TEST_F(Tiers, TooFar) {
  use("two_sockets");
  const auto refusal = [&](const Facts& facts, int gpu, int nic) {
    const Decision decision = decided(facts, gpu, nic);
    EXPECT_EQ(decision.receive, Tier::kPinnedHost);
    EXPECT_EQ(decision.send, Tier::kPinnedHost);
    for (const std::string& line : lines(decision)) {
      if (line.find("distance") != std::string::npos) return line;
    }
    return std::string("none");
  };
  const std::string all = "no data direct, dma-buf, nvidia_peermem: ";
  EXPECT_EQ(
      refusal(good(), 0, 0),
      all +
          "GPU 0000:17:00.0 and mlx5_0 are at distance PHB (by way of the CPU's host bridge, on one NUMA node), and "
          "NCCL goes as far as PXB | a NIC behind the GPU's PCIe switch, or NCCL_NET_GDR_LEVEL=PHB if that measures "
          "faster");
  EXPECT_EQ(
      refusal(good(), 0, 2),
      all +
          "GPU 0000:17:00.0 and mlx5_2 are at distance SYS (by way of the link between NUMA nodes: 0 and 1), and NCCL "
          "goes as far as PXB | a NIC on NUMA node 0, or NCCL_NET_GDR_LEVEL=SYS if that measures faster");
  use("vm");
  EXPECT_EQ(
      refusal(good(), 0, 1),
      all +
          "GPU 0000:00:05.0 and mlx5_1 are at distance PHB (by way of the CPU's host bridge, on one NUMA node), and "
          "NCCL goes as far as PXB | this looks like a virtual machine that shows no PCIe switches: tell NCCL the real "
          "topology by NCCL_TOPO_FILE, or set NCCL_NET_GDR_LEVEL=PHB");
  use("softroce");
  EXPECT_EQ(
      refusal(good(), 0, 0),
      all +
          "GPU 0000:01:00.0 and rxe_a are at distance unknown (the NIC is no PCI device: it has no device in sysfs, so "
          "it is virtual; NCCL hangs it on the first CPU), and NCCL goes as far as PXB | a NIC that is a PCI device, "
          "or NCCL_NET_GDR_LEVEL=SYS if this one can reach GPU memory");
  use("dgx");
  Facts facts = good();
  facts.settings.gdr_level = "LOC";
  EXPECT_EQ(
      refusal(facts, 0, 1),
      all +
          "GPU 0000:13:00.0 and mlx5_0 are at distance PIX (one PCIe switch between them), and NCCL goes as far as LOC "
          "by NCCL_NET_GDR_LEVEL=LOC | unset NCCL_NET_GDR_LEVEL");
  use("gh200");
  facts = good();
  facts.gpu.c2c = Known::kYes;
  facts.settings.gdr_c2c = "0";
  EXPECT_EQ(refusal(facts, 0, 0),
            all +
                "GPU 0009:01:00.0 and mlx5_0 are at distance P2C (NVLink-C2C to the CPU, and PCIe from there to the "
                "NIC), and "
                "NCCL goes as far as PXB with NCCL_NET_GDR_C2C=0 | unset NCCL_NET_GDR_C2C, or NCCL_NET_GDR_C2C=1");
  facts.settings.gdr_c2c.reset();
  facts.settings.gdr_level = "LOC";
  EXPECT_THAT(refusal(facts, 0, 0),
              HasSubstr("NCCL goes as far as LOC by NCCL_NET_GDR_LEVEL=LOC | unset NCCL_NET_GDR_LEVEL"));
}

TEST_F(Tiers, TheLevelMovesTheLimit) {
  use("two_sockets");
  Facts facts = good();
  facts.settings.gdr_level = "PHB";
  EXPECT_EQ(decided(facts, 0, 0).receive, Tier::kDmaBuf);
  EXPECT_EQ(decided(facts, 0, 2).receive, Tier::kPinnedHost);
  facts.settings.gdr_level = "4";
  EXPECT_EQ(decided(facts, 0, 2).receive, Tier::kDmaBuf) << "old number of SYS";
  facts.settings.gdr_level = "phb";
  EXPECT_EQ(decided(facts, 0, 0).receive, Tier::kPinnedHost);
  use("softroce");
  facts.settings.gdr_level = "SYS";
  EXPECT_EQ(decided(facts, 0, 0).receive, Tier::kDmaBuf);
  facts.settings.gdr_level = "PHB";
  EXPECT_EQ(decided(facts, 0, 0).receive, Tier::kPinnedHost) << "it may be SYS";
}

TEST_F(Tiers, SendsAreNotReadFromOldGpus) {
  use("dgx");
  Facts facts = good();
  facts.gpu.compute_capability = 75;
  facts.gpu.nvlink = Known::kNo;
  Decision decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kDmaBuf);
  EXPECT_EQ(decision.send, Tier::kPinnedHost);
  EXPECT_TRUE(decision.send_certain);
  EXPECT_THAT(
      lines(decision),
      ::testing::Contains("no data direct, dma-buf, nvidia_peermem for sends: GPU 0000:13:00.0 has compute capability "
                          "7.5, below 8.0, and no NVLink to another GPU, so NCCL does not read from it for sends | "
                          "NCCL_NET_GDR_READ=1 if that measures faster"));
  facts.gpu.nvlink = Known::kUnknown;
  decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.send, Tier::kPinnedHost);
  EXPECT_FALSE(decision.send_certain);
  facts.gpu.nvlink = Known::kYes;
  EXPECT_EQ(decided(facts, 0, 1).send, Tier::kDmaBuf);
  facts.gpu.nvlink = Known::kNo;
  facts.settings.gdr_read = "1";
  EXPECT_EQ(decided(facts, 0, 1).send, Tier::kDmaBuf);
  facts.settings.gdr_read = "-1";
  EXPECT_EQ(decided(facts, 0, 1).send, Tier::kPinnedHost);
  machine_.gpus.resize(1);
  EXPECT_EQ(decided(facts, 0, 1).send, Tier::kDmaBuf) << "a single GPU disturbs no other";

  use("dgx");
  facts = good();
  facts.settings.gdr_read = "0";
  decision = decided(facts, 0, 1);
  EXPECT_EQ(decision.receive, Tier::kDmaBuf);
  EXPECT_EQ(decision.send, Tier::kPinnedHost) << "on every GPU";
  EXPECT_THAT(lines(decision),
              ::testing::Contains("no data direct, dma-buf, nvidia_peermem for sends: NCCL_NET_GDR_READ=0 "
                                  "forbids it for sends | unset NCCL_NET_GDR_READ, or NCCL_NET_GDR_READ=1"));
}

TEST_F(Tiers, Flush) {
  use("acs");  // has gdrcopy's module
  Facts facts = good();
  const auto flush = [&] {
    const Decision decision = decided(facts, 1, 2);
    return std::string(to_string(decision.flush)) + ": " + decision.flush_why;
  };
  EXPECT_EQ(flush(), "none: compute capability 9.0, from Hopper's 9.0 on none is needed");
  facts.settings.force_flush = "1";
  EXPECT_EQ(flush(), "RDMA READ: NCCL_NET_FORCE_FLUSH=1 forces it");
  facts.settings.force_flush = "0";
  facts.gpu.c2c = Known::kYes;
  EXPECT_EQ(flush(), "RDMA READ: data comes by the PCIe switch, completions by C2C");
  facts.gpu.c2c = Known::kNo;
  facts.gpu.compute_capability = 89;
  EXPECT_EQ(flush(), "RDMA READ: compute capability 8.9, before Hopper's 9.0, needs it");
  facts.settings.gdrcopy_enable = "1";
  facts.settings.gdrcopy_flush = "1";
  EXPECT_EQ(flush(), "gdrcopy: compute capability 8.9, before Hopper's 9.0, needs it");
  facts.x86 = false;
  EXPECT_EQ(flush(), "RDMA READ: compute capability 8.9, before Hopper's 9.0, needs it");
  facts.nic.rdma_read = Known::kNo;
  EXPECT_EQ(flush(), "cuFlushGPUDirectRDMAWrites: compute capability 8.9, before Hopper's 9.0, needs it");
  facts.gpu.compute_capability = 0;
  EXPECT_EQ(flush(), "cuFlushGPUDirectRDMAWrites: the GPU's compute capability is unknown");
  facts.gpu.cuda_flush = Known::kNo;
  const Decision decision = decided(facts, 1, 2);
  EXPECT_EQ(decision.receive, Tier::kPinnedHost);
  EXPECT_EQ(decision.send, Tier::kDmaBuf);
  EXPECT_TRUE(decision.receive_certain);
  EXPECT_THAT(
      lines(decision),
      ::testing::Contains("no data direct, dma-buf, nvidia_peermem for receives: what arrives must be flushed (the "
                          "GPU's compute capability is unknown), and nothing can: mlx5_2 has no RDMA READ, GPU "
                          "0000:46:00.0 no cuFlushGPUDirectRDMAWrites | reliable connections, which have RDMA READ: "
                          "CLUSTAR_TRANSPORT=verbs"));
}

TEST_F(Tiers, OnC2cWhatTakesPcieNeedsAnotherMapping) {
  // ncclTopoCheckGdr: mode PCI where the GPU's way to its CPU is C2C and the NIC's is not.
  use("acs");
  Facts facts = good();
  facts.gpu.c2c = Known::kYes;
  EXPECT_TRUE(decided(facts, 1, 2).pcie_mapping);
  use("gh200");
  EXPECT_FALSE(decided(facts, 0, 0).pcie_mapping);
  facts.settings.gdr_level = "SYS";
  EXPECT_TRUE(decided(facts, 0, 1).pcie_mapping);
}

}  // namespace
}  // namespace clustar::gdr
