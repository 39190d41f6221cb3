#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/nccl_host/scenarios/options.h"

namespace nccl_host {

// What a rank tells of an endless traffic.
struct Report {
  std::atomic<uint64_t> rounds;
  std::atomic<int> error;           // ncclResult_t
  std::atomic<int64_t> error_at;    // nanoseconds of the steady clock; 0: none
  std::atomic<int64_t> abort_took;  // nanoseconds; 0: not aborted
  // Of these times at the most so much because others had the processors.
  std::atomic<int64_t> error_waited;
  std::atomic<int64_t> abort_waited;
  char text[256];
};

// Of all ranks and their parent, in memory that they share; all zero at first.
struct Shared {
  static constexpr uint32_t kMostIds = 1024;
  std::atomic<uint32_t> ids_ready;
  ncclUniqueId ids[kMostIds];
  std::atomic<uint64_t> compared;
  std::atomic<uint64_t> wrong;
  // For endless traffic.
  std::atomic<bool> end;
  std::atomic<bool> abort;   // all that do not stand still
  std::atomic<int> aborter;  // rank + 1
  Report reports[64];
};

// A rank, and what it knows.
class Context {
 public:
  Context(const ScenarioOptions& options, Shared& shared, int rank);

  // The same for all ranks, in the order of their calls; rank 0 makes it.
  ncclUniqueId NextId();
  ncclComm_t NewCommunicator();
  int ranks() const { return options.ranks; }
  size_t count() const { return options.bytes / sizeof(float); }

  const ScenarioOptions& options;
  Shared& shared;
  const int rank;

 private:
  uint32_t next_id_ = 0;
};

// Prints what failed and ends the process with status 1.
void Require(ncclResult_t result, const char* what);
void RequireThat(bool condition, const std::string& what);
// As Require, once the communicator is no longer at it.
void RequireDone(ncclComm_t communicator, ncclResult_t result, const char* what);

int64_t Now();  // nanoseconds of the steady clock, which all processes share

}  // namespace nccl_host
