// How badly a job waits for its messages: the text of send_urgency.
//
// send_urgency   RULE ; RULE ; ...      the first that fits a message counts
// RULE           [comm=NAME ,] [func=NAME ,] URGENCY
//     comm       ncclConfig_t.commName, with * and ?; empty: communicators without a name
//     func       allreduce | reducescatter | allgather | broadcast | reduce | sendrecv
//     URGENCY    blocking | prefetch | gradient | background
//
// What no rule fits: sends are blocking (pipeline stages, experts), all-gathers prefetch (parameters of sharded
// models), the rest gradient.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/api/flow_tag.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// Of one communicator, by NCCL's function.
class Urgencies {
 public:
  Urgencies();
  transport::Urgency of(std::uint8_t function) const {
    return function < by_function_.size() ? by_function_[function] : unknown_;
  }
  // Of a function that is not known: what no rule of a function says, and the defaults do not.
  transport::Urgency rest() const { return unknown_; }

 private:
  friend class UrgencyRules;
  std::array<transport::Urgency, 16> by_function_;
  transport::Urgency unknown_ = transport::Urgency::kGradient;
};

class UrgencyRules {
 public:
  UrgencyRules() = default;
  // Error: names the rule, what is wrong and what is allowed.
  static Result<UrgencyRules> create(std::string_view text);

  Urgencies of(const std::string& communicator) const;

 private:
  struct Rule {
    std::string communicator;  // pattern
    bool any_communicator = true;
    int function = -1;  // ncclFunc_t; -1 = any, also one that is not known
    transport::Urgency urgency = transport::Urgency::kGradient;
  };
  std::vector<Rule> rules_;
};

}  // namespace clustar::nccl_plugin
