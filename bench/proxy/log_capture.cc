#include "bench/proxy/log_capture.h"

#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>
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

// The level up to which NCCL prints; of information it prints what is marked as of the start, unless NCCL_DEBUG_SUBSYS
// asks for more, which is not heeded here.
int level_of_nccl_debug() {
  const char* const value = std::getenv("NCCL_DEBUG");
  if (value == nullptr) return nccl_abi::kLogNone;
  if (strcasecmp(value, "WARN") == 0) return nccl_abi::kLogWarn;
  const bool informs = strcasecmp(value, "INFO") == 0 || strcasecmp(value, "TRACE") == 0;
  return informs ? nccl_abi::kLogInfo : nccl_abi::kLogNone;
}

void print(int level, unsigned long flags, const char* text) {
  static const int shown = level_of_nccl_debug();
  if (level > shown || (level == nccl_abi::kLogInfo && (flags & nccl_abi::kLogInit) == 0)) return;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::fprintf(stderr, "%s:%d:%ld NCCL %s %s\n", host.data(), getpid(), syscall(SYS_gettid),
               level == nccl_abi::kLogWarn ? "WARN" : "INFO", text);
}

std::string transport_named_in(const std::string& text) {
  constexpr std::string_view kBefore = ": transport ";
  const std::size_t at = text.find(kBefore);
  if (at == std::string::npos) return {};
  const std::size_t from = at + kBefore.size();
  const std::size_t comma = text.find(',', from);
  return comma == std::string::npos ? std::string() : text.substr(from, comma - from);
}

template <std::size_t I>
void log_to_slot(int level, unsigned long flags, const char* /*file*/, int /*line*/, const char* format, ...) {
  if (format == nullptr) return;
  char text[LogCapture::kMaxLineBytes];
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (written < 0) return;
  print(level, flags, text);
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
  if (level == nccl_abi::kLogInfo && transport_.empty()) transport_ = transport_named_in(text);
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

std::string LogCapture::transport() const {
  const std::lock_guard lock(mutex_);
  return transport_;
}

}  // namespace clustar::bench::proxy
