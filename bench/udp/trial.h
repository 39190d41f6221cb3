// One transfer from a thread on one host to a thread on the other, and what it cost both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/udp/scatter.h"
#include "bench/udp/shape.h"
#include "bench/udp/wire.h"
#include "transport/base/result.h"

namespace clustar::bench::udp {

// The sources and the target, made once: 192 MiB.
struct Memory {
  Memory();
  std::vector<std::byte> source;
  std::vector<std::byte> target;
};

struct Arm {
  std::string sender;
  std::string receiver;
};

struct Side {
  double cpu_s = 0;
  std::uint64_t calls = 0;
};

struct Figures {
  double seconds = 0;  // from the first send to the last arrival
  Side sender;
  Side receiver;
  double machine_cpu_s = 0;  // of all cores and whatever ran on them; steps of 10 ms
  std::uint64_t lost = 0;
  std::uint64_t wrong = 0;   // segments that came and are not where they belong
  std::uint64_t stalls = 0;  // the sender waited in vain for a credit and went on without
  std::uint64_t copied = 0;  // messages sent with MSG_ZEROCOPY that the kernel copied
  ScatterCounts scatter;
};

enum class Threads {
  kOne,        // the two ends by turns, a window each: no sleep and no second cache disturb the CPU time
  kTwo,        // each end sleeps when it has nothing to do
  kTwoPinned,  // the sender on core 0, the receiver on core 1
};

Result<Figures> run_trial(const Wire& wire, Memory& memory, const Shape& shape, const Arm& arm, Threads threads);

}  // namespace clustar::bench::udp
