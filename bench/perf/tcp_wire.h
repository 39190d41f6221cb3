// A Wire of plain TCP sockets: what this path gives without a plugin. One thread, non-blocking, message i of a
// direction on stream i modulo streams; what is posted goes to the kernel in one gathered call.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bench/perf/wire.h"
#include "bench/proxy/socket_io.h"

namespace clustar::bench::perf {

class TcpWire final : public Wire {
 public:
  // Between rank 0, which listens on `address`, and rank 1. The streams carry both directions.
  TcpWire(int rank, std::string address, int streams);

  Result<std::vector<std::string>> listen(int count) override;
  Result<void> connect(const std::vector<std::string>& handles, Clock::time_point deadline) override;
  Result<void> attach(const Memory& send, const Memory& receive) override;
  Result<void> detach() override { return {}; }
  Result<void> close() override;
  Result<void*> post_send(int channel, std::size_t offset, std::size_t bytes) override;
  Result<void*> post_receive(int channel, std::size_t offset, std::size_t bytes) override;
  Result<Tested> test(void* request) override;

 private:
  // A system call moves at most this much, so that one stream cannot keep the thread from the others.
  static constexpr std::size_t kMaxPerCall = 1u << 20;
  static constexpr std::size_t kRequests = 32;

  struct Request {
    std::byte* data = nullptr;
    std::size_t size = 0;
    std::size_t moved = 0;
    bool sends = false;
    bool in_use = false;
  };
  struct Stream {
    FileDescriptor fd;
    std::deque<Request*> sends;
    std::deque<Request*> receives;
  };

  Result<void> accept_streams(Clock::time_point deadline);
  Result<void> connect_streams(const std::string& address, Clock::time_point deadline);
  Result<void*> post(bool sends, std::byte* data, std::size_t bytes);
  Result<void> progress(Stream& stream, bool sends);

  int rank_;
  std::string address_;
  FileDescriptor listener_;
  std::vector<Stream> streams_;
  std::array<Request, kRequests> requests_;
  std::size_t sent_ = 0;  // messages posted so far: choose the stream, in step with the peer
  std::size_t received_ = 0;
  std::byte* send_memory_ = nullptr;
  std::byte* receive_memory_ = nullptr;
};

}  // namespace clustar::bench::perf
