#include "bench/lossy/arm.h"

#include <fmt/format.h>

namespace clustar::bench::lossy {
namespace {

constexpr std::uint32_t kShortRtoUs = 5'000;

std::vector<Arm> make_arms() {
  const auto tcp = [](std::string name, std::string label, std::string congestion, std::uint32_t rto) {
    return Arm{.name = std::move(name),
               .label = std::move(label),
               .carrier = Carrier::kTcp,
               .congestion = std::move(congestion),
               .rto_min_us = rto};
  };
  const auto mlt = [](std::string name, std::string label) {
    return Arm{.name = std::move(name), .label = std::move(label), .carrier = Carrier::kMlt};
  };
  std::vector<Arm> arms{
      tcp("tcp-cubic", "TCP cubic", "cubic", kDefaultRtoUs),
      tcp("tcp-bbr", "TCP bbr", "bbr", kDefaultRtoUs),
      tcp("tcp-cubic-rto5", "TCP cubic, rto_min 5 ms", "cubic", kShortRtoUs),
      tcp("tcp-bbr-rto5", "TCP bbr, rto_min 5 ms", "bbr", kShortRtoUs),
      tcp("tcp-cubic-ecn", "TCP cubic with ECN, rto_min 5 ms", "cubic", kShortRtoUs),
      Arm{.name = "mptcp", .label = "MPTCP cubic", .carrier = Carrier::kMptcp, .congestion = "cubic"},
      Arm{.name = "clustar-tcp", .label = "clustar TCP, cubic", .carrier = Carrier::kClustarTcp, .congestion = "cubic"},
      mlt("mlt-p0", "MLT, reliable"),
      mlt("mlt-p1", "MLT, 1 % may be missing"),
      mlt("mlt-gbn", "MLT as go-back-N (models RC)"),
      mlt("mlt-deadline", "UBT rule, re-implemented; breaks the loss contract"),
      mlt("mlt-1path", "MLT, reliable, one path"),
      mlt("mlt-p0-dpdk", "MLT, reliable, by DPDK"),
      mlt("mlt-p1-dpdk", "MLT, 1 % may be missing, by DPDK"),
      mlt("mlt-p0-xdp", "MLT, reliable, by DPDK over XDP"),
      mlt("mlt-p1-xdp", "MLT, 1 % may be missing, by DPDK over XDP"),
  };
  for (Arm& arm : arms) {
    if (arm.name == "tcp-cubic-ecn") arm.ecn = true;
    if (arm.name.ends_with("-dpdk")) arm.io = "dpdk";
    if (arm.name.ends_with("-xdp")) arm.io = "dpdk", arm.driver = "net_af_xdp";
    if (arm.name.starts_with("mlt-p1")) arm.tolerance_ppm = 10'000;
    if (arm.name == "mlt-gbn") arm.mode = MltMode::kGoBackN;
    if (arm.name == "mlt-deadline") arm.mode = MltMode::kStaticDeadline;
    if (arm.name == "mlt-1path") arm.paths = 1;
  }
  return arms;
}

}  // namespace

const std::vector<Arm>& all_arms() {
  static const std::vector<Arm> arms = make_arms();
  return arms;
}

Result<Arm> find_arm(const std::string& name) {
  std::string known;
  for (const Arm& arm : all_arms()) {
    if (arm.name == name) return arm;
    known += (known.empty() ? "" : ", ") + arm.name;
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("there is no arm '{}'; the arms are: {}", name, known));
}

const char* to_string(Carrier carrier) {
  switch (carrier) {
    case Carrier::kTcp: return "tcp";
    case Carrier::kMptcp: return "mptcp";
    case Carrier::kClustarTcp: return "clustar-tcp";
    case Carrier::kMlt: return "mlt";
  }
  return "?";
}

bool is_kernel_tcp(const Arm& arm) { return arm.carrier != Carrier::kMlt; }

}  // namespace clustar::bench::lossy
