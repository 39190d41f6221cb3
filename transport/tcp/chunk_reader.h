// Cuts the byte stream of one data socket into chunks and puts payload straight where it belongs: when a header is
// known, the rest of its payload and the next header come in with one system call, without a copy of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/net/socket.h"
#include "transport/tcp/core/wire.h"

namespace clustar::transport::tcp {

class ChunkReader {
 public:
  explicit ChunkReader(net::Socket socket);

  enum class Step : std::uint8_t {
    kHeader,      // header() is new: call set_target() before the next step
    kChunk,       // all payload of header() arrived
    kWouldBlock,  // nothing more now
    kClosed,      // the peer closed between two chunks
    kBroken,      // closed within a chunk, not a chunk at all, or a socket error: see error()
  };
  Step step();

  const ChunkHeader& header() const { return header_; }
  // The first `keep` bytes of the payload go to `target`, the rest is read and dropped.
  void set_target(std::byte* target, std::uint64_t keep);
  const std::string& error() const { return error_; }
  bool closed() const { return state_ == State::kClosed; }
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  enum class State : std::uint8_t { kHeader, kPayload, kClosed };
  static constexpr std::size_t kStaging = 32 * 1024;
  static constexpr std::size_t kLongPayload = 16 * 1024;

  Step parse_header();  // kWouldBlock: not all of it is here
  void take_staged();
  Step read_payload();
  std::size_t staging_room() const;
  std::size_t header_room() const { return identities_ ? ChunkHeader::kMaxSize : ChunkHeader::kSize; }
  Step on_read(const net::IoResult& got, std::size_t asked);
  Step broken(std::string what);
  std::size_t staged() const { return end_ - begin_; }

  net::Socket socket_;
  std::vector<std::byte> staging_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  State state_ = State::kHeader;
  bool drained_ = false;  // the last read got less than it asked for: reading again now would only say so
  ChunkHeader header_;
  bool identities_ = false;  // the peer sends them: headers are longer, mostly
  std::byte* target_ = nullptr;
  std::uint64_t keep_left_ = 0;
  std::uint64_t drop_left_ = 0;
  std::uint64_t bytes_read_ = 0;
  std::string error_;
};

}  // namespace clustar::transport::tcp
