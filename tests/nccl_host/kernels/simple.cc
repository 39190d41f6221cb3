#include "tests/nccl_host/kernels/simple.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace nccl_host {
namespace {

constexpr size_t kGrain = 16;

FifoEntry& Entry(const Connection& connection, uint64_t step) {
  return static_cast<FifoEntry*>(connection.fifo)[step % kSlots];
}

}  // namespace

Simple::Simple(SimpleShape shape, const Reduction& reduction, Connection* receive, Connection* send, Poll poll)
    : shape_(shape), reduction_(reduction), receive_(receive), send_(send), poll_(poll) {
  // Both sides begin at a multiple of what one step takes, whatever ran on the connection before.
  const auto taken = static_cast<uint64_t>(shape.slices * shape.steps_per_slice);
  for (Connection* connection : {receive, send}) {
    if (connection) connection->step = (connection->step + taken - 1) / taken * taken;
  }
  if (receive) Release(*receive->head, receive->step);
}

Simple::~Simple() = default;

void Simple::Do(const Step& step) {
  const size_t whole = shape_.step_elements * shape_.steps_per_slice;
  const size_t per_slice = kGrain * shape_.slices;
  const size_t even = (step.count + per_slice - 1) / per_slice * kGrain;
  const size_t size = std::max(even, whole / 32);
  size_t offset = 0;
  for (int i = 0; i < shape_.slices; ++i) {
    Step slice = step;
    slice.count = std::min(size, step.count - offset);
    if (step.input) slice.input = static_cast<const char*>(step.input) + offset * reduction_.size();
    if (step.output) slice.output = static_cast<char*>(step.output) + offset * reduction_.size();
    Slice(slice);
    offset += slice.count;
  }
}

void Simple::Slice(const Step& slice) {
  const auto steps = static_cast<uint64_t>(shape_.steps_per_slice);
  const size_t bytes = slice.count * reduction_.size();
  const char* arrived = nullptr;
  char* leaving = nullptr;
  if (slice.receive) {
    poll_.Until([&] { return Acquire(*receive_->tail) >= receive_->step + steps; });
    arrived = Slot(*receive_, receive_->step);
  }
  if (slice.send) {
    poll_.Until([&] { return Acquire(*send_->head) + kSlots >= send_->step + steps; });
    if (send_->fifo) Release(Entry(*send_, send_->step).size, static_cast<int64_t>(bytes));
    if (send_->sizes) send_->sizes->push_back(static_cast<int64_t>(bytes));
    leaving = Slot(*send_, send_->step);
  }
  if (bytes > 0) {
    std::vector<char> scratch;
    const void* own = slice.input;
    if (own && reduction_.has_before()) {
      scratch.resize(bytes);
      reduction_.Before(scratch.data(), own, slice.count);
      own = scratch.data();
    }
    void* const target = slice.output ? slice.output : leaving;
    if (arrived && own) {
      reduction_.Combine(target, arrived, own, slice.count);
    } else {
      const void* const source = arrived ? arrived : own;
      if (source != target) std::memmove(target, source, bytes);
    }
    if (slice.finish) reduction_.After(target, slice.count);
    if (leaving && leaving != target) std::memcpy(leaving, target, bytes);
  }
  if (slice.receive) Release(*receive_->head, receive_->step += steps);
  if (slice.send) Release(*send_->tail, send_->step += steps);
}

char* Simple::Slot(const Connection& connection, uint64_t step) const {
  if (connection.fifo) {
    FifoEntry& entry = Entry(connection, step);
    if (Acquire(entry.mode) == kFifoOffsets) return connection.buffer + Acquire(entry.offset);
  }
  return connection.buffer + step % kSlots * connection.slot_size;
}

}  // namespace nccl_host
