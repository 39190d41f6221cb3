#include "mlt/core/receive/telling.h"

#include <algorithm>
#include <utility>

namespace clustar::mlt {
namespace {

std::uint32_t windows_of(std::uint32_t packets) { return (packets + State::kWindow - 1) / State::kWindow; }

}  // namespace

bool SentRange::any_in_window(std::uint32_t base) const {
  const std::uint32_t order = base >= first ? base - first : base + packets - first;
  return order < count || (count > 0 && first > base && first - base < State::kWindow);
}

bool Telling::all(std::uint32_t packets) {
  begin(0);
  all_ = true;
  skips_ = false;
  left_ = windows_of(packets);
  return !std::exchange(due_, true);
}

bool Telling::answer(std::uint32_t window, std::uint32_t packets) {
  if (all_) return false;
  begin(window * State::kWindow);
  skips_ = false;  // what is all here the sender may not know
  left_ = std::min(windows_of(packets), kPerAnswer);
  return !std::exchange(due_, true);
}

bool Telling::some(bool growing, const PacketBitmap& got, const SentRange& sent) {
  if (std::exchange(due_, true)) return false;
  skips_ = windows_of(sent.packets) > kPerAnswer && growing;
  begin(next(base_, growing, got, sent).value_or(base_ < sent.packets ? base_ : 0));
  left_ = std::min(windows_of(sent.packets), kPerAnswer);
  return true;
}

bool Telling::told(bool growing, const PacketBitmap& got, const SentRange& sent) {
  const auto then = next(base_ + State::kWindow, growing, got, sent);
  if (--left_ > 0 && then && *then != from_) {
    base_ = *then;
    return true;
  }
  base_ += State::kWindow;
  stop();
  return false;
}

// The first window at or behind packet `at`, around the end, that tells the sender something.
std::optional<std::uint32_t> Telling::next(std::uint32_t at, bool growing, const PacketBitmap& got,
                                           const SentRange& sent) const {
  const auto wrapped = [&](std::uint32_t base) { return base < sent.packets ? base : 0; };
  const auto whole = [&](std::uint32_t base) {
    const std::uint32_t end = std::min<std::uint32_t>(base + State::kWindow, sent.packets);
    return got.count(base, end) == end - base;
  };
  at = wrapped(at);
  std::uint32_t base = at;
  do {
    const bool unsent = growing && !all_ && !sent.any_in_window(base);
    if (!unsent && !(skips_ && whole(base))) return base;
    base = wrapped(base + State::kWindow);
  } while (base != at);
  return std::nullopt;
}

}  // namespace clustar::mlt
