#include "bench/proxy/log_capture.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <utility>

namespace clustar::bench::proxy {
namespace {

struct Slot {
  std::mutex mutex;
  LogCapture* owner = nullptr;
};

// Never destroyed: a plugin's thread may log while the process exits.
std::array<Slot, LogCapture::kSlots>& slots() {
  static auto* instance = new std::array<Slot, LogCapture::kSlots>;
  return *instance;
}

void drop_line(int, unsigned long, const char*, int, const char*, ...) {}

template <std::size_t I>
void log_to_slot(int level, unsigned long flags, const char* /*file*/, int /*line*/, const char* format, ...) {
  if (format == nullptr) return;
  char text[LogCapture::kMaxLineBytes];
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (written < 0) return;
  Slot& slot = slots()[I];
  const std::lock_guard lock(slot.mutex);
  if (slot.owner != nullptr) slot.owner->add(level, flags, text);
}

template <std::size_t... I>
constexpr std::array<nccl_abi::DebugLogger, sizeof...(I)> make_loggers(std::index_sequence<I...>) {
  return {&log_to_slot<I>...};
}
constexpr auto kLoggers = make_loggers(std::make_index_sequence<LogCapture::kSlots>());

}  // namespace

LogCapture::LogCapture() : logger_(&drop_line) {
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots()[static_cast<std::size_t>(i)];
    const std::lock_guard lock(slot.mutex);
    if (slot.owner != nullptr) continue;
    slot.owner = this;
    slot_ = i;
    logger_ = kLoggers[static_cast<std::size_t>(i)];
    return;
  }
}

LogCapture::~LogCapture() {
  if (slot_ < 0) return;
  Slot& slot = slots()[static_cast<std::size_t>(slot_)];
  const std::lock_guard lock(slot.mutex);
  slot.owner = nullptr;
}

void LogCapture::add(int level, unsigned long flags, std::string text) {
  const std::lock_guard lock(mutex_);
  if (level == nccl_abi::kLogWarn) last_warning_ = text;
  if (lines_.size() == kMaxLines) lines_.pop_front();
  lines_.push_back(LogLine{level, flags, std::move(text)});
}

std::vector<LogLine> LogCapture::take() {
  const std::lock_guard lock(mutex_);
  std::vector<LogLine> out(std::make_move_iterator(lines_.begin()), std::make_move_iterator(lines_.end()));
  lines_.clear();
  return out;
}

std::string LogCapture::last_warning() const {
  const std::lock_guard lock(mutex_);
  return last_warning_;
}

}  // namespace clustar::bench::proxy
