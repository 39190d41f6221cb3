// Plain TCP or MPTCP: one connection per sender, non-blocking, TCP_NODELAY, woken by ppoll on the sockets: a
// receiver of TCP on a slow line when the message, or 128 KiB of it, is there.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bench/lossy/endpoint.h"
#include "bench/proxy/socket_io.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::lossy {

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(const Terms& terms, bool sends);

  Result<std::vector<std::string>> listen(const std::string& own_address) override;
  Result<void> accept(SteadyClock::time_point deadline) override;
  Result<void> connect(const std::string& where, int index, SteadyClock::time_point deadline) override;
  std::span<std::byte> memory(int peer, int slot) override;
  Result<void> post(int peer, int slot, std::uint32_t round) override;
  Result<void> progress(std::vector<Ended>& ended) override;
  void sleep() override;
  Result<nlohmann::json> facts() override;

 private:
  struct Message {
    int slot = 0;
    std::size_t moved = 0;
  };
  struct Stream {
    FileDescriptor fd;
    std::vector<std::byte> memory;
    std::deque<Message> messages;
    std::size_t wakes_at = 1;  // its SO_RCVLOWAT
  };

  Result<FileDescriptor> open_socket() const;
  void wake_late(Stream& stream) const;
  Result<void> move(Stream& stream, int peer, std::vector<Ended>& ended);

  Terms terms_;
  bool sends_;
  FileDescriptor listener_;
  std::vector<Stream> streams_;
};

}  // namespace clustar::bench::lossy
