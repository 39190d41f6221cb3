// MLT over the same driver: messages of one channel, both ends on the thread that calls.
//
// Thread rule: one thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/dpdk/sample.h"
#include "bench/dpdk/wire.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/base/system_clock.h"

namespace clustar::bench::dpdk {

class MltLoop {
 public:
  // Errors: a device cannot be opened; the ends do not connect.
  static Result<std::unique_ptr<MltLoop>> open(const PortPair& ports);

  // Whole messages. Error: one failed, or nothing passes.
  Result<Sample> run(std::chrono::nanoseconds time);

 private:
  static constexpr std::size_t kMessage = 1 << 20;
  static constexpr std::size_t kOutstanding = 8;  // as NCCL has them per connection

  MltLoop() = default;
  Result<void> start(const PortPair& ports);
  Result<std::unique_ptr<transport::Transport>> make_transport(const std::string& device);
  Result<void> connect();
  // Posts what may be posted, and looks at the oldest of each end.
  Result<void> step();

  struct End {
    std::vector<std::byte> bytes;
    std::unique_ptr<transport::Mr> memory;
    std::array<transport::Request*, kOutstanding> requests{};
    std::uint64_t posted = 0;
    std::uint64_t done = 0;

    std::size_t offset() const { return posted % (bytes.size() / kMessage) * kMessage; }
    transport::Request*& newest() { return requests[posted % kOutstanding]; }
    transport::Request* oldest() const { return requests[done % kOutstanding]; }
    bool has_room() const { return posted - done < kOutstanding; }
  };
  static Result<void> look(End& end);

  SystemClock clock_;
  std::unique_ptr<transport::Transport> from_;
  std::unique_ptr<transport::Transport> to_;
  std::unique_ptr<transport::SendChannel> send_;
  std::unique_ptr<transport::RecvChannel> recv_;
  End sends_;
  End receives_;
  std::uint16_t to_port_ = 0;
};

}  // namespace clustar::bench::dpdk
