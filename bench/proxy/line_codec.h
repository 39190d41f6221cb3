// LL and LL128 on the wire: payload with flags between it, by which the receiver knows that data is there.
//   LL    16 B: | data 4 | flag 4 | data 4 | flag 4 |          flag = low 32 bits of step + 1
//   LL128 128 B: | data 120 | flag 8 |                          flag = step + 1
// Source: NCCL 2.28.9 src/include/device.h (ncclLLFifoLine), src/device/prims_ll.h, prims_ll128.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/proxy/steps.h"

namespace clustar::bench::proxy {

// Writes wire_bytes(protocol, bytes) at `wire` (8-byte aligned); the rest of the last line is zero.
void pack_lines(Protocol protocol, const void* payload, std::size_t bytes, std::uint64_t flag, void* wire);

// False, with `payload` undefined, while a flag differs. The flags are read with acquire order: a plugin that took the
// optional receive completion may still be writing.
bool unpack_lines(Protocol protocol, const void* wire, std::size_t bytes, std::uint64_t flag, void* payload);

}  // namespace clustar::bench::proxy
