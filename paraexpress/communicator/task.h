// One operation of a communicator, as its caller describes it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "paraexpress/communicator/core/kinds.h"
#include "paraexpress/core/forest.h"
#include "paraexpress/sums/reduce.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::paraexpress {

struct Transfer {
  bool sends = false;
  Member peer = 0;                    // of a receive also kAnyMember
  std::size_t offset = 0, bytes = 0;  // within the staged memory
};

struct Task {
  const char* name = "";  // for errors
  TaskKind kind = TaskKind::kBarrier;
  std::size_t staged = 0;  // bytes of staged memory

  std::uint64_t count = 0;
  DataType type = DataType::kUint8;
  Reduction reduction = Reduction::kSum;
  Member root = 0;

  Use use = Use::kMessage;  // not kMessage: numbered by the communicator
  std::uint64_t tag = 0;    // of a kMessage
  std::vector<Transfer> transfers{};

  // Copy into and out of staged memory; null where there is nothing to do. In the communicator's thread. What they
  // throw fails the communicator.
  std::function<void(std::byte*)> fill{}, take{};
  // Once, in the communicator's thread or in close(): the sender of a receive, 0 for anything else; or why it failed.
  std::function<void(const Result<Member>&)> ended{};
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

}  // namespace clustar::paraexpress
