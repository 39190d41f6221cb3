// Ways to send bursts of segments, each one behind the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/udp/shape.h"
#include "transport/base/result.h"

namespace clustar::bench::udp {

struct Burst {
  std::uint64_t first = 0;
  std::size_t segments = 0;
};

class Sender {
 public:
  static constexpr std::size_t kMostBursts = 8;

  virtual ~Sender() = default;
  // At most kMostBursts; they have been handed to the kernel when it returns.
  virtual Result<void> send(std::span<const Burst> bursts) = 0;
  virtual std::uint64_t calls() const = 0;
  // Of one burst. Fewer where the kernel refuses more.
  virtual std::size_t burst() const = 0;
  // Parts of "zero copy" messages that the kernel copied after all.
  virtual std::uint64_t copied() const { return 0; }
};

// Belongs to the thread that makes it. `fd` is a blocking, connected UDP socket; `source` has twice kColdBytes.
Result<std::unique_ptr<Sender>> make_sender(const std::string& name, int fd, const Shape& shape,
                                            std::span<std::byte> source);
std::vector<std::string> sender_names();

}  // namespace clustar::bench::udp
