// What operations a communicator has, and what their messages are part of.
#pragma once

#include <cstdint>

#include "paraexpress/core/forest.h"

namespace clustar::paraexpress {

// Of a receive: the first member that sends what fits.
inline constexpr Member kAnyMember = ~Member{0};

enum class TaskKind : std::uint8_t {
  // By the engine, in the order of their starts on all ranks; staged memory as engine.h says.
  kAllReduce,      // `count` elements
  kAllGather,      // `ranks` blocks of `count` bytes
  kReduceScatter,  // `ranks` blocks of `count` elements
  kBroadcast,      // `count` bytes
  kBarrier,        // nothing: all ranks have begun it, and all collectives before it have ended
  // By messages between pairs of ranks.
  kExchange,  // a collective: gather, scatter, all-to-all
  kMessage,   // one send or receive, in no order with anything else
};

// What a message is part of: collectives must not take each other's messages, nor a send's.
enum class Use : std::uint8_t { kMessage, kGather, kScatter, kAllToAll };
inline constexpr std::uint8_t kUses = 4;
const char* name_of(Use use);

}  // namespace clustar::paraexpress
