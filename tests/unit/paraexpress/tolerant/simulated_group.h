// Ranks of a tolerant group in simulated time: workers that compute and give, over a network that delays and loses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "paraexpress/tolerant/core/party.h"
#include "transport/base/rng.h"

namespace clustar::paraexpress::tolerant {

struct Simulated {
  Terms terms{};  // but for self
  std::uint64_t seed = 1;
  std::vector<std::uint64_t> counts{1};  // elements, by bucket
  std::uint64_t rounds = 10;
  Duration least_delay = std::chrono::microseconds(50), most_delay = std::chrono::microseconds(500);
  double holes = 0;                                  // of how many contributions something is lost
  Duration compute = std::chrono::milliseconds(10);  // of a healthy rank, on average
  double spread = 0.1;                               // of its time, from step to step
  std::optional<Member> slow_uplink{};               // what it gives takes 15 ms longer
  std::map<Member, double> slow{};                   // ranks that take so many times as long
  std::vector<std::vector<Residual>> residuals{};    // by rank and bucket, of an earlier life
};

class SimulatedGroup {
 public:
  explicit SimulatedGroup(const Simulated& options);

  // Until all have done all rounds and nothing is on its way.
  void run();

  // Of all results and all that is kept, less what was given: zeros, where sums are plain.
  std::vector<double> difference(std::size_t bucket) const;
  std::vector<std::vector<Residual>> residuals() const;
  Duration took() const { return finished_ - TimePoint{}; }  // until the first rank has all results
  std::uint64_t skipped(Member rank) const { return ranks_[rank]->skipped; }
  std::uint64_t kept() const { return kept_; }
  std::uint32_t least_gradients() const { return least_gradients_; }
  // The most rounds in a row that a part closed without a rank.
  std::uint64_t most_missed() const { return most_missed_; }
  // What each round's first result was, of a bucket.
  const std::vector<std::vector<float>>& results(std::size_t bucket) const { return results_[bucket]; }

 private:
  struct Event {
    TimePoint at{};
    std::uint64_t order = 0;
    std::function<void()> what{};
    bool operator<(const Event& other) const {
      return std::pair(other.at, other.order) < std::pair(at, order);  // the first on top
    }
  };
  struct Message {
    Block block{};
    std::size_t bytes = 0;
    Ticket ticket{};
  };
  // From one rank to another.
  struct Pipe {
    TimePoint notes{}, elements[2]{};  // when the last one of its kind arrives
    std::deque<Message> arrived[2]{}, posted[2]{};
  };
  struct Rank final : Wire {
    Rank(SimulatedGroup& network, const Terms& what) : group(network), terms(what), party(what, *this) {
      buffers.resize(what.buckets);
      for (std::size_t bucket = 0; bucket < buffers.size(); ++bucket)
        buffers[bucket].resize(group.options_.counts[bucket]);
    }
    Block take(std::size_t bytes) override {
      return {new std::byte[bytes], [](const std::byte* at) { delete[] at; }};
    }
    void say(Member to, const Note& note) override { group.say(terms.self, to, note); }
    void send(Member to, Block block, std::size_t bytes, const Ticket& ticket) override {
      group.send(terms.self, to, {std::move(block), bytes, ticket});
    }
    void receive(Member from, Block block, std::size_t bytes, const Ticket& ticket) override {
      group.pipe(from, terms.self)
          .posted[static_cast<std::size_t>(ticket.kind)]
          .push_back({std::move(block), bytes, ticket});
      group.match(from, terms.self, ticket.kind);
    }

    SimulatedGroup& group;
    const Terms terms;
    Party party;
    std::vector<std::vector<float>> buffers{};
    std::uint64_t round = 0, skipped = 0;
    std::size_t open = 0;
    bool looks = false;  // an event to look at it is under way
  };
  friend struct Rank;

  static void add(std::vector<double>& sum, const std::vector<float>& more) {
    for (std::size_t i = 0; i < more.size(); ++i) sum[i] += static_cast<double>(more[i]);
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
  void at(TimePoint when, std::function<void()> what) { events_.push({when, order_++, std::move(what)}); }
  Duration delay() {
    const auto range = static_cast<std::uint64_t>((options_.most_delay - options_.least_delay).count());
    return options_.least_delay + Duration(rng_.below(range + 1));
  }
  Pipe& pipe(Member from, Member to) { return pipes_[{from, to}]; }

  void say(Member from, Member to, const Note& note);
  void send(Member from, Member to, Message message);
  // Both ends learn what was lost.
  void match(Member from, Member to, NoteKind kind);
  std::vector<ElementRange> lose(const Message& message);

  void look(Member which);
  void end(Rank& rank, std::uint32_t bucket, const Outcome& outcome);
  // As the trainer does: a rank that is late takes the results, gives what it kept, and then computes again.
  void step(Member which);
  void give(Member which, bool gives);

  const Simulated options_;
  Rng rng_;
  TimePoint now_{}, finished_{};
  std::uint64_t order_ = 0, kept_ = 0;
  std::uint32_t least_gradients_ = ~std::uint32_t{0};
  std::uint64_t most_missed_ = 0;
  std::map<std::tuple<Member, std::uint32_t, Member>, std::uint64_t> missed_{};  // by root, bucket and rank
  std::priority_queue<Event> events_{};
  std::map<std::pair<Member, Member>, Pipe> pipes_{};
  std::vector<std::vector<double>> given_{};                // by bucket
  std::vector<std::vector<std::vector<float>>> results_{};  // by bucket and round
  std::vector<std::unique_ptr<Rank>> ranks_{};
};

}  // namespace clustar::paraexpress::tolerant
