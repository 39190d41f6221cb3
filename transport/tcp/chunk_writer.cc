#include "transport/tcp/chunk_writer.h"

#include <sys/uio.h>

#include <algorithm>
#include <cassert>
#include <span>

namespace clustar::transport::tcp {

void ChunkWriter::add(const ChunkHeader& header, const std::byte* payload, std::uint32_t cookie) {
  assert(takes_more());
  Frame& frame = frames_[count_++];
  const auto bytes = std::span(frame.header);
  header.serialize_to(bytes.first<ChunkHeader::kSize>());
  if (header.identity.known) header.serialize_identity_to(bytes.subspan<ChunkHeader::kSize>());
  frame.header_size = header.size();
  frame.header_sent = 0;
  frame.payload = payload;
  frame.payload_left = frame.payload_size = header.length;
  frame.cookie = cookie;
  gathered_ += frame.header_size + frame.payload_size;
}

net::IoResult ChunkWriter::flush() {
  if (sent_ == count_) return {net::IoResult::Kind::kBytes, 0, 0};
  std::array<iovec, 2 * kMaxFrames> parts;
  std::size_t used = 0;
  for (std::size_t i = sent_; i < count_; ++i) {
    Frame& frame = frames_[i];
    if (frame.header_sent < frame.header_size) {
      parts[used++] = {frame.header.data() + frame.header_sent, frame.header_size - frame.header_sent};
    }
    if (frame.payload_left > 0) parts[used++] = {const_cast<std::byte*>(frame.payload), frame.payload_left};
  }
  const net::IoResult written = net::write_some(socket_.fd(), std::span(parts).first(used));
  stuck_ = true;
  if (written.kind != net::IoResult::Kind::kBytes) return written;
  for (std::size_t left = written.bytes; sent_ < count_; ++sent_) {
    Frame& frame = frames_[sent_];
    const std::size_t of_header = std::min(left, frame.header_size - frame.header_sent);
    frame.header_sent += of_header;
    left -= of_header;
    const std::size_t of_payload = std::min(left, frame.payload_left);
    frame.payload += of_payload;
    frame.payload_left -= of_payload;
    left -= of_payload;
    if (frame.header_sent < frame.header_size || frame.payload_left > 0) {
      return {net::IoResult::Kind::kWouldBlock, written.bytes, 0};
    }
  }
  stuck_ = false;
  return written;
}

std::uint64_t ChunkWriter::unsent_bytes() const {
  std::uint64_t sum = net::unsent_bytes(socket_);
  for (std::size_t i = sent_; i < count_; ++i) {
    sum += frames_[i].header_size - frames_[i].header_sent + frames_[i].payload_left;
  }
  return sum;
}

std::optional<ChunkWriter::Sent> ChunkWriter::take_sent() {
  if (first_ == sent_) return std::nullopt;
  const Frame& frame = frames_[first_++];
  const Sent sent{frame.cookie, frame.payload_size};
  if (first_ == count_) first_ = sent_ = count_ = gathered_ = 0;
  return sent;
}

}  // namespace clustar::transport::tcp
