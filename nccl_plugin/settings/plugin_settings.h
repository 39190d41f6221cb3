// Settings of the tables beside the net plugin: tuner and profiler.
#pragma once

#include <string>

#include "transport/base/setting.h"

namespace clustar {

struct PluginSettings {
  // on: the tuner steers collectives that opted in to RING and SIMPLE | off: it only forbids what the transport cannot
  // do
  std::string tuner = "on";
  // Whether messages say over tcp and verbs what they are, for clustar.h: on | off | auto, where the transport may
  // lose.
  std::string identity = "auto";
  std::string send_urgency;    // rules: net/urgency_rules.h
  std::string chain_profiler;  // library that gets all of NCCL's events, too; empty = none

  static const TypedTable<PluginSettings>& table();
};

}  // namespace clustar
