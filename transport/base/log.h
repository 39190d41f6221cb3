// Where a layer's messages go. The sink belongs to the owner of the process: in the plugin, NCCL's logger.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace clustar {

enum class LogLevel : std::uint8_t { kWarn, kInfo };

// The sink may be called from every thread that is inside a call of ours, several at a time.
class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;

  Log() = default;
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void warn(const std::string& message) const { write(LogLevel::kWarn, message); }
  void info(const std::string& message) const { write(LogLevel::kInfo, message); }

 private:
  void write(LogLevel level, const std::string& message) const {
    if (sink_) sink_(level, message);
  }

  Sink sink_;
};

}  // namespace clustar
