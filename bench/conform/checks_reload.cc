// reload.*: NCCL unloads the plugin with its last communicator and loads it again for the next.
#include <fmt/format.h>

#include "bench/conform/process.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

std::string check_again(const Env& env) {
  for (int round = 0; round < 3; ++round) {
    Session session(env);
    Link link = session.link();
    exchange(session, link, 65536, static_cast<std::uint64_t>(round) + 1);
  }
  return "loaded, used and unloaded 3 times";
}

std::string check_flat_memory(const Env& env) {
  constexpr int kWarmUp = 8, kCycles = 40;
  constexpr long kAllowedPerCycle = 32 * 1024;
  std::size_t memory = 0;
  for (int i = 0; i < kCycles; ++i) {
    Session session(env);
    Link link = session.link();
    if (i == kWarmUp) memory = resident_bytes();
  }
  if (!resident_bytes_are_meaningful()) skip_check("this build's sanitizer keeps freed memory");
  const auto grown = static_cast<long>(resident_bytes()) - static_cast<long>(memory);
  const long per_cycle = grown / (kCycles - kWarmUp);
  if (per_cycle > kAllowedPerCycle) {
    fail_check(fmt::format("each load and unload leaves {} KiB behind ({} KiB allowed)", per_cycle / 1024,
                           kAllowedPerCycle / 1024));
  }
  return fmt::format("{} cycles, {:+} bytes each", kCycles - kWarmUp, per_cycle);
}

constexpr Check kChecks[] = {
    {"reload.again", "After dlclose the plugin can be opened and used again.", "plugin/net.cc:75-78; nccl#1978", true,
     check_again},
    {"reload.flat_memory", "Loading and unloading leaves no memory behind.", "plugin/net.cc:75-78", false,
     check_flat_memory},
};

}  // namespace

std::span<const Check> reload_checks() { return kChecks; }

}  // namespace clustar::bench::conform
