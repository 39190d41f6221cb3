#include "bench/perf/failure.h"

#include <algorithm>
#include <tuple>

namespace clustar::bench::perf {

FailureKind kind_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInternal: return FailureKind::kFinding;
    case ErrorCode::kRemote: return FailureKind::kLostPeer;
    default: return FailureKind::kCall;
  }
}

const Failure* cause_of(const std::vector<Failure>& failures) {
  const auto first = std::min_element(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return std::tie(a.kind, a.heard) < std::tie(b.kind, b.heard);
  });
  return first == failures.end() ? nullptr : &*first;
}

}  // namespace clustar::bench::perf
