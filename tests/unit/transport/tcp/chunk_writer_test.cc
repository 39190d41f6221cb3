#include "transport/tcp/chunk_writer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <vector>

namespace clustar::transport::tcp {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    const int small = 8192;
    EXPECT_EQ(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    far = net::Socket(fds[0]);
    writer = std::make_unique<ChunkWriter>(net::Socket(fds[1]));
  }
  // Appends what has arrived.
  void read_into(std::vector<std::byte>& stream, std::size_t most) const {
    std::vector<std::byte> buffer(most);
    const auto got = ::recv(far.fd(), buffer.data(), buffer.size(), 0);
    if (got > 0) stream.insert(stream.end(), buffer.begin(), buffer.begin() + got);
  }
  net::Socket far;
  std::unique_ptr<ChunkWriter> writer;
};

ChunkHeader header_of(std::uint32_t seq, std::uint32_t length) {
  ChunkHeader header;
  header.seq = seq;
  header.total = header.length = length;
  header.identity.known = seq % 3 == 1;
  return header;
}

void append(std::vector<std::byte>& stream, const ChunkHeader& header, const std::byte* payload) {
  const std::size_t at = stream.size();
  stream.resize(at + header.size());
  const auto bytes = std::span(stream).subspan(at);
  header.serialize_to(bytes.first<ChunkHeader::kSize>());
  if (header.identity.known) {
    header.serialize_identity_to(bytes.subspan<ChunkHeader::kSize, ChunkHeader::kIdentitySize>());
  }
  stream.insert(stream.end(), payload, payload + header.length);
}

// Whatever the socket takes at a time, the bytes are those of one chunk after the other, each named once when it left.
TEST(ChunkWriter, AnyMixOfChunksAndPartialWritesGivesTheSameStream) {
  static constexpr std::uint32_t kSizes[] = {0, 1, 8, 4096, 16384, 40000, 200000};
  std::vector<std::byte> memory(1 << 20);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 131 >> 3);
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const Pair pair;
    std::vector<std::byte> expected, arrived;
    std::vector<std::uint32_t> lengths;
    std::uint32_t added = 0, sent = 0;
    while (sent < 60 || !pair.writer->empty()) {
      while (added < 60 && pair.writer->takes_more() && random() % 4 != 0) {
        const std::uint32_t length = kSizes[random() % 7];
        const std::byte* payload = memory.data() + random() % (memory.size() - length);
        lengths.push_back(length);
        append(expected, header_of(added, length), payload);
        pair.writer->add(header_of(added, length), payload, 1000 + added);
        ++added;
      }
      const net::IoResult written = pair.writer->flush();
      ASSERT_NE(written.kind, net::IoResult::Kind::kError);
      while (const auto done = pair.writer->take_sent()) {
        ASSERT_EQ(done->cookie, 1000 + sent) << "seed " << seed;
        ASSERT_EQ(done->bytes, lengths[sent]) << "seed " << seed;
        ++sent;
      }
      if (written.kind == net::IoResult::Kind::kWouldBlock) {
        ASSERT_FALSE(pair.writer->takes_more());
      }
      pair.read_into(arrived, 1 + random() % 50000);
    }
    while (arrived.size() < expected.size()) pair.read_into(arrived, 100000);
    ASSERT_EQ(arrived, expected) << "seed " << seed;
  }
}

TEST(ChunkWriter, GathersUpToItsBoundAndWritesAllByOneCall) {
  const Pair pair;
  std::vector<std::byte> payload(100, std::byte{7});
  std::uint32_t added = 0;
  std::size_t bytes = 0;
  for (; pair.writer->takes_more(); ++added) {
    pair.writer->add(header_of(added, 100), payload.data(), added);
    bytes += header_of(added, 100).size() + 100;
  }
  EXPECT_EQ(added, ChunkWriter::kMaxFrames);
  EXPECT_FALSE(pair.writer->take_sent().has_value());
  const net::IoResult written = pair.writer->flush();
  EXPECT_EQ(written.kind, net::IoResult::Kind::kBytes);
  EXPECT_EQ(written.bytes, bytes);
  while (pair.writer->take_sent()) --added;
  EXPECT_EQ(added, 0u);
  EXPECT_TRUE(pair.writer->empty());
  EXPECT_TRUE(pair.writer->takes_more());
}

TEST(ChunkWriter, AClosedPeerIsAnError) {
  Pair pair;
  pair.far = net::Socket();
  pair.writer->add(header_of(0, 0), nullptr, 0);
  EXPECT_EQ(pair.writer->flush().kind, net::IoResult::Kind::kError);
  EXPECT_FALSE(pair.writer->take_sent().has_value());
}

}  // namespace
}  // namespace clustar::transport::tcp
