// Errors and bounded waits of nccl-check: nothing waits past the deadline.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace clustar::nccl_check {

// Starts the clock: `seconds` from now the process says what it was doing and ends with status 1, in a call of NCCL or
// CUDA that does not return, too. Without teardown: that may wait for the very thing that is stuck.
void start_deadline(int seconds);
// What the process is about to do, for that message.
void doing(const std::string& what);
const std::string& what_it_did();
// Ends the process when the time is up.
void check_time();

// Throws std::runtime_error naming `call` unless it succeeded.
void check(cudaError_t result, const char* call);
// Waits until the communicator has finished what it was asked; a blocking one has. Throws as check does.
void settle(ncclResult_t result, ncclComm_t comm, const char* call);
// Waits for the work queued on `stream`; an asynchronous error of `comm` throws.
void wait_for(cudaStream_t stream, ncclComm_t comm);

}  // namespace clustar::nccl_check
