// Writes chunks to one data socket: header and payload as they lie in memory, several small chunks by one system call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "transport/net/socket.h"
#include "transport/tcp/core/wire.h"

namespace clustar::transport::tcp {

class ChunkWriter {
 public:
  // More would only lengthen the time until the first is on its way.
  static constexpr std::size_t kMaxFrames = 16;
  static constexpr std::size_t kMaxGathered = 64 * 1024;

  explicit ChunkWriter(net::Socket socket) : socket_(std::move(socket)) {}

  const net::Socket& socket() const { return socket_; }
  // The byte in the IP header of what is sent from now on; only when empty().
  void set_traffic_class(int traffic_class) {
    if (traffic_class == traffic_class_) return;
    net::set_traffic_class(socket_, traffic_class);
    traffic_class_ = traffic_class;
  }
  int traffic_class() const { return traffic_class_; }
  bool empty() const { return first_ == count_; }
  // False when the socket is full, or when as much has been gathered as may be: flush() first.
  bool takes_more() const { return !stuck_ && count_ < kMaxFrames && gathered_ < kMaxGathered; }
  // Only when takes_more(). `payload` must stay until the chunk was sent; `cookie` is the caller's.
  void add(const ChunkHeader& header, const std::byte* payload, std::uint32_t cookie);

  // Writes what the socket takes. kWouldBlock: some of it is left. Afterwards take_sent() names what went.
  net::IoResult flush();
  struct Sent {
    std::uint32_t cookie;
    std::uint64_t bytes;
  };
  // Of what was added: here, or in the kernel and never sent.
  std::uint64_t unsent_bytes() const;
  // Each chunk that has left completely, once, in order.
  std::optional<Sent> take_sent();

 private:
  struct Frame {
    std::array<std::byte, ChunkHeader::kMaxSize> header{};
    std::size_t header_size = 0;
    std::size_t header_sent = 0;
    const std::byte* payload = nullptr;
    std::size_t payload_left = 0;
    std::size_t payload_size = 0;
    std::uint32_t cookie = 0;
  };

  net::Socket socket_;
  std::array<Frame, kMaxFrames> frames_;
  std::size_t first_ = 0;  // taken by take_sent() up to here
  std::size_t sent_ = 0;   // written completely up to here
  std::size_t count_ = 0;
  std::size_t gathered_ = 0;
  bool stuck_ = false;
  int traffic_class_ = -1;  // -1: not set here
};

}  // namespace clustar::transport::tcp
