#include "libfabric_shim/rdm/clear_batch.h"

#include <algorithm>

namespace clustar::transport::ofi {

void ClearBatch::add(std::span<const ClearToSend> clears, std::uint32_t small_run, std::size_t ahead, TimePoint now) {
  if (out_.empty()) {
    due_ = TimePoint::max();
    held_ = 0;
    held_bytes_ = 0;
  }
  bool maybe_long = false;
  for (const ClearToSend& clear : clears) {
    const std::size_t at = out_.size();
    out_.resize(at + ClearToSend::kSize);
    clear.serialize_to(std::span(out_).subspan(at).first<ClearToSend::kSize>());
    held_bytes_ += std::min<std::uint64_t>(clear.length, sender_.eager_bytes);
    maybe_long = maybe_long || clear.length > sender_.eager_bytes;
  }
  held_ += clears.size();
  const bool supplied = ahead >= kSupply + held_;
  const bool at_once = !supplied && (sender_.eager_bytes == 0 || (maybe_long && small_run < kSmallRun));
  // Of the sender's window, this much it may believe to be in use although it is not.
  const bool room = out_.size() < kMost * ClearToSend::kSize && held_bytes_ < sender_.window_bytes / 4;
  due_ = at_once || !room ? TimePoint::min() : std::min(due_, now + (maybe_long ? kMaybeLong : kSmall));
}

void ClearBatch::add(const Note& note) {
  const std::size_t at = out_.size();
  out_.resize(at + Note::kSize);
  note.serialize_to(std::span(out_).subspan(at).first<Note::kSize>());
  due_ = TimePoint::min();
}

net::IoResult ClearBatch::flush(const net::Socket& socket, TimePoint now) {
  if (out_.empty() || (due_ != TimePoint::min() && now < due_)) return {net::IoResult::Kind::kWouldBlock};
  const net::IoResult sent = net::write_some(socket.fd(), std::span<const std::byte>(out_));
  if (sent.kind == net::IoResult::Kind::kBytes) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(sent.bytes));
  }
  return sent;
}

}  // namespace clustar::transport::ofi
