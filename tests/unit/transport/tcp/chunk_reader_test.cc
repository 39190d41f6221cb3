#include "transport/tcp/chunk_reader.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

namespace clustar::transport::tcp {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    far = net::Socket(fds[0]);
    reader = std::make_unique<ChunkReader>(net::Socket(fds[1]));
  }
  void write(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(far.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  net::Socket far;
  std::unique_ptr<ChunkReader> reader;
};

// Of some chunks.
MessageIdentity identity_of(std::uint32_t seq) {
  MessageIdentity identity;
  identity.known = seq / 3 % 2 == 1;
  if (identity.known) identity.number = seq;
  return identity;
}

void append_chunk(std::vector<std::byte>& stream, std::uint32_t seq, std::uint32_t length) {
  ChunkHeader header;
  header.seq = seq;
  header.total = header.length = length;
  header.identity = identity_of(seq);
  const std::size_t at = stream.size();
  stream.resize(at + header.size() + length, static_cast<std::byte>(seq));
  const auto bytes = std::span(stream).subspan(at);
  header.serialize_to(bytes.first<ChunkHeader::kSize>());
  if (header.identity.known) {
    header.serialize_identity_to(bytes.subspan<ChunkHeader::kSize, ChunkHeader::kIdentitySize>());
  }
}

// However the stream is cut into writes, each chunk's bytes end at its target and nowhere else.
TEST(ChunkReader, AnyCutOfTheStreamGivesTheSameChunks) {
  static constexpr std::uint32_t kSizes[] = {0, 1, 39, 40, 4096, 16383, 16384, 40000, 70000};
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::uint32_t> lengths;
    std::vector<std::byte> stream;
    for (std::uint32_t i = 0; i < 20; ++i) {
      lengths.push_back(kSizes[random() % 9]);
      append_chunk(stream, i, lengths.back());
    }
    Pair pair;
    std::size_t written = 0;
    std::uint32_t chunks = 0;
    std::vector<std::byte> target;
    std::size_t keep = 0;
    while (chunks < lengths.size()) {
      if (written < stream.size()) {
        const std::size_t cut =
            std::min<std::size_t>(stream.size() - written, 1 + random() % (seed % 2 == 0 ? 20000 : 90));
        pair.write(std::span(stream).subspan(written, cut));
        written += cut;
      }
      for (auto step = pair.reader->step(); step != ChunkReader::Step::kWouldBlock; step = pair.reader->step()) {
        if (step == ChunkReader::Step::kHeader) {
          ASSERT_EQ(pair.reader->header().seq, chunks) << "seed " << seed;
          ASSERT_EQ(pair.reader->header().identity, identity_of(chunks)) << "seed " << seed;
          // A receive may be shorter than the message: the rest is dropped.
          keep = random() % 3 == 0 ? lengths[chunks] / 2 : lengths[chunks];
          target.assign(keep + 1, std::byte{0xee});
          pair.reader->set_target(target.data(), keep);
        } else {
          ASSERT_EQ(step, ChunkReader::Step::kChunk) << pair.reader->error();
          for (std::size_t i = 0; i < keep; ++i) ASSERT_EQ(target[i], static_cast<std::byte>(chunks));
          ASSERT_EQ(target[keep], std::byte{0xee}) << "wrote past the target";
          ++chunks;
        }
      }
    }
    EXPECT_EQ(pair.reader->bytes_read(), stream.size());
  }
}

TEST(ChunkReader, AnEndBetweenChunksIsAClose) {
  Pair pair;
  pair.far.close();
  EXPECT_EQ(pair.reader->step(), ChunkReader::Step::kClosed);
  EXPECT_TRUE(pair.reader->closed());
  EXPECT_EQ(pair.reader->step(), ChunkReader::Step::kClosed);
}

TEST(ChunkReader, AnEndWithinAChunkIsAnError) {
  for (const std::size_t kept : {10u, 40u, 90u}) {
    std::vector<std::byte> stream;
    append_chunk(stream, 0, 100);
    Pair pair;
    pair.write(std::span(stream).first(kept));
    pair.far.close();
    std::vector<std::byte> target(100);
    auto step = pair.reader->step();
    for (int i = 0; i < 10 && step != ChunkReader::Step::kBroken; ++i) {
      if (step == ChunkReader::Step::kHeader) pair.reader->set_target(target.data(), target.size());
      step = pair.reader->step();
    }
    EXPECT_EQ(step, ChunkReader::Step::kBroken) << kept;
    EXPECT_NE(pair.reader->error().find("middle of a message"), std::string::npos);
  }
}

TEST(ChunkReader, GarbageIsAnError) {
  Pair pair;
  pair.write(std::vector<std::byte>(64, std::byte{'G'}));
  auto step = pair.reader->step();
  EXPECT_EQ(step, ChunkReader::Step::kBroken);
  EXPECT_EQ(pair.reader->step(), ChunkReader::Step::kBroken) << "it stays broken";
}

}  // namespace
}  // namespace clustar::transport::tcp
