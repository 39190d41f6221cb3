#pragma once

#include "tests/nccl_host/scenarios/context.h"

namespace nccl_host {

// A rank's part: traffic until Shared says that it is over, or an error comes; then it aborts and reports.
void Endless(Context& context);

// The parent's part: trials, each with ranks of its own. True: all went as it should.
bool Trials(const ScenarioOptions& options, char** argv);

}  // namespace nccl_host
