// Whether GPUDirect RDMA is on between each GPU and NIC of a machine, and if not, why not.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/doctor/check.h"
#include "bench/doctor/probes.h"
#include "gdr/core/machine.h"
#include "gdr/core/tiers.h"

namespace clustar::bench::doctor {

enum class Verdict { kOk, kMissing, kUnknown, kNothingToDo };

struct GdrReport {
  gdr::Machine machine{};
  gdr::Settings settings{};
  std::vector<gdr::GpuFacts> gpus{};  // as in the machine
  std::vector<gdr::NicFacts> nics{};
  std::vector<gdr::Decision> pairs{};  // GPU by GPU, NIC by NIC
  // Of each GPU the pair that is best; nothing without NICs.
  std::vector<std::optional<std::size_t>> best{};
  std::vector<std::string> missing{};  // what the machine lacks as a whole, and what to do

  Verdict verdict() const;
  // Addresses of GPUs that receive through pinned host memory at best.
  std::vector<std::string> gpus_without() const;
};

GdrReport examine(gdr::Machine machine, const Probes& probes);

// One for each GPU, and for what the machine lacks as a whole.
std::vector<Check> gdr_checks(const GdrReport& report);

// `all`: the reasons of every pair, not only of each GPU's best.
std::string to_text(const GdrReport& report, bool all);
nlohmann::json to_json(const GdrReport& report);

}  // namespace clustar::bench::doctor
