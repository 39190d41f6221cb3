#include "mlt/driver/send_copies.h"

#include <utility>

namespace clustar::mlt::driver {

bool SendCopies::reserve(Region& region, std::size_t bytes) {
  if (region.memory != nullptr || region.refused) return !region.refused;
  region.bytes = std::make_unique_for_overwrite<std::byte[]>(bytes);
  auto memory = engine_.reg_mr(gdr::MemoryRef::host(region.bytes.get(), bytes));
  if (!memory) {
    region.bytes.reset();
    region.refused = true;
    return false;
  }
  region.memory = std::move(*memory);
  return true;
}

std::optional<SendCopies::Copy> SendCopies::take(std::size_t length) {
  auto copy = is_short(length) ? take_short() : take_long(length);
  if (copy) ++taken_;
  return copy;
}

std::optional<SendCopies::Copy> SendCopies::take_short() {
  if (short_.memory == nullptr) {
    if (!reserve(short_, kBufferedBytes * kBufferedSends)) return std::nullopt;
    for (std::uint32_t i = kBufferedSends; i-- > 0;) free_short_.push_back(i);
  }
  if (free_short_.empty()) return std::nullopt;
  const std::uint32_t place = free_short_.back();
  free_short_.pop_back();
  const std::size_t offset = place * kBufferedBytes;
  return Copy{short_.bytes.get() + offset, short_.memory.get(), offset, place, false};
}

std::optional<SendCopies::Copy> SendCopies::take_long(std::size_t length) {
  if (!is_long(length) || !reserve(long_, kFarBuffer)) return std::nullopt;
  const std::size_t at = end_ % kFarBuffer;
  const std::size_t skipped = at + length > kFarBuffer ? kFarBuffer - at : 0;
  if (end_ - begin_ + skipped + length > kFarBuffer) return std::nullopt;
  end_ += skipped + length;
  const std::size_t offset = (end_ - length) % kFarBuffer;
  blocks_.push_back({end_, false});
  return Copy{long_.bytes.get() + offset, long_.memory.get(), offset, first_block_ + blocks_.size() - 1, true};
}

void SendCopies::give_back(const Copy& copy) {
  --taken_;
  if (!copy.is_long) {
    free_short_.push_back(static_cast<std::uint32_t>(copy.place));
    return;
  }
  blocks_[static_cast<std::size_t>(copy.place - first_block_)].free = true;
  for (; !blocks_.empty() && blocks_.front().free; ++first_block_) {
    begin_ = blocks_.front().end;
    blocks_.pop_front();
  }
}

}  // namespace clustar::mlt::driver
