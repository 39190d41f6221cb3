#include "tests/gpu/nccl_check_bounds.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace clustar::nccl_check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kGraceSeconds = 2;  // of the alarm after the deadline, which has the better message

Clock::time_point g_deadline;
std::string g_doing = "starting";
// The same for the signal's handler, which may come at any time: always ended by a zero.
char g_doing_text[256] = "starting";

extern "C" void on_alarm(int) {
  for (const char* text : {"nccl-check: time is up in a call that does not return, while ",
                           static_cast<const char*>(g_doing_text), "\n"}) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
  }
  _exit(1);
}

}  // namespace

void start_deadline(int seconds) {
  g_deadline = Clock::now() + std::chrono::seconds(seconds);
  std::signal(SIGALRM, on_alarm);
  alarm(static_cast<unsigned>(seconds) + kGraceSeconds);
}

void doing(const std::string& what) {
  g_doing = what;
  std::strncpy(g_doing_text, what.c_str(), sizeof g_doing_text - 1);
}

const std::string& what_it_did() { return g_doing; }

void check_time() {
  if (Clock::now() < g_deadline) return;
  std::fprintf(stderr, "nccl-check: time is up while %s\n", g_doing.c_str());
  std::fflush(stderr);
  _exit(1);
}

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(result));
}

void settle(ncclResult_t result, ncclComm_t comm, const char* call) {
  while (result == ncclInProgress) {
    check_time();
    sched_yield();
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) break;
  }
  if (result != ncclSuccess) {
    throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(comm));
  }
}

void wait_for(cudaStream_t stream, ncclComm_t comm) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, "cudaStreamQuery");
    ncclResult_t result = ncclSuccess;
    ncclCommGetAsyncError(comm, &result);
    if (result != ncclInProgress) settle(result, comm, "asynchronous error");
    check_time();
    sched_yield();
  }
}

}  // namespace clustar::nccl_check
