// compare() of jobs: AICB's and Muri's.
#pragma once

#include "bench/coflow/compare.h"

namespace clustar::bench::coflow {

// Nothing is gathered: a job whose coflow has ended goes on at once, whatever the policy. Errors: as compare().
Result<Comparison> compare_jobs(const Source& source, const CompareOptions& options,
                                const std::vector<clustar::coflow::Policy>& policies, const Say& say);

}  // namespace clustar::bench::coflow
