// What one agent sends and receives over: lanes to other agents, each in one direction, made beforehand. Flows of a
// lane arrive one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::bench::coflow::live {

using LaneId = std::uint32_t;  // in a run; both ends have it

// What a lane's sender needs from its receiver.
using LaneHandle = std::array<std::byte, 128>;

struct FlowToSend {
  std::uint64_t bytes = 0;         // > 0
  std::uint64_t coflow = 0;        // > 0
  std::uint64_t coflow_bytes = 0;  // what the order is told of the coflow's size; 0: unknown
  // Of a job's: as NCCL's profiler tells which communicator's collective it is; 0: not told.
  std::uint64_t communicator = 0;
  std::uint64_t number = 0;
};

class Lanes {
 public:
  virtual ~Lanes() = default;

  // Before all else, of each lane at its receiver; then at its sender; then open() at both until it is true.
  virtual Result<LaneHandle> listen(LaneId lane) = 0;
  virtual Result<void> connect(LaneId lane, const LaneHandle& handle) = 0;
  virtual Result<bool> open() = 0;  // never blocks

  virtual void send(LaneId lane, const FlowToSend& flow) = 0;
  virtual void receive(LaneId lane, std::uint64_t bytes) = 0;
  // Moves bytes. Adds to `arrived` the lane of each flow whose last byte is here.
  virtual Result<void> move(std::vector<LaneId>& arrived) = 0;
  // Returns when something may have to be moved, `wake` can be read, or the time is over.
  virtual void wait(int wake, Duration at_most) = 0;
};

}  // namespace clustar::bench::coflow::live
