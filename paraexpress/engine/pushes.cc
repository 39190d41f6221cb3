#include "paraexpress/engine/pushes.h"

#include <fmt/format.h>

#include <algorithm>

namespace clustar::paraexpress {

Result<std::shared_ptr<PlanChoice::Choice>> Pushes::admit(Collective collective, const std::byte* data,
                                                          std::uint64_t bytes, DataType type) {
  const auto overlaps = std::find_if(pushed_.begin(), pushed_.end(), [&](const Pushed& one) {
    return data < one.data + one.bytes && one.data < data + bytes;
  });
  if (collective != Collective::kPull) {
    if (overlaps != pushed_.end()) {
      return fail(ErrorCode::kInvalidUsage, "memory that was pushed and not pulled; allowed for it: a pull");
    }
    if (collective != Collective::kPush) return std::shared_ptr<PlanChoice::Choice>();
    pushed_.push_back({data, bytes, type, std::make_shared<PlanChoice::Choice>()});
    return pushed_.back().choice;
  }
  if (overlaps == pushed_.end()) {
    return fail(ErrorCode::kInvalidUsage, "a pull of memory that was not pushed; allowed: one pull after each push");
  }
  if (overlaps->data != data || overlaps->bytes != bytes || overlaps->type != type) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("a pull of {} bytes of {} where {} bytes of {} were pushed; allowed: the same memory, size "
                            "and type",
                            bytes, name_of(type), overlaps->bytes, name_of(overlaps->type)));
  }
  auto choice = overlaps->choice;
  pushed_.erase(overlaps);
  return choice;
}

}  // namespace clustar::paraexpress
