// The classes of one NIC, between its send policy and its agent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "coflow/control/core/class_record.h"
#include "coflow/control/core/messages.h"
#include "transport/base/time.h"

namespace clustar::coflow::control {

class ClassBook final : public ClassPlaces {
 public:
  // `deadline`: of all its classes; 0: none.
  explicit ClassBook(Duration deadline = Duration(0)) : deadline_(deadline) {}

  static constexpr Duration kForgetAfter = std::chrono::seconds(1);      // without anything to send
  static constexpr Duration kForgetRepeated = std::chrono::seconds(60);  // of what comes again and again

  // Any thread, each of them:
  std::shared_ptr<ClassRecord> open(const ClassKey& key) override;
  std::vector<ClassReport> collect(TimePoint now);
  void place(bool ordered, const std::map<ClassKey, Placed>& places);
  void hold(const Placed& held);

  // A class that has no place after so many reports goes last: the coordinator hears of no more classes.
  static constexpr int kMostUnplaced = 20;

 private:
  struct Kept {
    std::shared_ptr<ClassRecord> record;
    std::uint64_t attained = 0;
    TimePoint busy_at{};
    int unplaced = 0;  // reports without a place under an order
  };

  const Duration deadline_;
  std::mutex mutex_;
  std::map<ClassKey, Kept> records_;
  std::map<ClassKey, Placed> places_;  // empty: no order counts
};

}  // namespace clustar::coflow::control
