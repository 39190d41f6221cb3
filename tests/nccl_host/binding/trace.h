#pragma once

#include <cstdint>
#include <vector>

namespace nccl_host {

// NCCL_HOST_TRACE names a file, in which %p is the process: is it set?
bool Traces();
// What a kernel sent of one collective on one channel, as a line: NCCL's numbers of function and protocol, the channel,
// and the bytes of each step. The plugin's word of its sends is compared with it. Any thread.
void Trace(int collective, int protocol, int channel, const std::vector<int64_t>& sizes);

}  // namespace nccl_host
