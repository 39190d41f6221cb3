// What was pushed and not pulled yet: its partial sums are with the roots of a plan, so that its pull goes by the same,
// and nothing else may use the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "paraexpress/core/collective.h"
#include "paraexpress/engine/plan_choice.h"
#include "paraexpress/sums/reduce.h"

namespace clustar::paraexpress {

class Pushes {
 public:
  // An operation on that memory starts. For a push and its pull: where the push, which runs first, leaves its choice.
  Result<std::shared_ptr<PlanChoice::Choice>> admit(Collective collective, const std::byte* data, std::uint64_t bytes,
                                                    DataType type);
  bool any() const { return !pushed_.empty(); }

 private:
  struct Pushed {
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    DataType type = DataType::kFloat32;
    std::shared_ptr<PlanChoice::Choice> choice{};
  };
  std::vector<Pushed> pushed_{};
};

}  // namespace clustar::paraexpress
