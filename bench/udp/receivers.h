// Ways to receive joined segments, each one behind the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/udp/assembly.h"
#include "bench/udp/scatter.h"
#include "transport/base/result.h"

namespace clustar::bench::udp {

class Receiver {
 public:
  virtual ~Receiver() = default;
  // Waits 20 ms at most for something, then takes some of what is there.
  virtual Result<void> poll(Assembly& into) = 0;
  virtual std::uint64_t calls() const = 0;  // system calls so far
  virtual ScatterCounts scatter() const { return {}; }
};

// Belongs to the thread that makes it. `fd` is a non-blocking UDP socket, with UDP_GRO on or not.
Result<std::unique_ptr<Receiver>> make_receiver(const std::string& name, int fd, const Shape& shape);
std::vector<std::string> receiver_names();

// Those over io_uring.
Result<std::unique_ptr<Receiver>> make_multishot(int fd, const Shape& shape);
Result<std::unique_ptr<Receiver>> make_one_shot_scatter(int fd, const Shape& shape);

// Of a message with `bytes` of control data: what UDP_GRO says, else `length`.
std::size_t segment_bytes_of(msghdr& header, std::size_t length);

}  // namespace clustar::bench::udp
