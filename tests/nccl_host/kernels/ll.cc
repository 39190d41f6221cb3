#include "tests/nccl_host/kernels/ll.h"

#include <algorithm>
#include <cstring>

#include "tests/nccl_host/kernels/simple.h"

namespace nccl_host {
namespace {

constexpr size_t kLine = 16;
constexpr size_t kData = 8;
// At these steps the sender flags every line of the slot, so that no flag from 2^31 steps ago can look new.
constexpr uint64_t kCleaning = 0x7ffffff8;

uint32_t Flag(uint64_t step) { return static_cast<uint32_t>(step + 1); }
bool Cleans(uint64_t step) { return (step & kCleaning) == kCleaning; }
size_t Lines(size_t bytes) { return (bytes + kData - 1) / kData; }
uint64_t* Line(const Connection& connection, size_t index) {
  return reinterpret_cast<uint64_t*>(connection.buffer + connection.step % kSlots * connection.slot_size +
                                     index * kLine);
}
uint64_t Word(uint32_t data, uint32_t flag) { return uint64_t{flag} << 32 | data; }

}  // namespace

LowLatency::LowLatency(const Reduction& reduction, Connection* receive, Connection* send, Poll poll)
    : reduction_(reduction), receive_(receive), send_(send), poll_(poll) {}

void LowLatency::Do(const Step& step) {
  const size_t bytes = step.count * reduction_.size();
  const char* result = static_cast<const char*>(step.input);
  if (step.send) poll_.Until([&] { return Acquire(*send_->head) + kSlots >= send_->step + 1; });
  if (step.input && reduction_.has_before()) {
    result_.resize(bytes);
    reduction_.Before(result_.data(), step.input, step.count);
    result = result_.data();
  }
  if (step.receive) {
    ReceiveInto(bytes);
    if (step.input) reduction_.Combine(arrived_.data(), arrived_.data(), result, step.count);
    if (step.finish) reduction_.After(arrived_.data(), step.count);
    result = arrived_.data();
  }
  if (step.output && bytes > 0 && step.output != result) std::memmove(step.output, result, bytes);
  if (step.send) Send(result, bytes);
}

void LowLatency::ReceiveInto(size_t bytes) {
  arrived_.resize(Lines(bytes) * kData);
  const uint32_t flag = Flag(receive_->step);
  for (size_t i = 0; i < Lines(bytes); ++i) {
    for (int half = 0; half < 2; ++half) {
      uint64_t word = 0;
      poll_.Until([&] { return (word = Acquire(Line(*receive_, i)[half])) >> 32 == flag; });
      const auto data = static_cast<uint32_t>(word);
      std::memcpy(arrived_.data() + i * kData + half * sizeof(data), &data, sizeof(data));
    }
  }
  Release(*receive_->head, ++receive_->step);
}

void LowLatency::Send(const char* data, size_t bytes) {
  const size_t all = send_->slot_size / kLine;
  const size_t lines = Cleans(send_->step) ? all : Lines(bytes);
  if (send_->fifo) {
    auto& entry = static_cast<FifoEntry*>(send_->fifo)[send_->step % kSlots];
    Release(entry.size, static_cast<int64_t>(lines * kLine));
  }
  if (send_->sizes) send_->sizes->push_back(static_cast<int64_t>(lines * kLine));
  const uint32_t flag = Flag(send_->step);
  for (size_t i = 0; i < lines; ++i) {
    uint32_t halves[2] = {};
    if (i * kData < bytes) std::memcpy(halves, data + i * kData, std::min(kData, bytes - i * kData));
    Release(Line(*send_, i)[0], Word(halves[0], flag));
    Release(Line(*send_, i)[1], Word(halves[1], flag));
  }
  ++send_->step;
}

}  // namespace nccl_host
