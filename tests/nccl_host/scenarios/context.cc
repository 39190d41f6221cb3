#include "tests/nccl_host/scenarios/context.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace nccl_host {

Context::Context(const ScenarioOptions& scenario, Shared& memory, int own)
    : options(scenario), shared(memory), rank(own) {
  setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
}

ncclUniqueId Context::NextId() {
  const uint32_t number = next_id_++;
  RequireThat(number < Shared::kMostIds, "more communicators than ids");
  if (rank == 0) {
    Require(ncclGetUniqueId(&shared.ids[number]), "ncclGetUniqueId");
    shared.ids_ready = number + 1;
  }
  // The parent ends this process when the time is over.
  while (shared.ids_ready <= number) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return shared.ids[number];
}

ncclComm_t Context::NewCommunicator() {
  ncclComm_t result = nullptr;
  Require(ncclCommInitRank(&result, ranks(), NextId(), rank), "ncclCommInitRank");
  return result;
}

void Require(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s: %s: %s (%s)\n", kScenarios, what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  std::exit(1);
}

void RequireThat(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "%s: %s\n", kScenarios, what.c_str());
  std::exit(1);
}

void RequireDone(ncclComm_t communicator, ncclResult_t result, const char* what) {
  while (result == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    Require(ncclCommGetAsyncError(communicator, &result), "ncclCommGetAsyncError");
  }
  Require(result, what);
}

int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace nccl_host
