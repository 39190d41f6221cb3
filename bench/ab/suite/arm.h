// What is compared: a transport with its settings, and an algorithm of all-reduce over it; "mlt-p1/ring".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/arm.h"
#include "transport/base/result.h"

namespace clustar::bench::ab::suite {

inline constexpr std::uint32_t kShortRtoUs = 5'000;

// A named way to carry the gradients, by our plugin.
struct Carrier {
  std::string name;
  std::string label;
  std::string congestion = {};      // of TCP; empty: MLT
  std::uint32_t rto_min_us = 0;     // of the hosts' namespaces during its runs; 0: the kernel's default
  std::uint32_t tolerance_ppm = 0;  // of MLT; 0: reliable
  bool parity = true;               // of MLT: where it thinks that it helps
  bool static_deadline = false;     // of MLT: ends a message at a fixed time, whatever is missing
  bool is_tcp() const { return !congestion.empty(); }
};

inline constexpr const char* kRing = "ring";
inline constexpr const char* kAllToAll = "all-to-all";
// ParaExpress, which measures who shares an uplink and plans by it. It sums exactly, so it is for carriers that lose
// nothing.
inline constexpr const char* kParaexpress = "paraexpress";
inline constexpr const char* kAlgorithms[]{kRing, kAllToAll, kParaexpress};

struct SuiteArm {
  Carrier carrier;
  std::string algorithm;  // one of kAlgorithms

  std::string name() const { return carrier.name + "/" + algorithm; }
};

// The algorithm of the TCP arm that it is compared with: its own, and of ParaExpress the ring.
std::string reference_algorithm(const std::string& algorithm);

const std::vector<Carrier>& all_carriers();
// One of those, "mlt-no-parity", or "mlt-pX": MLT that may leave X percent missing, above 0 and at most 10, written as
// short as can be
// ("0.5", "5"). None for other names.
std::optional<Carrier> find_carrier(const std::string& name);
// Every named carrier with every algorithm; carriers in the order of all_carriers(), then mlt-pX by X; empty: all of
// all_carriers(), and ring and all-to-all. kInvalidArgument names what there is, or says that none of the carriers is
// one for ParaExpress.
Result<std::vector<SuiteArm>> choose_arms(const std::vector<std::string>& carriers,
                                          const std::vector<std::string>& algorithms);

// What the largest message of a run is to the line, for the static deadline.
struct Load {
  std::uint64_t largest_bucket_bytes = 0;
  int ranks = 2;
  std::uint64_t rate_bps = 0;
};
// 1.25 times what the line needs for the largest message: a rank's share of a bucket, at most 512 KiB of it, in a ring;
// the shares from all others at once in an all-to-all.
double static_deadline_s(const Load& load, const std::string& algorithm);

// Environment of the ranks.
Settings environment_of(const SuiteArm& arm, const Load& load);
// Arm::options: what else than a plugin sums the gradients. Empty: a plugin does.
Settings options_of(const SuiteArm& arm);
// For `clustar train`, beside options_of() and those that all arms share. `missing`: zero, rescale or residual.
std::vector<std::string> arguments_of(const SuiteArm& arm, const std::string& missing);
// Names in `inherited` that would change what an arm is. Empty: none.
std::vector<std::string> in_the_way(const Settings& inherited);

}  // namespace clustar::bench::ab::suite
