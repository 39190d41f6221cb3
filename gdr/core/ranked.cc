#include "gdr/core/ranked.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace clustar::gdr {
namespace {

constexpr const char* kPeermemFix =
    "modprobe nvidia_peermem (it needs an ib_core with peer memory: MLNX_OFED, DOCA, some distributions' kernels)";
constexpr const char* kDmaBufFix = "Linux 5.12 or later with a NIC driver that takes dma-bufs, or nvidia_peermem";
constexpr const char* kBarFix =
    "less memory registered at a time, or a GPU whose BAR1 spans its memory: `nvidia-smi -q -d MEMORY` shows it; and "
    "`ulimit -l unlimited` (RLIMIT_MEMLOCK)";
constexpr const char* kLockFix =
    "RLIMIT_MEMLOCK: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a "
    "container";

// Those that registering is known to answer; a core does not ask the C library.
const char* name_of(int error) {
  switch (error) {
    case EPERM: return "EPERM";
    case EIO: return "EIO";
    case ENXIO: return "ENXIO";
    case EBADF: return "EBADF";
    case EAGAIN: return "EAGAIN";
    case ENOMEM: return "ENOMEM";
    case EACCES: return "EACCES";
    case EFAULT: return "EFAULT";
    case EBUSY: return "EBUSY";
    case ENODEV: return "ENODEV";
    case EINVAL: return "EINVAL";
    case ENOSPC: return "ENOSPC";
    case ENOSYS: return "ENOSYS";
    case EOPNOTSUPP: return "EOPNOTSUPP";
    case EPROTONOSUPPORT: return "EPROTONOSUPPORT";
    default: return "?";
  }
}

std::string errno_name(int error) { return fmt::format("errno {} ({})", error, name_of(error)); }

const char* call_of(Way way) {
  switch (way) {
    case Way::kDataDirect: return "mlx5dv_reg_dmabuf_mr with data direct";
    case Way::kDmaBuf: return "ibv_reg_dmabuf_mr";
    case Way::kPeermem:
    case Way::kHost:
    case Way::kEmulated: return "ibv_reg_mr";
  }
  return "?";
}

bool of_gpu(Way way) { return way == Way::kDataDirect || way == Way::kDmaBuf || way == Way::kPeermem; }

std::optional<Refusal> against_peermem(const WayFacts& facts) {
  if (facts.software) {
    return Refusal{Way::kPeermem, 0, facts.nic + " is no PCI device, so it reaches no GPU's memory by DMA",
                   "an RDMA NIC"};
  }
  if (facts.peermem.empty()) return Refusal{Way::kPeermem, 0, "nvidia_peermem is not loaded", kPeermemFix};
  return std::nullopt;
}

std::optional<Refusal> against_dma_buf(const WayFacts& facts) {
  if (facts.dma_buf != Known::kNo) return std::nullopt;
  return Refusal{Way::kDmaBuf, 0,
                 fmt::format("the driver of {} takes no dma-bufs: {}", facts.nic, facts.dma_buf_evidence), kDmaBufFix};
}

std::optional<Refusal> against_data_direct(const WayFacts& facts) {
  if (facts.data_direct == Known::kYes) return std::nullopt;
  return Refusal{Way::kDataDirect, 0,
                 fmt::format("{} {} data direct function: {}", facts.nic,
                             facts.data_direct == Known::kNo ? "has no" : "has perhaps no", facts.data_direct_evidence),
                 "only some NICs have it (ConnectX-8 on C2C systems); dma-buf is next to it"};
}

Verdict about_data_direct(int error) {
  switch (error) {
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
      return {false, "libmlx5 or the kernel has no data direct, or not for such a range",
              "a libmlx5 with the symbol version MLX5_1.25, and a kernel whose mlx5_ib has it; dma-buf is next to it"};
    case EINVAL:
    case ENODEV:
      return {false, "no data direct function is bound to this device", "`lspci` for it, and its driver mlx5_ib"};
    default: return {false, "the driver refuses it", "`dmesg`; dma-buf is next to it"};
  }
}

Verdict about_dma_buf(int error) {
  switch (error) {
    case EOPNOTSUPP:
      return {false,
              "the NIC's driver takes no dma-bufs (mlx5 does only where the kernel has "
              "CONFIG_INFINIBAND_ON_DEMAND_PAGING)",
              kDmaBufFix};
    case EPROTONOSUPPORT: return {false, "the kernel's RDMA knows no dma-bufs: Linux before 5.12", kDmaBufFix};
    case EINVAL:
      return {
          false,
          "a range that is not all within the dma-buf, an address with another offset in its page, or access that a "
          "dma-buf cannot have (windows, on demand)",
          "export whole pages of the allocation (cuMemGetHandleForAddressRange), and register without windows"};
    default: return {false, "the driver, or the exporter of the dma-buf, refuses it", "`dmesg`; nvidia_peermem"};
  }
}

Verdict about_peermem(int error) {
  switch (error) {
    case EFAULT:
      return {
          false,
          "no kernel module knows pages behind this pointer: nvidia_peermem is not loaded, or the memory is CUDA's "
          "virtual memory (cuMemCreate) made without gpuDirectRDMACapable, or more than the GPU's BAR1",
          fmt::format("{}; memory of cudaMalloc, or of cuMemCreate with gpuDirectRDMACapable; dma-buf", kPeermemFix)};
    case EINVAL:
      return {false,
              "nvidia_peermem does not take this memory: CUDA's virtual memory (cuMemCreate) made without "
              "gpuDirectRDMACapable, or a pointer that is none of the GPU's",
              "memory of cudaMalloc, or of cuMemCreate with gpuDirectRDMACapable; dma-buf"};
    default: return {false, "the driver or nvidia_peermem refuses it", "`dmesg`; dma-buf"};
  }
}

Verdict about_host(int error) {
  switch (error) {
    case EFAULT: return {false, "the range is not mapped in this process, or is a GPU's", "register what is mapped"};
    case EINVAL:
    case EOPNOTSUPP:
      return {false, "access that this driver cannot give to memory (on demand, windows), or an empty range",
              "register without these"};
    default: return {false, "the driver refuses it", "`dmesg`"};
  }
}

Refusal refusal_of(Way way, int error, bool relaxed) {
  Verdict verdict = judge(way, error);
  return {way, error,
          fmt::format("{}{}: {}: {}", call_of(way), relaxed ? " with relaxed ordering" : "", errno_name(error),
                      verdict.why),
          std::move(verdict.fix)};
}

}  // namespace

const char* to_string(Way way) {
  switch (way) {
    case Way::kDataDirect: return "data direct";
    case Way::kDmaBuf: return "dma-buf";
    case Way::kPeermem: return "nvidia_peermem";
    case Way::kHost: return "host";
    case Way::kEmulated: return "emulated";
  }
  return "?";
}

Ranking rank_ways(const MemoryRef& memory, const WayFacts& facts) {
  if (memory.kind == MemoryKind::kHost) return {{Way::kHost}, {}};
  Ranking ranking;
  const auto refuse = [&](Way way, const char* why, const char* fix) { ranking.refused.push_back({way, 0, why, fix}); };
  if (!facts.offered) {
    refuse(Way::kDmaBuf, "CLUSTAR_GDR=off", "CLUSTAR_GDR=auto");
    return ranking;
  }
  if (facts.emulated) return {{Way::kEmulated}, {}};
  const auto consider = [&](Way way, std::optional<Refusal> against) {
    if (against) {
      ranking.refused.push_back(std::move(*against));
    } else {
      ranking.ways.push_back(way);
    }
  };
  if (memory.kind == MemoryKind::kDmaBuf) {
    consider(Way::kDataDirect, against_data_direct(facts));
    consider(Way::kDmaBuf, against_dma_buf(facts));
  } else {
    refuse(Way::kDmaBuf, "it is given by its CUDA pointer, without a descriptor of a dma-buf",
           "unset NCCL_DMABUF_ENABLE; `clustar doctor gdr` says whether the GPU exports dma-bufs");
  }
  if (memory.address == nullptr) {
    refuse(Way::kPeermem, "it is given without its CUDA pointer", "give the pointer beside the descriptor");
  } else {
    consider(Way::kPeermem, against_peermem(facts));
  }
  return ranking;
}

std::uint32_t offered_kinds(const WayFacts& facts) {
  if (!facts.offered) return kHostOnly;
  if (facts.emulated) return kAnyKind;
  std::uint32_t kinds = kHostOnly;
  if (facts.dma_buf == Known::kYes && !facts.software) kinds |= bit(MemoryKind::kDmaBuf);
  if (!against_peermem(facts)) kinds |= bit(MemoryKind::kCuda);
  return kinds;
}

std::string describe_ways(const WayFacts& facts) {
  if (!facts.offered) return "off: CLUSTAR_GDR=off";
  if (facts.emulated) return "emulated by host memory: CLUSTAR_GDR_EMULATE=1, for tests only";
  const std::uint32_t kinds = offered_kinds(facts);
  const bool dma_buf = (kinds & bit(MemoryKind::kDmaBuf)) != 0;
  const bool cuda = (kinds & bit(MemoryKind::kCuda)) != 0;
  std::string text;
  const auto way = [&](const char* name, const std::string& evidence) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", name, evidence);
  };
  if (dma_buf && facts.data_direct == Known::kYes) way("data direct", facts.data_direct_evidence);
  if (dma_buf) way("dma-buf", facts.dma_buf_evidence);
  if (cuda) way("nvidia_peermem", facts.peermem);
  if (!text.empty()) return text;
  text = "off: " + facts.dma_buf_evidence;
  if (const auto against = against_peermem(facts)) text += "; " + against->why;
  return text;
}

Verdict judge(Way way, int error) {
  switch (error) {
    case ENOMEM:
    case EAGAIN:
      if (of_gpu(way)) {
        return {true, "what the GPU shows to the PCIe bus (BAR1), or the memory that may be locked, is used up",
                kBarFix};
      }
      return {true, "the limit of locked memory, or the device's own, is reached", kLockFix};
    case EPERM:
    case EACCES:
      return {true, "no right to lock memory, or to use the device", fmt::format("{}; --cap-add=IPC_LOCK", kLockFix)};
    case EBADF: return {true, "the descriptor is closed, or is none of a dma-buf", "keep it open during the call"};
    case EIO: return {true, "the device failed", "`dmesg`; it needs a reset"};
    default: break;
  }
  switch (way) {
    case Way::kDataDirect: return about_data_direct(error);
    case Way::kDmaBuf: return about_dma_buf(error);
    case Way::kPeermem: return about_peermem(error);
    case Way::kHost:
    case Way::kEmulated: return about_host(error);
  }
  return {};
}

Registered register_ranked(const Ranking& ranking, bool relaxed, const std::function<int(Way, bool)>& attempt) {
  Registered made;
  // In the order of ways, whether they were tried or not.
  auto not_tried = ranking.refused.begin();
  const auto take_before = [&](Way way) {
    while (not_tried != ranking.refused.end() && not_tried->way < way) made.refused.push_back(*not_tried++);
  };
  for (const Way way : ranking.ways) {
    take_before(way);
    int error = attempt(way, relaxed);
    bool with = relaxed;
    if (error == EINVAL && relaxed) {
      made.refused.push_back(refusal_of(way, error, true));
      with = false;
      error = attempt(way, false);
      // Then it was not the ordering, and the same is not said twice.
      if (error == EINVAL) made.refused.pop_back();
    }
    if (error == 0) {
      made.way = way;
      made.relaxed = with;
      return made;
    }
    made.refused.push_back(refusal_of(way, error, false));
    if (judge(way, error).stop) {
      made.stopped = true;
      return made;
    }
  }
  made.refused.insert(made.refused.end(), not_tried, ranking.refused.end());
  return made;
}

std::string explain(const std::string& nic, MemoryKind kind, const Registered& registered) {
  std::string text = registered.way
                         ? fmt::format("{} registers {} memory by {}", nic, to_string(kind), to_string(*registered.way))
                         : fmt::format("{} cannot register {} memory", nic, to_string(kind));
  for (const Refusal& refusal : registered.refused) {
    text += fmt::format("; not by {}: {} (fix: {})", to_string(refusal.way), refusal.why, refusal.fix);
  }
  return text;
}

}  // namespace clustar::gdr
