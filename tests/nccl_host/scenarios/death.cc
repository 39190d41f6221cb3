#include "tests/nccl_host/scenarios/death.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "tests/nccl_host/ranks/ranks.h"

namespace nccl_host {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kAbortWithin = 5 * kSecond;
constexpr uint64_t kWarmRounds = 3;
constexpr uint64_t kRoundsAfter = 5;

struct Worst {
  int64_t error = 0;
  int64_t abort = 0;
};

class Trial {
 public:
  Trial(const ScenarioOptions& options, char** argv, int number)
      : options_(options),
        number_(number),
        random_(static_cast<uint32_t>(number) + 1),
        memory_(options, sizeof(Shared)),
        shared_(*static_cast<Shared*>(memory_.get())),
        ranks_(options, memory_, argv, [this](int rank) {
          Context context(options_, shared_, rank);
          Endless(context);
        }) {}

  bool Run(Worst& worst) {
    if (!AwaitRounds(kWarmRounds)) return Say("ranks ended or were too slow before anything happened to them");
    // At any moment of a round.
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 50'000));
    const std::string& name = options_.scenario;
    const bool well = name == "stop" ? Stop() : name == "abort_stopped" ? AbortStopped() : Die();
    return well && Judge(worst);
  }

 private:
  int victim() const { return options_.scenario == "cut" ? 1 : number_ % options_.ranks; }

  bool Say(const std::string& what) const {
    std::printf("%s: trial %d: %s\n", options_.scenario.c_str(), number_, what.c_str());
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const Report& report = shared_.reports[rank];
      std::printf("  rank %d%s: %llu rounds, error %d %s, abort took %lld ms", rank,
                  rank == victim() ? " (victim)" : "", static_cast<unsigned long long>(report.rounds.load()),
                  report.error.load(), report.text, static_cast<long long>(report.abort_took / 1'000'000));
      std::printf("; waits for a processor: %lld ms before the error, %lld ms in the abort\n",
                  static_cast<long long>(report.error_waited / 1'000'000),
                  static_cast<long long>(report.abort_waited / 1'000'000));
    }
    return false;
  }

  bool AwaitRounds(uint64_t more) {
    uint64_t from[64];
    for (int rank = 0; rank < options_.ranks; ++rank) from[rank] = shared_.reports[rank].rounds;
    for (;;) {
      bool all = true;
      for (int rank = 0; rank < options_.ranks; ++rank) all = all && shared_.reports[rank].rounds >= from[rank] + more;
      if (all) return true;
      if (!ranks_.AllRun()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // kill, abort, cut.
  bool Die() {
    event_ = Now();
    const std::string& name = options_.scenario;
    if (name == "kill") ranks_.Signal(victim(), SIGKILL);
    if (name == "abort") shared_.aborter = victim() + 1;
    if (name == "cut" && std::system(options_.cut.c_str()) != 0) return Say("--cut failed");
    return ranks_.Await(name == "kill" ? victim() : -1) || Say("a rank did not end well");
  }

  bool Stop() {
    ranks_.Signal(victim(), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(options_.stop_for));
    ranks_.Signal(victim(), SIGCONT);
    if (!AwaitRounds(kRoundsAfter)) return Say("ranks did not go on");
    shared_.end = true;
    return ranks_.Await() || Say("a rank did not end well");
  }

  bool AbortStopped() {
    ranks_.Signal(victim(), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    shared_.abort = true;
    bool all = false;
    while (!all && ranks_.InTime()) {
      all = true;
      for (int rank = 0; rank < options_.ranks; ++rank)
        all = all && (rank == victim() || shared_.reports[rank].abort_took > 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (!all) return Say("ncclCommAbort did not return while a peer stood still");
    shared_.abort = false;
    event_ = Now();
    ranks_.Signal(victim(), SIGCONT);
    return ranks_.Await() || Say("a rank did not end well");
  }

  // Who must have had an error.
  bool HadError(int rank) const {
    const std::string& name = options_.scenario;
    if (name == "kill" || name == "abort") return rank != victim();
    if (name == "abort_stopped") return rank == victim();
    return name == "cut";
  }

  // Of two that are told to abort, the later may already have heard of the other's end.
  bool MayHaveError(int rank) const { return HadError(rank) || options_.scenario == "abort_stopped"; }

  // Threads wait side by side, so the sum of their waits may be longer than the time itself: no more than twice the
  // limit is taken off.
  static int64_t spared(int64_t waited, int64_t limit) { return std::min(waited, 2 * limit); }

  bool Judge(Worst& worst) const {
    if (shared_.wrong != 0) return Say("wrong bits");
    int64_t latest = 0;
    int64_t waited = 0;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (options_.scenario == "kill" && rank == victim()) continue;
      const Report& report = shared_.reports[rank];
      const bool told = options_.any_error ? report.error != ncclSuccess : report.error == ncclRemoteError;
      if (HadError(rank) && !told)
        return Say(options_.any_error ? "an error of the peer's was not told"
                                      : "an error of the peer's was not told as ncclRemoteError");
      if (!MayHaveError(rank) && report.error != ncclSuccess) return Say("an error where there should be none");
      if (HadError(rank)) latest = std::max<int64_t>(latest, report.error_at - event_);
      worst.abort = std::max<int64_t>(worst.abort, report.abort_took);
      if (report.abort_took - spared(report.abort_waited, kAbortWithin) > kAbortWithin)
        return Say("ncclCommAbort took more than 5 s");
      // A rank may hear of it from one that heard of it and aborted.
      waited += report.error_waited + report.abort_waited;
    }
    worst.error = std::max(worst.error, latest);
    const int64_t within = options_.error_within * kSecond;
    return latest - spared(waited, within) <= within || Say("an error came too late");
  }

  const ScenarioOptions& options_;
  int number_;
  std::mt19937 random_;
  SharedMemory memory_;
  Shared& shared_;
  Ranks ranks_;
  int64_t event_ = 0;
};

}  // namespace

bool Trials(const ScenarioOptions& options, char** argv) {
  Worst worst;
  int good = 0;
  for (int i = 0; i < options.times; ++i) good += Trial(options, argv, i).Run(worst);
  std::printf("%s: %d of %d trials of %d ranks well; the latest error after %.0f ms, the longest abort %.0f ms\n",
              options.scenario.c_str(), good, options.times, options.ranks, static_cast<double>(worst.error) / 1e6,
              static_cast<double>(worst.abort) / 1e6);
  return good == options.times;
}

}  // namespace nccl_host
