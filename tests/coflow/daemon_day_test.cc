// A day of a daemon: coflows come and go for long, a few dozen present at once. Nothing may grow.
// CLUSTAR_COFLOW_DAY=1000000 sets their number.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "coflow/registry.h"
#include "tests/sanitized.h"
#include "transport/base/rng.h"

namespace clustar::coflow {
namespace {

class Day {
 public:
  static constexpr std::size_t kPorts = 32;
  static constexpr double kPortRate = 1e9;

  explicit Day(const Policy& policy) : table_(kPorts, kPortRate), scheduler_(policy.make(table_)), rng_(7) {}

  // Until so many more coflows have come. Seconds that decisions took.
  std::vector<double> run(std::size_t coflows) {
    std::vector<double> decisions;
    for (std::size_t come = 0; come < coflows;) {
      if (present_ == 0 || next_arrival_ <= next_end()) {
        pass(next_arrival_);
        arrive();
        ++come;
      } else {
        pass(next_end());
      }
      allocate(decisions);
    }
    return decisions;
  }
  const Table& table() const { return table_; }

 private:
  void arrive() {
    CoflowSpec spec;
    spec.job = 1 + ++arrivals_ / 4 + rng_.below(8);  // jobs come and go, too
    const std::uint64_t flows = 1 + rng_.below(10);
    for (std::uint64_t i = 0; i < flows; ++i) {
      spec.flows.push_back({static_cast<PortId>(rng_.below(kPorts)), static_cast<PortId>(rng_.below(kPorts)),
                            std::pow(10.0, 5 + 3 * rng_.uniform())});
    }
    const CoflowId id = table_.add(spec, now_).value();
    scheduler_->arrived(id, now_);
    ++present_;
    live_.insert(live_.end(), table_.coflow(id).flows.begin(), table_.coflow(id).flows.end());
    rates_.resize(table_.flows(), 0);
    // Ports are loaded by about two thirds.
    next_arrival_ = now_ + Duration(static_cast<Duration::rep>(-std::log(1 - rng_.uniform()) * 7.5e6));
  }
  double rate(FlowId flow) const { return shares_ != nullptr ? shares_->of(table_.flow(flow)) : rates_[flow]; }
  TimePoint next_end() const {
    double first = 1e15;
    for (const FlowId flow : live_) {
      if (rate(flow) > 0) first = std::min(first, table_.flow(flow).left / rate(flow) * 1e9);
    }
    return now_ + Duration(static_cast<Duration::rep>(std::ceil(first)));
  }
  void pass(TimePoint to) {
    const double seconds = std::chrono::duration<double>(to - now_).count();
    now_ = to;
    std::erase_if(live_, [&](FlowId flow) {
      table_.moved(flow, std::min(rate(flow) * seconds, table_.flow(flow).left));
      if (table_.flow(flow).left > 1) return false;
      const CoflowId coflow = table_.flow(flow).coflow;
      table_.finish(flow);
      rates_[flow] = 0;
      scheduler_->flow_ended(flow, now_);
      if (table_.coflow(coflow).unfinished > 0) return true;
      scheduler_->departed(coflow, now_);
      departed_.push_back(coflow);
      --present_;
      return true;
    });
  }
  void allocate(std::vector<double>& decisions) {
    const auto begin = std::chrono::steady_clock::now();
    const Allocation allocation = scheduler_->allocate(now_);
    decisions.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    shares_ = allocation.shares;
    for (const RateChange& change : allocation.changes) rates_[change.flow] = change.rate;
    for (const CoflowId coflow : departed_) table_.retire(coflow);
    departed_.clear();
  }

  Table table_;
  const std::unique_ptr<Scheduler> scheduler_;
  Rng rng_;
  TimePoint now_{}, next_arrival_{};
  std::size_t present_ = 0;
  std::uint64_t arrivals_ = 0;
  std::vector<FlowId> live_;
  std::vector<double> rates_;
  const PortShares* shares_ = nullptr;
  std::vector<CoflowId> departed_;
};

double median_us(std::vector<double> seconds) {
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2] * 1e6;
}

class CoflowDay : public ::testing::TestWithParam<std::string> {};

TEST_P(CoflowDay, MemoryStaysFlat) {
  const char* const wanted = std::getenv("CLUSTAR_COFLOW_DAY");
  const std::size_t coflows = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 20'000;
  Day day(find_policy(GetParam()).value());
  const double first = median_us(day.run(coflows / 4));
  const std::size_t bytes = mallinfo2().uordblks, ids = day.table().flows();
  day.run(coflows / 2);
  const double last = median_us(day.run(coflows / 4));
  const std::size_t grown = mallinfo2().uordblks;
  std::printf("%s: %zu coflows; %zu coflow ids, %zu flow ids; %zu KiB, then %zu; a decision %.1f us, then %.1f\n",
              GetParam().c_str(), coflows, day.table().coflows(), day.table().flows(), bytes >> 10, grown >> 10, first,
              last);
  EXPECT_LT(day.table().coflows(), coflows / 8);
  EXPECT_LT(day.table().flows(), 3 * ids) << "as many as are present at the busiest time";
  // A sanitizer's allocator tells nothing.
  EXPECT_TRUE(tests::kSanitized || grown < 2 * bytes + (256 << 10));
}

INSTANTIATE_TEST_SUITE_P(Policies, CoflowDay,
                         ::testing::Values("sebf", "dark", "dclas", "maxmin", "bssi", "match", "turns"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace clustar::coflow
