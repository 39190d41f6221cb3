#include "gdr/core/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "gdr/core/notes.h"

namespace clustar::gdr {
namespace {

constexpr std::array kGdrTiers = {Tier::kDataDirect, Tier::kDmaBuf, Tier::kPeermem};

// Everything that decides about one pair.
struct Pair {
  const Machine& machine;
  const Gpu& gpu;
  const Nic& nic;
  const Facts& facts;
  Distance distance;
  // As NCCL compares it.
  Distance effective;
};

bool before_5_12(const std::string& release) {
  int major = 0;
  int minor = 0;
  const char* const end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc()) return false;
  return major < 5 || (major == 5 && minor < 12);
}

std::string distance_fix(const Pair& pair) {
  const Distance limit = farthest(pair.facts.settings);
  if (limit < Distance::kPxb && pair.effective <= Distance::kPxb) return "unset NCCL_NET_GDR_LEVEL";
  switch (pair.effective) {
    case Distance::kP2c: return "unset NCCL_NET_GDR_C2C, or NCCL_NET_GDR_C2C=1";
    case Distance::kPhb:
      return hides_switches(pair.machine, pair.gpu.pci) && hides_switches(pair.machine, pair.nic.pci)
                 ? "this looks like a virtual machine that shows no PCIe switches: tell NCCL the real topology by "
                   "NCCL_TOPO_FILE, or set NCCL_NET_GDR_LEVEL=PHB"
                 : "a NIC behind the GPU's PCIe switch, or NCCL_NET_GDR_LEVEL=PHB if that measures faster";
    case Distance::kUnknown:
      return "a NIC that is a PCI device, or NCCL_NET_GDR_LEVEL=SYS if this one can reach GPU memory";
    default: break;
  }
  return cpu_of(pair.machine, pair.gpu.pci) < 0
             ? "NUMA nodes in the firmware's tables, or NCCL_NET_GDR_LEVEL=SYS if that measures faster"
             : fmt::format("a NIC on NUMA node {}, or NCCL_NET_GDR_LEVEL=SYS if that measures faster",
                           cpu_of(pair.machine, pair.gpu.pci));
}

std::string distance_why(const Pair& pair) {
  const auto& level = pair.facts.settings.gdr_level;
  std::string why = fmt::format("GPU {} and {} are at distance {} ({}", pair.gpu.pci.address, pair.nic.name,
                                to_string(pair.distance), meaning(pair.distance));
  if (pair.distance == Distance::kUnknown) why += ": " + pair.nic.no_pci + "; NCCL hangs it on the first CPU";
  if (pair.distance == Distance::kSys) {
    why += fmt::format(": {} and {}", cpu_of(pair.machine, pair.gpu.pci), cpu_of(pair.machine, pair.nic.pci));
  }
  why += fmt::format("), and NCCL goes as far as {}", to_string(farthest(pair.facts.settings)));
  if (level && parse_level(*level)) why += fmt::format(" by NCCL_NET_GDR_LEVEL={}", *level);
  if (pair.effective == Distance::kP2c) why += fmt::format(" with NCCL_NET_GDR_C2C={}", *pair.facts.settings.gdr_c2c);
  return why;
}

bool too_far(const Pair& pair) { return std::min(pair.effective, Distance::kSys) > farthest(pair.facts.settings); }

// What stands against GPUDirect RDMA as such. Tier and direction are the caller's.
std::vector<Reason> against_all(const Pair& pair) {
  std::vector<Reason> reasons;
  const GpuFacts& gpu = pair.facts.gpu;
  if (!pair.nic.rdma) {
    reasons.push_back({.why = fmt::format("{} is a network interface without an RDMA device", pair.nic.name),
                       .fix = "the RDMA driver of this NIC if it has one (mlx5: modprobe mlx5_ib), or another NIC; "
                              "`rdma link` lists what there is"});
  }
  if (pair.machine.system.driver_version.empty()) {
    reasons.push_back({.why = "the kernel module nvidia is not loaded: /sys/module/nvidia/version is not there",
                       .fix = "install NVIDIA's driver; modprobe nvidia"});
  } else if (gpu.direct_rdma == Known::kNo) {
    reasons.push_back(
        {.why = fmt::format("GPU {} has no GPUDirect RDMA: CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED is 0",
                            pair.gpu.pci.address),
         .fix = "a data centre or professional GPU; in a virtual machine the host must pass the feature through"});
  } else if (gpu.direct_rdma == Known::kUnknown) {
    reasons.push_back({.certain = false,
                       .why = fmt::format("what GPU {} can do is unknown: {}", pair.gpu.pci.address,
                                          gpu.not_asked.empty() ? "the driver did not say" : gpu.not_asked),
                       .fix = "run this where a CUDA program runs, with its libraries and devices"});
  }
  if (too_far(pair)) reasons.push_back({.why = distance_why(pair), .fix = distance_fix(pair)});
  return reasons;
}

std::vector<Reason> against_sends(const Pair& pair) {
  const GpuFacts& gpu = pair.facts.gpu;
  const std::int64_t read = number_of(pair.facts.settings.gdr_read, -2);
  if (read == 0) {
    return {{.why = fmt::format("NCCL_NET_GDR_READ={} forbids it for sends", *pair.facts.settings.gdr_read),
             .fix = "unset NCCL_NET_GDR_READ, or NCCL_NET_GDR_READ=1"}};
  }
  // Before Ampere NCCL keeps the PCIe free for other GPUs' traffic, unless that takes NVLink.
  if (read > 0 || gpu.compute_capability == 0 || gpu.compute_capability >= 80) return {};
  if (pair.machine.gpus.size() == 1 || gpu.nvlink == Known::kYes) return {};
  return {
      {.certain = gpu.nvlink == Known::kNo,
       .why = fmt::format("GPU {} has compute capability {}.{}, below 8.0, and {} NVLink to another GPU, so NCCL does "
                          "not read from it for sends",
                          pair.gpu.pci.address, gpu.compute_capability / 10, gpu.compute_capability % 10,
                          gpu.nvlink == Known::kNo ? "no" : "perhaps no"),
       .fix = "NCCL_NET_GDR_READ=1 if that measures faster"}};
}

std::vector<Reason> against_dma_buf(const Pair& pair) {
  const GpuFacts& gpu = pair.facts.gpu;
  const System& system = pair.machine.system;
  const char* const open_fix = "the open kernel modules (package nvidia-open), for GPUs from Turing on";
  std::vector<Reason> reasons;
  if (number_of(pair.facts.settings.dmabuf_enable, 1) == 0) {
    reasons.push_back({.why = fmt::format("NCCL_DMABUF_ENABLE={} forbids it", *pair.facts.settings.dmabuf_enable),
                       .fix = "unset NCCL_DMABUF_ENABLE"});
  }
  if (gpu.cuda_version != 0 && gpu.cuda_version < 11070) {
    reasons.push_back({.why = fmt::format("driver {} has CUDA {}.{}, and NCCL takes dma-bufs from 11.7 on",
                                          system.driver_version, gpu.cuda_version / 1000, gpu.cuda_version % 1000 / 10),
                       .fix = "driver 515 or later"});
  } else if (gpu.dma_buf != Known::kYes && system.open_modules == Known::kNo) {
    reasons.push_back(
        {.why = fmt::format("the closed kernel modules are loaded, which export no dma-bufs: {}", system.open_evidence),
         .fix = open_fix});
  } else if (gpu.dma_buf == Known::kNo) {
    reasons.push_back({.why = fmt::format("GPU {} exports no dma-bufs: CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0",
                                          pair.gpu.pci.address),
                       .fix = open_fix});
  } else if (gpu.dma_buf == Known::kUnknown && gpu.not_asked.empty()) {
    reasons.push_back({.certain = false,
                       .why = fmt::format("whether GPU {} exports dma-bufs is unknown", pair.gpu.pci.address),
                       .fix = "driver 515 or later, which knows CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED"});
  }
  if (!pair.nic.rdma) return reasons;
  const NicFacts& nic = pair.facts.nic;
  if (nic.dma_buf != Known::kYes && before_5_12(system.kernel_release)) {
    reasons.push_back({.why = fmt::format("Linux {} has no dma-bufs for RDMA", system.kernel_release),
                       .fix = "Linux 5.12 or later, or nvidia_peermem"});
  } else if (nic.dma_buf == Known::kNo) {
    reasons.push_back(
        {.why = fmt::format("the driver of {} takes no dma-bufs: {}", pair.nic.name, nic.dma_buf_evidence),
         .fix = "a driver that does (mlx5 from Linux 5.12 on does; rdma_rxe does not)"});
  } else if (nic.dma_buf == Known::kUnknown) {
    reasons.push_back(
        {.certain = false,
         .why = fmt::format("whether {} takes dma-bufs is unknown: {}", pair.nic.name, nic.dma_buf_evidence),
         .fix = "run this where the RDMA device can be opened"});
  }
  return reasons;
}

std::vector<Reason> against_data_direct(const Pair& pair) {
  const NicFacts& nic = pair.facts.nic;
  if (number_of(pair.facts.settings.data_direct, 1) <= 0) {
    return {{.why = fmt::format("NCCL_IB_DATA_DIRECT={} forbids it", *pair.facts.settings.data_direct),
             .fix = "unset NCCL_IB_DATA_DIRECT"}};
  }
  if (nic.data_direct == Known::kYes) return against_dma_buf(pair);
  if (!pair.nic.rdma) return {};
  return {{.certain = nic.data_direct == Known::kNo,
           .why = fmt::format("{} {}: {}", pair.nic.name,
                              nic.data_direct == Known::kNo ? "has no data direct function"
                                                            : "may or may not have a data direct function",
                              nic.data_direct_evidence),
           .fix = "only some NICs have it (ConnectX-8 on C2C systems); dma-buf is next to it"}};
}

std::vector<Reason> against_peermem(const Pair& pair) {
  if (!pair.machine.system.peermem.empty()) return {};
  return {{.why = "nvidia_peermem is not loaded: neither /sys/module/nvidia_peermem/version nor "
                  "/sys/kernel/mm/memory_peers/nv_mem/version is there",
           .fix = "modprobe nvidia_peermem"}};
}

void add(std::vector<Reason>& all, Tier tier, Direction direction, std::vector<Reason> some) {
  for (Reason& reason : some) {
    reason.tier = tier;
    reason.direction = direction;
    all.push_back(std::move(reason));
  }
}

bool stands_against(const Reason& reason, Tier tier, Direction direction) {
  return reason.tier == tier && (reason.direction == Direction::kBoth || reason.direction == direction);
}

struct Choice {
  Tier tier;
  bool certain;
};

Choice choose(const std::vector<Reason>& reasons, Direction direction) {
  bool certain = true;
  for (const Tier tier : kGdrTiers) {
    bool refused = false;
    bool surely = false;
    for (const Reason& reason : reasons) {
      if (!stands_against(reason, tier, direction)) continue;
      refused = true;
      surely = surely || reason.certain;
    }
    if (!refused) return {tier, certain};
    // Data direct is rare: not knowing of it makes no answer doubtful.
    if (!surely && tier != Tier::kDataDirect) certain = false;
  }
  return {Tier::kPinnedHost, certain};
}

struct Need {
  bool flush;
  std::string why;
};

Need need(const Pair& pair, Tier receive) {
  const GpuFacts& gpu = pair.facts.gpu;
  const std::string capability = fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10);
  if (receive == Tier::kPinnedHost) return {false, "nothing is received into GPU memory"};
  if (number_of(pair.facts.settings.force_flush, 0) != 0) {
    return {true, fmt::format("NCCL_NET_FORCE_FLUSH={} forces it", *pair.facts.settings.force_flush)};
  }
  if (receive == Tier::kDataDirect) return {true, "data direct needs it: data and completions take different ways"};
  if (gpu.c2c == Known::kYes && pair.distance <= Distance::kPxb) {
    return {true, "data comes by the PCIe switch, completions by C2C"};
  }
  if (gpu.compute_capability == 0) return {true, "the GPU's compute capability is unknown"};
  if (gpu.compute_capability < 90)
    return {true, "compute capability " + capability + ", before Hopper's 9.0, needs it"};
  return {false, "compute capability " + capability + ", from Hopper's 9.0 on none is needed"};
}

bool by_gdrcopy(const Pair& pair) {
  const Settings& settings = pair.facts.settings;
  return number_of(settings.gdrcopy_enable, 0) == 1 && number_of(settings.gdrcopy_flush, 0) != 0 && pair.facts.x86 &&
         pair.machine.system.gdrcopy_module == Known::kYes;
}

// False: a flush is needed, and nothing can do it.
bool choose_flush(const Pair& pair, Decision& decision) {
  const Need needed = need(pair, decision.receive);
  decision.flush_why = needed.why;
  decision.flush = Flush::kNone;
  if (!needed.flush) return true;
  if (by_gdrcopy(pair)) {
    decision.flush = Flush::kGdrcopy;
  } else if (pair.facts.nic.rdma_read != Known::kNo) {
    decision.flush = Flush::kRdmaRead;
  } else if (pair.facts.gpu.cuda_flush == Known::kYes) {
    decision.flush = Flush::kCudaFlush;
  } else {
    return false;
  }
  return true;
}

void receive_by_host(const Pair& pair, Decision& decision) {
  const bool certain = pair.facts.gpu.cuda_flush == Known::kNo;
  const Reason reason{
      .direction = Direction::kReceive,
      .certain = certain,
      .why = fmt::format("what arrives must be flushed ({}), and nothing can: {} has no RDMA READ, GPU {} no "
                         "cuFlushGPUDirectRDMAWrites",
                         decision.flush_why, pair.nic.name, pair.gpu.pci.address),
      .fix = "reliable connections, which have RDMA READ: CLUSTAR_TRANSPORT=verbs"};
  for (const Tier tier : kGdrTiers) add(decision.reasons, tier, Direction::kReceive, {reason});
  decision.receive = Tier::kPinnedHost;
  decision.receive_certain = decision.receive_certain && certain;
  decision.flush_why = "nothing is received into GPU memory";
}

}  // namespace

const char* to_string(Tier tier) {
  constexpr const char* kNames[] = {"data direct", "dma-buf", "nvidia_peermem", "pinned host"};
  return kNames[static_cast<std::size_t>(tier)];
}

const char* to_string(Flush flush) {
  constexpr const char* kNames[] = {"none", "RDMA READ", "gdrcopy", "cuFlushGPUDirectRDMAWrites"};
  return kNames[static_cast<std::size_t>(flush)];
}

Decision decide(const Machine& machine, const Gpu& gpu, const Nic& nic, const Facts& facts) {
  const bool c2c = facts.gpu.c2c == Known::kYes;
  const Distance found = distance(machine, gpu.pci, nic.pci, c2c);
  const bool by_c2c = found == Distance::kP2c && number_of(facts.settings.gdr_c2c, 1) != 0;
  const Pair pair{machine, gpu, nic, facts, found, by_c2c ? Distance::kC2c : found};
  Decision decision{.gpu = gpu.pci.address, .nic = nic.name, .distance = found};
  const auto general = against_all(pair);
  const auto sends = against_sends(pair);
  for (const Tier tier : kGdrTiers) {
    auto own = tier == Tier::kDataDirect ? against_data_direct(pair)
               : tier == Tier::kDmaBuf   ? against_dma_buf(pair)
                                         : against_peermem(pair);
    add(decision.reasons, tier, Direction::kBoth, std::move(own));
    add(decision.reasons, tier, Direction::kBoth, general);
    add(decision.reasons, tier, Direction::kSend, sends);
  }
  const Choice receive = choose(decision.reasons, Direction::kReceive);
  const Choice send = choose(decision.reasons, Direction::kSend);
  decision.receive = receive.tier;
  decision.receive_certain = receive.certain;
  decision.send = send.tier;
  decision.send_certain = send.certain;
  if (!choose_flush(pair, decision)) receive_by_host(pair, decision);
  const bool gdr = decision.receive != Tier::kPinnedHost || decision.send != Tier::kPinnedHost;
  decision.pcie_mapping = gdr && c2c && pair.effective != Distance::kC2c;
  decision.notes = notes(machine, gpu, nic, facts);
  return decision;
}

}  // namespace clustar::gdr
