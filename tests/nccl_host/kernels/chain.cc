#include "tests/nccl_host/kernels/chain.h"

#include <algorithm>

namespace nccl_host {
namespace {

// Calls visit(byte offset, count) for each loop; all channels make the same number of steps, some without elements.
template <class Visit>
void EachLoop(const ChainPart& part, const Buffers& buffers, Visit visit) {
  for (size_t loop = 0; loop < part.total; loop += part.channels * part.chunk) {
    const size_t begin = std::min(loop + part.index * part.chunk, part.total);
    visit(begin * buffers.element, std::min(part.chunk, part.total - begin));
  }
}

}  // namespace

void ChainUp(const ChainPart& part, const Buffers& buffers, bool receives, Primitive& primitive) {
  EachLoop(part, buffers, [&](size_t at, size_t count) {
    primitive.Do({receives, true, buffers.input + at, nullptr, count, false});
  });
}

void ChainDown(const ChainPart& part, const Buffers& buffers, bool sends, bool top, Primitive& primitive) {
  EachLoop(part, buffers, [&](size_t at, size_t count) {
    primitive.Do({true, sends, nullptr, buffers.output + at, count, top});
  });
}

}  // namespace nccl_host
