#include "paraexpress/engine/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace clustar::paraexpress {
namespace {

using std::chrono::steady_clock;

// No operation of a runner has it, and no farewell.
constexpr int kProbeTag = 1 << 30;
constexpr int kPings = 12;
constexpr std::size_t kPing = 8;
constexpr std::size_t kLeastExchange = 16 << 10, kMostExchange = 4 << 20;
constexpr std::uint64_t kTournaments = 3;
constexpr double kMostRound = 0.1;  // seconds that a round's slowest pair should take

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

class Prober {
 public:
  Prober(Mesh& mesh, Farewells& farewells, Member self, std::uint32_t ranks, const Waits& waits,
         const AgreeOnMost& agree)
      : mesh_(mesh), farewells_(farewells), self_(self), ranks_(ranks), waits_(waits), agree_(agree) {}

  tl::expected<Probed, Blame> run() {
    memory_.resize(2 * kMostExchange);
    auto registered = mesh_.reg_mr(memory_.data(), memory_.size());
    if (!registered) return tl::unexpected(blame(self_, registered.error()));
    registered_ = std::move(*registered);
    Probed probed;
    if (auto failed = measure(probed)) return tl::unexpected(*failed);
    return probed;
  }

 private:
  std::optional<Blame> measure(Probed& probed) {
    const std::size_t pairs = std::size_t{ranks_} * ranks_;
    probed.round_trip_s.assign(pairs, 0);
    const Tournament quiet(ranks_, 0);
    for (std::uint32_t round = 0; round < quiet.rounds(); ++round) {
      const Member peer = quiet.partner(round, self_);
      if (auto failed = together()) return failed;
      if (peer == kNobody) continue;
      if (auto failed = ping(peer, probed.round_trip_s[std::size_t{self_} * ranks_ + peer])) return failed;
    }
    if (auto failed = agree_(probed.round_trip_s)) return failed;
    probed.exchange_bytes = kLeastExchange;
    if (auto failed = find_bytes(probed.exchange_bytes)) return failed;
    for (std::uint64_t number = 0; number < kTournaments; ++number) {
      PairTimes times(pairs, 0);
      const Tournament tournament(ranks_, number);
      for (std::uint32_t round = 0; round < tournament.rounds(); ++round) {
        const Member peer = tournament.partner(round, self_);
        if (auto failed = together()) return failed;
        if (peer == kNobody) continue;
        double& seconds = times[std::size_t{self_} * ranks_ + peer];
        if (auto failed = exchange(peer, probed.exchange_bytes, seconds)) return failed;
      }
      if (auto failed = agree_(times)) return failed;
      probed.exchange_s.push_back(std::move(times));
    }
    return std::nullopt;
  }

  // Long enough to fill the uplinks' queues, short enough for all rounds.
  std::optional<Blame> find_bytes(std::uint64_t& bytes) {
    const Tournament tournament(ranks_, 0);
    const double all = std::chrono::duration<double>(kProbeTime).count();
    const double aim = std::min(kMostRound, all / static_cast<double>(kTournaments * tournament.rounds()));
    for (;; bytes *= 2) {
      double slowest = 0;
      if (auto failed = together()) return failed;
      if (const Member peer = tournament.partner(0, self_); peer != kNobody) {
        if (auto failed = exchange(peer, bytes, slowest)) return failed;
      }
      if (auto failed = agree_({&slowest, 1})) return failed;
      if (2 * slowest > aim || 2 * bytes > kMostExchange) return std::nullopt;
    }
  }

  // No rank begins a round before all have ended theirs.
  std::optional<Blame> together() {
    double nothing = 0;
    return agree_({&nothing, 1});
  }

  std::optional<Blame> ping(Member peer, double& least) {
    const bool first = self_ < peer;
    for (int i = 0; i < kPings; ++i) {
      const auto begin = steady_clock::now();
      if (first) {
        if (auto failed = move(peer, kPing, 0)) return failed;
        if (auto failed = move(peer, 0, kPing)) return failed;
        const double seconds = seconds_since(begin);
        if (i == 0 || seconds < least) least = seconds;
      } else {
        if (auto failed = move(peer, 0, kPing)) return failed;
        if (auto failed = move(peer, kPing, 0)) return failed;
      }
    }
    return std::nullopt;
  }

  std::optional<Blame> exchange(Member peer, std::size_t bytes, double& seconds) {
    const auto begin = steady_clock::now();
    auto failed = move(peer, bytes, bytes);
    seconds = seconds_since(begin);
    return failed;
  }

  // Sends and receives so much, 0: nothing, at the same time.
  std::optional<Blame> move(Member peer, std::size_t out, std::size_t in) {
    const auto begin = steady_clock::now();
    const auto until = waits_.end(begin);
    transport::Request *sending = nullptr, *receiving = nullptr;
    bool sent = out == 0, received = in == 0;
    for (std::uint64_t looks = 1; !sent || !received; ++looks) {
      if (!received && receiving == nullptr) {
        const transport::RecvPart part{registered_->to_receive[peer].get(), kMostExchange, in, kProbeTag};
        auto request = mesh_.from(peer).recv({&part, 1});
        if (!request) return failed_with(peer, request.error());
        receiving = *request;
      }
      if (!sent && sending == nullptr) {
        transport::FlowTag flow;
        flow.bytes = out;
        auto request = mesh_.to(peer).send(*registered_->to_send[peer], 0, out, kProbeTag, flow);
        if (!request) return failed_with(peer, request.error());
        sending = *request;
      }
      for (auto& [request, done] : {std::pair{&receiving, &received}, std::pair{&sending, &sent}}) {
        if (*done || *request == nullptr) continue;
        const auto progress = (*request)->test();
        if (!progress) return failed_with(peer, progress.error());
        *done = progress->done;
      }
      if (looks % 64 != 0) continue;
      if (auto found = farewells_.look()) return found;
      if (steady_clock::now() > until) {
        return Blame{kNobody,
                     {ErrorCode::kRemote, fmt::format("nothing came of rank {} for {:.3g} s while probing for regions",
                                                      peer, std::chrono::duration<double>(until - begin).count())}};
      }
      std::this_thread::yield();
    }
    return std::nullopt;
  }

  Blame failed_with(Member peer, const Error& error) {
    if (auto found = farewells_.look()) return *found;
    return blame(peer, error);
  }

  Mesh& mesh_;
  Farewells& farewells_;
  const Member self_;
  const std::uint32_t ranks_;
  const Waits waits_;
  const AgreeOnMost& agree_;
  std::vector<std::byte> memory_{};
  std::unique_ptr<Registered> registered_{};
};

}  // namespace

tl::expected<Probed, Blame> probe(Mesh& mesh, Farewells& farewells, Member self, std::uint32_t ranks,
                                  const Waits& waits, const AgreeOnMost& agree) {
  return Prober(mesh, farewells, self, ranks, waits, agree).run();
}

}  // namespace clustar::paraexpress
