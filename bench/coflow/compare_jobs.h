// compare() of jobs: AICB's and Muri's.
#pragma once

#include "bench/coflow/compare.h"

namespace clustar::bench::coflow {

// FILE[:key=value,...], as a user writes it; the text is not read. A path may have colons: keys are what follows the
// last one that has an '=' behind it, and no '/'.
JobSource split_job(const std::string& argument);

bool has_jobs(const Source& source);

// Nothing is gathered: a job whose coflow has ended goes on at once, whatever the policy. Errors: as compare().
Result<Comparison> compare_jobs(const Source& source, const CompareOptions& options,
                                const std::vector<clustar::coflow::Policy>& policies, const Say& say);

}  // namespace clustar::bench::coflow
