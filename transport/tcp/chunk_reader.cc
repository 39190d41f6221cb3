#include "transport/tcp/chunk_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/base/copies.h"

namespace clustar::transport::tcp {

ChunkReader::ChunkReader(net::Socket socket) : socket_(std::move(socket)), staging_(kStaging) {}

void ChunkReader::set_target(std::byte* target, std::uint64_t keep) {
  target_ = target;
  keep_left_ = std::min<std::uint64_t>(keep, header_.length);
  drop_left_ = header_.length - keep_left_;
}

ChunkReader::Step ChunkReader::step() {
  for (;;) {
    if (state_ == State::kClosed) return error_.empty() ? Step::kClosed : Step::kBroken;
    if (state_ == State::kHeader && staged() >= ChunkHeader::kSize) {
      if (const Step step = parse_header(); step != Step::kWouldBlock) return step;
    }
    if (state_ == State::kPayload) {
      take_staged();
      if (keep_left_ == 0 && drop_left_ == 0) {
        state_ = State::kHeader;
        return Step::kChunk;
      }
    }
    if (std::exchange(drained_, false)) return Step::kWouldBlock;
    if (const Step step = read_payload(); step != Step::kChunk) return step;
  }
}

ChunkReader::Step ChunkReader::parse_header() {
  const auto bytes = std::span<const std::byte>(staging_).subspan(begin_);
  auto header = ChunkHeader::parse(bytes.first<ChunkHeader::kSize>());
  if (header && header->identity.known) {
    identities_ = true;
    if (staged() < ChunkHeader::kMaxSize) return Step::kWouldBlock;
    const auto identity = bytes.subspan<ChunkHeader::kSize, ChunkHeader::kIdentitySize>();
    if (!header->parse_identity(identity)) header.reset();
  }
  if (!header) return broken("what arrived is not a chunk of this protocol");
  begin_ += header->size();
  header_ = *header;
  state_ = State::kPayload;
  return Step::kHeader;
}

void ChunkReader::take_staged() {
  const std::size_t keep = std::min<std::uint64_t>(staged(), keep_left_);
  if (keep > 0) {
    std::memcpy(target_, staging_.data() + begin_, keep);
    count_copy(Copy::kEager, keep);
  }
  begin_ += keep;
  target_ += keep;
  keep_left_ -= keep;
  const std::size_t drop = std::min<std::uint64_t>(staged(), drop_left_);
  begin_ += drop;
  drop_left_ -= drop;
}

// Reads once; kChunk means "look at what came".
ChunkReader::Step ChunkReader::read_payload() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0) {
    std::memmove(staging_.data(), staging_.data() + begin_, staged());
    end_ -= begin_;
    begin_ = 0;
  }
  // Behind a long payload another long one is likely: staging only its header keeps its bytes out of our copy.
  const bool only_header = keep_left_ >= kLongPayload;
  const std::size_t room = only_header ? header_room() : staging_room();
  std::array<iovec, 2> into{{{target_, keep_left_}, {staging_.data() + end_, room}}};
  const bool direct = keep_left_ > 0;
  const net::IoResult got = direct ? net::read_some(socket_.fd(), into)
                                   : net::read_some(socket_.fd(), std::span(staging_).subspan(end_, room));
  if (got.kind == net::IoResult::Kind::kBytes) {
    const std::size_t placed = direct ? std::min<std::uint64_t>(got.bytes, keep_left_) : 0;
    if (direct) {
      target_ += placed;
      keep_left_ -= placed;
    }
    end_ += got.bytes - placed;
  }
  return on_read(got, direct ? into[0].iov_len + room : room);
}

// After a long message the next is likely long, too: then only its header is worth staging.
std::size_t ChunkReader::staging_room() const {
  if (state_ == State::kHeader && header_.length >= kLongPayload) return header_room() - end_;
  return staging_.size() - end_;
}

ChunkReader::Step ChunkReader::on_read(const net::IoResult& got, std::size_t asked) {
  switch (got.kind) {
    case net::IoResult::Kind::kBytes:
      bytes_read_ += got.bytes;
      drained_ = got.bytes < asked;
      return Step::kChunk;
    case net::IoResult::Kind::kWouldBlock: return Step::kWouldBlock;
    case net::IoResult::Kind::kClosed:
      if (state_ == State::kPayload || staged() > 0) {
        return broken("the peer's process ended or closed the connection in the middle of a message");
      }
      state_ = State::kClosed;
      return Step::kClosed;
    case net::IoResult::Kind::kError: return broken("data connection: " + describe_errno(got.error));
  }
  return Step::kBroken;
}

ChunkReader::Step ChunkReader::broken(std::string what) {
  error_ = std::move(what);
  state_ = State::kClosed;
  return Step::kBroken;
}

}  // namespace clustar::transport::tcp
