// By which ways memory may be registered with a NIC, best first; and, of what the drivers answer to each, which way it
// was and why no better one. Pure: the caller registers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gdr/core/machine.h"
#include "gdr/memory.h"

namespace clustar::gdr {

// Best first. kEmulated: host memory that plays a GPU's.
enum class Way : std::uint8_t { kDataDirect, kDmaBuf, kPeermem, kHost, kEmulated };
inline constexpr std::array kAllWays = {Way::kDataDirect, Way::kDmaBuf, Way::kPeermem, Way::kHost, Way::kEmulated};
const char* to_string(Way way);  // "data direct", "dma-buf", "nvidia_peermem", "host", "emulated"

// What is known of one NIC before anything is registered.
struct WayFacts {
  std::string nic{};                // its name
  Known dma_buf = Known::kUnknown;  // registering a bad descriptor: EBADF = yes, EOPNOTSUPP and EPROTONOSUPPORT = no
  std::string dma_buf_evidence{};
  Known data_direct = Known::kUnknown;
  std::string data_direct_evidence{};
  std::string peermem{};  // the file that shows nvidia_peermem; empty: it is not loaded
  bool software = false;  // it is no PCI device, so nothing of it reaches a GPU by DMA
  bool offered = true;    // false: CLUSTAR_GDR=off
  bool emulated = false;  // CLUSTAR_GDR_EMULATE
};

// Why a way was not taken.
struct Refusal {
  Way way = Way::kHost;
  int error = 0;      // errno; 0: it was not tried
  std::string why{};  // a sentence with its evidence
  std::string fix{};  // a command or a step
};

struct Ranking {
  std::vector<Way> ways{};         // to be tried in this order
  std::vector<Refusal> refused{};  // these are not tried
};

// Of memory by its kind: a dma-buf may also go by its CUDA pointer, a CUDA pointer has no descriptor, host memory needs
// neither.
Ranking rank_ways(const MemoryRef& memory, const WayFacts& facts);

// Kinds that a NIC offers: those with a way that is known to work. Host memory always is one.
std::uint32_t offered_kinds(const WayFacts& facts);
// For a person, one line: by which ways it reaches GPU memory, or why by none.
std::string describe_ways(const WayFacts& facts);

// What an errno of registering by a way means.
struct Verdict {
  bool stop = false;  // no other way is tried: it would fail for the same reason, or hide a mistake
  std::string why{};
  std::string fix{};
};
Verdict judge(Way way, int error);

struct Registered {
  std::optional<Way> way{};
  bool relaxed = false;            // with relaxed ordering
  bool stopped = false;            // no way, though not all were tried
  std::vector<Refusal> refused{};  // the best way first
};

// `attempt` registers by a way, with or without relaxed ordering, and answers an errno; 0: it is registered. It is
// called once per way, and once more without relaxed ordering where that may be what EINVAL means.
Registered register_ranked(const Ranking& ranking, bool relaxed,
                           const std::function<int(Way way, bool relaxed)>& attempt);

// "mlx5_0 registers dma-buf memory by dma-buf; not by data direct: ... (fix: ...)".
std::string explain(const std::string& nic, MemoryKind kind, const Registered& registered);

}  // namespace clustar::gdr
