#include "bench/proxy/slice_kernel.h"

#include <cstring>

#include "bench/proxy/line_codec.h"
#include "bench/proxy/reduce.h"

namespace clustar::bench::proxy {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

SliceKernel::SliceKernel(Protocol protocol) : protocol_(protocol) {
  if (protocol == Protocol::kSimple) return;
  const std::size_t words = wire_shape(protocol).step_payload / sizeof(std::uint64_t);
  unpacked_.resize(words);
  outgoing_.resize(words);
}

void SliceKernel::move(const SliceAction& action, const std::byte* own, std::byte* out, const std::byte* received,
                       std::byte* sent, DataType type, ReduceOp op) {
  const std::size_t bytes = action.count * element_bytes(type);
  if (action.reduce) {
    std::byte* first = action.send ? sent : out;
    combine(first, received, own, action.count, type, op);
    if (action.send && action.copy) copy_bytes(out, first, bytes);
    return;
  }
  const std::byte* from = action.receive ? received : own;
  if (action.send) copy_bytes(sent, from, bytes);
  if (action.copy) copy_bytes(out, from, bytes);
}

bool SliceKernel::run(const SliceAction& action, const SliceMemory& memory, DataType type, ReduceOp op) {
  const std::size_t element = element_bytes(type);
  const std::byte* own = memory.input + action.in * element;
  std::byte* out = memory.output + action.out * element;
  if (protocol_ == Protocol::kSimple) {
    move(action, own, out, memory.receive_slot, memory.send_slot, type, op);
    return true;
  }
  const std::size_t bytes = action.count * element;
  if (action.receive &&
      !unpack_lines(protocol_, memory.receive_slot, bytes, memory.receive_step + 1, unpacked_.data())) {
    return false;
  }
  auto* outgoing = reinterpret_cast<std::byte*>(outgoing_.data());
  move(action, own, out, reinterpret_cast<const std::byte*>(unpacked_.data()), outgoing, type, op);
  if (action.send) pack_lines(protocol_, outgoing, bytes, memory.send_step + 1, memory.send_slot);
  return true;
}

}  // namespace clustar::bench::proxy
