// A coordinator with agents of a few jobs, for a browser to look at. Prints the page's port; ends with its standard
// input.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/daemon_process.h"
#include "tests/coordinator/test_agent.h"

namespace clustar::tests {
namespace {

using namespace coflow::control;

constexpr int kStepMs = 200;
constexpr int kHosts = 4;
constexpr std::uint64_t kBackgroundBytes = 3'000'000;  // in a step

struct StageClass {
  std::uint64_t group;
  std::uint8_t function, urgency;
  std::uint64_t bytes;  // of an iteration, on each host
  int steps;            // that it lasts
  int busy;             // of them it sends
};
struct StageJob {
  std::uint32_t job;
  const char* tenant;
  std::vector<StageClass> classes;
};

// The last tenant would be markup, if the page took it for that.
const std::vector<StageJob>& stage_jobs() {
  static const std::vector<StageJob> kJobs{
      {1, "research", {{0x7f3a91c4d2e85b06, 4, 0, 33'600'000, 6, 3}, {0x7f3a91c4d2e85b07, 6, 0, 8'000'000, 6, 2}}},
      {2, "batch", {{0x1be7740a9f63c2d8, 4, 2, 1'350'000'000, 25, 18}, {0x1be7740a9f63c2d9, 2, 1, 90'200'000, 10, 4}}},
      {3, "<b>bold & \"quoted\"</b>", {{0, kUnknownFunction, 3, 0, 20, 20}}},
  };
  return kJobs;
}

// Of step `step`; the last host is behind the others.
ClassReport report_at(const StageJob& job, const StageClass& one, int host, int step) {
  const int own = std::max(0, host == kHosts - 1 ? step - 1 : step);
  const int phase = own % one.steps, turn = own / one.steps;
  ClassReport report;
  report.key = {job.job, one.group, one.function};
  report.urgency = one.urgency;
  report.waits = phase < one.busy;
  report.repeats = one.bytes > 0;
  report.in_all = one.bytes;
  report.left = report.waits
                    ? one.bytes * static_cast<std::uint64_t>(one.busy - phase) / static_cast<std::uint64_t>(one.busy)
                    : 0;
  report.attained = one.bytes > 0 ? static_cast<std::uint64_t>(turn) * one.bytes + (one.bytes - report.left)
                                  : static_cast<std::uint64_t>(own) * kBackgroundBytes;
  report.period_us = one.bytes > 0 ? static_cast<std::uint32_t>(one.steps * kStepMs * 1000) : 0;
  report.since_us = static_cast<std::uint32_t>(phase * kStepMs * 1000);
  return report;
}

bool input_is_open(int for_ms) {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  if (poll(&in, 1, for_ms) == 0) return true;
  std::array<char, 64> bytes;
  return read(STDIN_FILENO, bytes.data(), bytes.size()) > 0;
}

int run_stage() {
  DaemonProcess daemon({"--interval", "100ms"});
  if (!daemon.listens()) {
    std::fputs(daemon.log().c_str(), stderr);
    return 1;
  }
  struct Cast {
    const StageJob& job;
    int host;
    std::unique_ptr<TestAgent> agent;
  };
  std::vector<Cast> cast;
  for (const StageJob& job : stage_jobs()) {
    for (int host = 0; host < kHosts; ++host) {
      Hello hello = hello_of(cast.size() + 1, job.job, "node-" + std::to_string(host + 1));
      hello.tenant = job.tenant;
      cast.push_back({job, host, std::make_unique<TestAgent>(daemon.port())});
      cast.back().agent->send(hello);
    }
  }
  std::printf("%d\n", daemon.http_port());
  std::fflush(stdout);
  for (int step = 0; input_is_open(kStepMs); ++step) {
    for (const Cast& one : cast) {
      Report report;
      for (const StageClass& a_class : one.job.classes)
        report.classes.push_back(report_at(one.job, a_class, one.host, step));
      one.agent->send(report);
      while (one.agent->next(std::chrono::milliseconds(0))) {
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace clustar::tests

int main() { return clustar::tests::run_stage(); }
