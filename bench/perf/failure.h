// Which of the failures of several workers is the cause of the others.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/perf/wire.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

// The likeliest cause first.
enum class FailureKind : std::uint8_t {
  kDied,      // the process is gone without a word
  kFinding,   // it found something wrong itself, e.g. in the data
  kCall,      // a call failed: perhaps only because the peer has just given up, and not every plugin says so
  kSilent,    // no sign of life
  kLostPeer,  // it says that it is the other side
};

struct Failure {
  FailureKind kind = FailureKind::kCall;
  Clock::time_point heard;  // when it was last heard of
  Error error;
};

// Of an error that a worker reports. In this folder kInternal is a finding and nothing else.
FailureKind kind_of(const Error& error);
// Among equals the one heard first. Null when there is none.
const Failure* cause_of(const std::vector<Failure>& failures);

}  // namespace clustar::bench::perf
