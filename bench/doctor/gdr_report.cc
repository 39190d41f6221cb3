#include "bench/doctor/gdr_report.h"

#include <tuple>
#include <utility>

namespace clustar::bench::doctor {
namespace {

constexpr std::uint16_t kMellanox = 0x15b3;

// Smaller is better.
auto worth(const gdr::Decision& decision, const gdr::Nic& nic) {
  return std::make_tuple(decision.receive, decision.send, !nic.rdma, decision.distance);
}

void say_what_is_missing(GdrReport& report) {
  const gdr::Machine& machine = report.machine;
  if (machine.gpus.empty()) {
    report.missing.emplace_back(
        "No NVIDIA GPU is among the PCI devices, so GPUDirect RDMA has nothing to do here. If there should be one: "
        "`lspci -d "
        "10de:`; a virtual machine must be given it by its host.");
  }
  bool rdma = false;
  for (const gdr::Nic& nic : machine.nics) rdma = rdma || nic.rdma;
  if (!rdma) {
    report.missing.emplace_back(
        "No RDMA device is there (/sys/class/infiniband), and GPUDirect RDMA needs one. If there should be one: `lspci "
        "| grep "
        "-i -E 'mellanox|infiniband'`, its driver (mlx5: modprobe mlx5_ib), then `rdma link`.");
  }
}

}  // namespace

Verdict GdrReport::verdict() const {
  if (!gpus_without().empty()) return Verdict::kMissing;
  if (!machine.gpus_certain) return Verdict::kUnknown;
  return machine.gpus.empty() ? Verdict::kNothingToDo : Verdict::kOk;
}

std::vector<std::string> GdrReport::gpus_without() const {
  std::vector<std::string> without;
  for (std::size_t g = 0; g < best.size(); ++g) {
    const bool has = best[g] && pairs[*best[g]].receive != gdr::Tier::kPinnedHost;
    if (!has) without.push_back(machine.gpus[g].pci.address);
  }
  return without;
}

GdrReport examine(gdr::Machine machine, const Probes& probes) {
  GdrReport report{.machine = std::move(machine), .settings = probes.settings};
  // A machine without GPU need not start the CUDA driver.
  const gdr::CudaAnswers cuda = report.machine.gpus.empty() ? gdr::CudaAnswers{} : probes.cuda();
  for (const gdr::Gpu& gpu : report.machine.gpus) report.gpus.push_back(gdr::facts_of(cuda, gpu.pci.address));
  for (const gdr::Nic& nic : report.machine.nics) {
    gdr::NicFacts facts = nic.rdma ? probes.nic(nic.name) : gdr::NicFacts{};
    // By vendor: what an RDMA device is called says nothing.
    if (facts.data_direct == gdr::Known::kUnknown && nic.pci.ids.vendor != kMellanox) {
      facts.data_direct = gdr::Known::kNo;
      facts.data_direct_evidence = "it is no mlx5 device";
    }
    report.nics.push_back(std::move(facts));
  }
  for (std::size_t g = 0; g < report.machine.gpus.size(); ++g) {
    report.best.emplace_back();
    for (std::size_t n = 0; n < report.machine.nics.size(); ++n) {
      const gdr::Nic& nic = report.machine.nics[n];
      const gdr::Facts facts{report.gpus[g], report.nics[n], probes.settings, probes.x86};
      report.pairs.push_back(gdr::decide(report.machine, report.machine.gpus[g], nic, facts));
      const std::size_t now = report.pairs.size() - 1;
      auto& best = report.best.back();
      const std::size_t nics = report.machine.nics.size();
      if (!best || worth(report.pairs[now], nic) < worth(report.pairs[*best], report.machine.nics[*best % nics]))
        best = now;
    }
  }
  say_what_is_missing(report);
  return report;
}

}  // namespace clustar::bench::doctor
