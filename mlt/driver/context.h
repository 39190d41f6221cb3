// What every part of one MltTransport shares.
#pragma once

#include <cstdint>
#include <memory>

#include "mlt/driver/process_budgets.h"
#include "mlt/driver/protection.h"
#include "mlt/fec/codec.h"
#include "transport/api/importance_table.h"
#include "transport/api/send_policy.h"
#include "transport/base/log.h"
#include "transport/base/time.h"

namespace clustar::mlt::driver {

// What moves the bytes.
enum class EngineMode : std::uint8_t {
  kInline,  // only callers, within send, recv and test
  kThread,  // only a thread of the engine; callers post and look
  kAuto,    // callers; when they are silent, a thread that else sleeps
};

// The transport owns it and outlives them.
struct Context {
  const Clock& clock;
  Log log;
  EngineMode mode = EngineMode::kAuto;
  Duration stall_timeout{0};
  std::unique_ptr<const Protection> protection{};       // null: there is no pre-shared key
  std::unique_ptr<const fec::Codec> codec{};            // of parity; null: there is none
  std::shared_ptr<transport::SendPolicies> policies{};  // null: everything by arrival
  Duration send_ahead{0};                               // SendOrderSettings::ahead_us
  std::uint32_t important_ppm = 0;  // of the packets that may be lost: those with the largest gradients may not
  std::shared_ptr<transport::ImportanceTable> importance{};  // null: programs mark nothing
  const std::unique_ptr<ProcessBudgets> budgets = std::make_unique<ProcessBudgets>();
};

}  // namespace clustar::mlt::driver
