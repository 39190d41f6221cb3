// The processes of one job of an arm: a receiver on host 0 and its senders, started, connected, sent into rounds and
// put to sleep between them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/fabric/fabric.h"
#include "bench/lossy/endpoint.h"
#include "bench/perf/control.h"
#include "bench/perf/process.h"

namespace clustar::bench::lossy {

struct Arrival {
  int sender = 0;
  std::int64_t at_ns = 0;  // CLOCK_MONOTONIC, which all network namespaces share
  std::uint64_t missing = 0;
};

struct CrewRound {
  std::vector<Arrival> arrivals;
  double cpu_s = 0;  // of all processes, user and system
};

class Crew {
 public:
  struct Member {
    std::string who;  // "the sender of tcp-bbr on host 3"
    int host = 0;
    perf::Process process;
    std::unique_ptr<perf::Control> control;
  };

  // Starts `executable` on host 0 and on the hosts from `first_sender` on and connects them. The hosts' TCP has the
  // arm's settings until then, and the defaults afterwards. kUnavailable: this build or machine cannot run the arm.
  static Result<std::unique_ptr<Crew>> start(const std::string& executable, const fabric::Fabric& fabric,
                                             const Terms& terms, int first_sender);
  ~Crew();

  const Terms& terms() const { return terms_; }
  // Everybody posts what comes first; true when all are ready.
  Result<void> prepare(std::uint32_t number, std::chrono::milliseconds limit);
  // Senders begin at this moment of CLOCK_MONOTONIC.
  Result<void> go(std::int64_t at_ns);
  Result<CrewRound> finish();

  // What the first sender and the receiver read back; retransmitted_packets of all senders, where each of
  // them knows.
  Result<nlohmann::json> facts();
  // Stopped processes take no turns in the scheduler, whatever threads they have.
  void sleep();
  void wake();

 private:
  explicit Crew(const Terms& terms) : terms_(terms) {}
  Result<void> add(const std::string& executable, const fabric::Fabric& fabric, int host);
  Result<void> open(const fabric::Fabric& fabric);
  // One answer of each of them. Errors name who failed, died or was late.
  Result<std::vector<nlohmann::json>> answers(std::chrono::milliseconds limit);
  Result<nlohmann::json> ask(Member& member, const nlohmann::json& command, std::chrono::milliseconds limit);
  Result<nlohmann::json> answer(Member& member, SteadyClock::time_point until);

  Terms terms_;
  std::vector<Member> members_;  // the receiver first
  std::chrono::milliseconds limit_{30'000};
  bool asleep_ = false;
};

// Of the signals that bench/ab/interrupt.h keeps.
Result<void> check_interrupt();

}  // namespace clustar::bench::lossy
