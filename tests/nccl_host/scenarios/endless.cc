#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "tests/nccl_host/scenarios/death.h"
#include "tests/nccl_host/scenarios/processor_waits.h"
#include "tests/nccl_host/scenarios/traffic.h"

namespace nccl_host {
namespace {

// This rank aborts of its own accord.
constexpr ncclResult_t kAborts = ncclNumResults;

ncclResult_t WaitOrError(Context& context, ncclComm_t communicator, const Traffic& traffic) {
  while (!traffic.Done()) {
    ncclResult_t error = ncclSuccess;
    Require(ncclCommGetAsyncError(communicator, &error), "ncclCommGetAsyncError");
    if (error != ncclSuccess && error != ncclInProgress) return error;
    if (context.shared.abort || context.shared.aborter == context.rank + 1) return kAborts;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return ncclSuccess;
}

}  // namespace

void Endless(Context& context) {
  Report& report = context.shared.reports[context.rank];
  const ncclComm_t communicator = context.NewCommunicator();
  Traffic traffic(context, communicator, context.count());
  ProcessorWaits waits;
  // At the ends of the last two rounds: what went wrong may have begun before the last of them ended.
  int64_t waited_before[2] = {waits.Total(), waits.Total()};
  ncclResult_t error = ncclSuccess;
  for (int round = 0; error == ncclSuccess; ++round) {
    // All must end after the same round, so the round itself tells them.
    error = traffic.AllReduce(round, context.shared.end ? 1 : 0);
    if (error == ncclSuccess) error = WaitOrError(context, communicator, traffic);
    if (error == ncclSuccess) {
      // A kernel may be done while its last send is not, and the peer gone before that.
      const bool over = traffic.Finish(&error) > 0;
      if (error != ncclSuccess) break;
      ++report.rounds;
      waited_before[0] = std::exchange(waited_before[1], waits.Total());
      if (over) break;
    }
  }
  if (error == ncclSuccess) return Require(ncclCommDestroy(communicator), "ncclCommDestroy");
  if (error != kAborts) {
    report.error = error;
    report.error_at = Now();
    report.error_waited = waits.Total() - waited_before[0];
    std::snprintf(report.text, sizeof(report.text), "%s", ncclGetLastError(communicator));
  }
  const int64_t waited = waits.Total();
  const int64_t begin = Now();
  const ncclResult_t aborted = ncclCommAbort(communicator);
  // Waits first: who sees that the abort is over reads both.
  const int64_t took = Now() - begin;
  report.abort_waited = waits.Total() - waited;
  report.abort_took = took;
  Require(aborted, "ncclCommAbort");
}

}  // namespace nccl_host
