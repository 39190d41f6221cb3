// Which windows of a message's state its receiver still has to tell the sender, and in which order.
#pragma once

#include <cstdint>
#include <optional>

#include "mlt/core/bitmap.h"
#include "mlt/core/wire.h"

namespace clustar::mlt {

// The packets of a message that are known to have been sent: `count` of `packets`, from `first` on, around the end.
struct SentRange {
  std::uint32_t packets = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  // Whether some packet of the window that begins with packet `base` is among them.
  bool any_in_window(std::uint32_t base) const;
};

// An end or a wish tells every window. An answer or a question tells some, as many as kPerAnswer: an answer from
// the window on that the sender named, a question from where the one before ended, of a long message without those of
// which all is here. What was not sent yet is left out, or it would fill the line; where that leaves nothing, one
// window is told, for somebody waits for a word.
// What begins to be due says true: the caller has to queue it, once.
class Telling {
 public:
  static constexpr std::uint32_t kPerAnswer = 8;  // windows: all of most messages

  bool due() const { return due_; }
  bool tells_all() const { return all_; }
  std::uint32_t base() const { return base_; }  // first packet of the window that is next

  bool all(std::uint32_t packets);
  bool answer(std::uint32_t window, std::uint32_t packets);
  // `growing`: the message is not over.
  bool some(bool growing, const PacketBitmap& got, const SentRange& sent);
  // The window at base() was told. False: it was the last.
  bool told(bool growing, const PacketBitmap& got, const SentRange& sent);
  void stop() { due_ = all_ = false; }

 private:
  void begin(std::uint32_t at) { base_ = from_ = at; }
  std::optional<std::uint32_t> next(std::uint32_t at, bool growing, const PacketBitmap& got,
                                    const SentRange& sent) const;

  bool due_ = false;
  bool all_ = false;    // every window
  bool skips_ = false;  // not those of which all is here
  std::uint32_t base_ = 0;
  std::uint32_t from_ = 0;  // base() of the first: there it ends
  std::uint32_t left_ = 0;  // windows
};

}  // namespace clustar::mlt
