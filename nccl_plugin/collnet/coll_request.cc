#include "nccl_plugin/collnet/coll_request.h"

#include <algorithm>
#include <cstring>

namespace clustar::nccl_plugin {
namespace {

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

}  // namespace

void CollRequest::Move::run() {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
  bytes = 0;
}

// GPU memory goes by its own twin, and by no other's copies: when it is deregistered, that one alone must be at rest.
void CollRequest::brings(const CollRange& send, std::size_t bytes, const WorkPlace& to) {
  if (bytes == 0) return;
  reads_ = {send.data, bytes};
  HostTwin* const twin = send.twin();
  if (twin == nullptr) {
    in_host_ = {to.data, send.data, bytes};
    return;
  }
  std::byte* const landing = to.twin == twin ? to.data : twin->at(send.data);
  in_.emplace(*twin, TwinCopy::Direction::kToHost, send.data, landing, bytes);
  if (landing == to.data) return;
  in_host_ = {to.data, landing, bytes};
  scratch_ = {landing, bytes};
}

void CollRequest::takes(const WorkPlace& from, const CollRange& recv, std::size_t bytes) {
  if (bytes == 0) return;
  writes_ = {recv.data, bytes};
  HostTwin* const twin = recv.twin();
  if (twin == nullptr) {
    out_host_ = {recv.data, from.data, bytes};
    return;
  }
  std::byte* const leaving = from.twin == twin ? from.data : twin->at(recv.data);
  out_host_ = {leaving, from.data, bytes};
  out_.emplace(*twin, TwinCopy::Direction::kToDevice, recv.data, leaving, bytes);
}

Result<bool> CollRequest::arrives() { return in_ ? in_->advance() : Result<bool>(true); }

void CollRequest::start() {
  in_host_.run();
  start_(operations_);
  started_ = true;
}

Result<bool> CollRequest::sums() {
  while (!operations_.empty()) {
    if (!operations_.back()->done()) return false;
    if (const auto ended = operations_.back()->wait(); !ended) return tl::unexpected(ended.error());
    operations_.pop_back();
  }
  return true;
}

Result<bool> CollRequest::leaves() {
  out_host_.run();
  return out_ ? out_->advance() : Result<bool>(true);
}

bool CollRequest::uses(const gdr::MemoryRef& memory) const {
  const std::span<const std::byte> all{memory.address, memory.length};
  return overlap(reads_, all) || overlap(writes_, all);
}

bool CollRequest::works_beside(const CollRequest& other) const { return !overlap(scratch_, other.scratch_); }

bool CollRequest::stands_still() {
  std::optional<TwinCopy>& copy = started_ ? out_ : in_;
  return copy && copy->stands_still();
}

}  // namespace clustar::nccl_plugin
