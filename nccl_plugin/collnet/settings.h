// Settings of the collective network.
#pragma once

#include <chrono>
#include <string>

#include "transport/base/setting.h"
#include "transport/base/time.h"

namespace clustar {

struct CollNetSettings {
  // on: NCCL is offered a collective network, which it takes where it is told to | off: it sees none
  std::string offered = "off";
  // How long an operation may stand still, because a rank comes late.
  Duration stall = std::chrono::minutes(30);

  static const TypedTable<CollNetSettings>& table();
};

}  // namespace clustar
