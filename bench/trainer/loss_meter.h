// What the plugin lost of a rank's gradients, as its public C API tells (nccl_plugin/clustar.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "nccl_plugin/clustar.h"

namespace clustar::bench::trainer {

// Plain data: it travels over the bootstrap as it is.
struct LossCounts {
  static constexpr std::size_t kReasons = 32;
  struct Reason {
    char name[32] = "";  // empty: none
    std::uint64_t messages = 0;
  };
  bool known = false;  // false: the plugin does not tell, and nothing below means anything
  std::uint64_t delivered_bytes = 0;
  std::uint64_t missing_bytes = 0;
  std::uint64_t eligible_bytes = 0;
  std::uint64_t sent_messages = 0;
  std::uint64_t identified_messages = 0;
  std::uint64_t tolerant_messages = 0;
  // Of these the ones that were sent from memory whose important parts the trainer had marked; 0 where it marks
  // nothing.
  std::uint64_t marked_messages = 0;
  std::uint64_t marked_bytes = 0;
  std::uint64_t important_bytes = 0;  // of marked_bytes
  // Of the collectives that the plugin still remembers: the most that one lost here, contributions for each byte of its
  // input. The loss contract's ledger bounds it by p (p * S * n / E of S, where each rank is a node). Of sends, all
  // that make one exchange together: for each byte of the n blocks that are added up here (p * S * n of S * n).
  double worst_charge = 0;
  std::array<Reason, kReasons> reasons{};  // why messages that were sent are reliable
};

class LossMeter {
 public:
  // Null: the plugin has no such API. They outlive the meter. Counts from now on: a process may have run before.
  explicit LossMeter(const clustarApi_v1_t* api, const clustarApi_v2_t* marks = nullptr);
  LossCounts read() const;

 private:
  LossCounts total() const;
  std::vector<clustarCollective_v1> collectives() const;

  const clustarApi_v1_t* api_;
  const clustarApi_v2_t* marks_;
  LossCounts before_;
  std::set<std::uint64_t> earlier_;  // communicators of earlier runs in this process
};

}  // namespace clustar::bench::trainer
