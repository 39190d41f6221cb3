// Random communicators and tasks for the direct harness: what is drawn is bounded so that one scenario is some thousand
// messages, and every feature of issue 7's list is drawn often.
#pragma once

#include <cstdint>

#include "tests/plugin/fake_nccl/direct.h"

namespace clustar::tests::fake_nccl {

enum class Kind : std::uint8_t {
  kClean,       // what NCCL 2.27 and later does
  kHostile,     // with faults, forged handles, double stops, events out of nowhere
  kShortPools,  // and so few objects that events are refused
  kOldNccl,     // 2.26: a callback that answers nothing, net v10
};

// Draws a process with one profiler and up to three communicators from `seed` and runs it to its end. The tally says
// what came of it; a failure's text begins with the seed.
void run_scenario(Kind kind, std::uint64_t seed, Tally& tally);

// A task that `comm` may run: everything that NCCL offers, most of it such that some loss is allowed. `exchange`: three
// of four are sends such as a direct exchange makes.
Task draw_task(const Communicator& comm, Rng& rng, bool exchange = false);
Communicator draw_communicator(std::uint64_t id, Rng& rng);

}  // namespace clustar::tests::fake_nccl
