#include "bench/udp/scatter.h"

#include <algorithm>
#include <cstring>

namespace clustar::bench::udp {

ScatterPlan::ScatterPlan(const Shape& shape)
    : shape_(shape),
      headers_(kMostSegments * kHeaderBytes),
      rest_(65536),
      scratch_(65536),
      pieces_(2 * kMostSegments + 1) {}

std::size_t ScatterPlan::predict(Assembly& into, std::uint64_t first, std::size_t most) {
  first_ = first;
  most = std::min(most, shape_.burst());
  for (predicted_ = 0; predicted_ < most && into.missing(first + predicted_); ++predicted_) {
    pieces_[2 * predicted_] = {headers_.data() + predicted_ * kHeaderBytes, kHeaderBytes};
    pieces_[2 * predicted_ + 1] = {into.place(first + predicted_), shape_.payload_bytes};
  }
  pieces_[2 * predicted_] = {rest_.data(), rest_.size()};
  return predicted_;
}

void ScatterPlan::fill(msghdr& header) {
  header.msg_iov = pieces_.data();
  header.msg_iovlen = 2 * predicted_ + 1;
}

void ScatterPlan::land(std::size_t length, std::size_t segment_bytes, ScatterCounts& counts) {
  length_ = length;
  segment_bytes_ = std::max<std::size_t>(segment_bytes, 1);
  here_ = right_ = 0;
  if (segment_bytes_ != shape_.datagram_bytes()) {  // the cuts are elsewhere
    counts.copied += length_ / segment_bytes_;
    return gather();
  }
  const std::size_t datagrams = length_ / segment_bytes_;
  here_ = std::min(datagrams, predicted_);
  while (right_ < here_ && segment_of(&headers_[right_ * kHeaderBytes]) == first_ + right_) ++right_;
  counts.placed += right_;
  counts.moved += here_ - right_;
  counts.copied += datagrams - here_;
  for (std::size_t i = right_; i < here_; ++i) {
    std::memcpy(&scratch_[i * shape_.payload_bytes], pieces_[2 * i + 1].iov_base, shape_.payload_bytes);
  }
}

void ScatterPlan::settle(Assembly& into) {
  if (segment_bytes_ != shape_.datagram_bytes()) {
    return into.take(std::span(scratch_).first(length_), segment_bytes_, Copy::kUsual);
  }
  for (std::size_t i = 0; i < here_; ++i) {
    const std::uint64_t segment = segment_of(&headers_[i * kHeaderBytes]);
    if (segment >= shape_.segments) {
      into.count_malformed();
      continue;
    }
    if (i >= right_) std::memcpy(into.place(segment), &scratch_[i * shape_.payload_bytes], shape_.payload_bytes);
    into.mark(segment);
  }
  const std::size_t used = here_ * segment_bytes_;
  if (here_ == predicted_ && length_ > used) {
    into.take(std::span(rest_).first(length_ - used), segment_bytes_, Copy::kUsual);
  }
}

void ScatterPlan::gather() {
  std::size_t at = 0;
  for (std::size_t i = 0; i < 2 * predicted_ + 1 && at < length_; ++i) {
    const std::size_t part = std::min(pieces_[i].iov_len, length_ - at);
    std::memcpy(&scratch_[at], pieces_[i].iov_base, part);
    at += part;
  }
}

}  // namespace clustar::bench::udp
