#pragma once

#include "tests/nccl_host/scenarios/context.h"

namespace nccl_host {

// A rank's part in the scenarios that end well. What is wrong ends the process, or is counted in Shared::wrong.
void Split(Context& context);
void Communicators(Context& context);
void Groups(Context& context);
void NonBlocking(Context& context);
void Scalable(Context& context);
// Rank 0 prints memory, descriptors and threads of the worst rank.
void Many(Context& context);

}  // namespace nccl_host
