// What mlt may lose of gradients (docs/loss.md). No class and no rule: nothing. All ranks need them alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct LossSettings {
  std::uint32_t tolerance_ppm = 10'000;  // p of collectives that opted in, unless their rule has its own
  std::string traffic_classes;           // communicators whose trafficClass is in one of these opt in: "160-167,200"
  std::string rules;                     // that opt in, joined by ';': "comm=dp*,ranks=4-64,bytes=1M-,p=0.01"
  // All-reduces and reduce-scatters of each communicator, and sends to each rank, that stay reliable at first.
  std::uint32_t warmup = 100;
  // The most that any rule allows while the model is in a critical phase; unset: tolerance_ppm.
  std::optional<std::uint32_t> critical_tolerance_ppm;
  double critical_drop = 0.5;   // relative fall of the reported gradient norm that makes the phase critical
  bool trust_profiler = false;  // allow loss although NCCL does not confirm what a message is (net API below v11)

  static const TypedTable<LossSettings>& table();
};

}  // namespace clustar
