#include "bench/trainer/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#ifdef CLUSTAR_HAVE_ZLIB
#include <zlib.h>
#endif

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/temp_path.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string be32(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string images_bytes(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  std::string bytes = be32(0x803) + be32(count) + be32(rows) + be32(columns);
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) bytes.push_back(static_cast<char>(i * 7));
  return bytes;
}

std::string labels_bytes(std::uint32_t count) {
  std::string bytes = be32(0x801) + be32(count);
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i % 10));
  return bytes;
}

class Idx : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "clustar-idx-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = (dir_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
#ifdef CLUSTAR_HAVE_ZLIB
  std::string write_gzip(const std::string& name, const std::string& bytes) {
    const std::string path = (dir_ / name).string();
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path;
  }
#endif
  // The message of reading `bytes` as images; empty when it was accepted.
  std::string images_error(const std::string& bytes) {
    const std::string path = write("broken", bytes);
    const auto file = read_idx(path, 3);
    if (file) return {};
    EXPECT_THAT(file.error().message, HasSubstr(path));
    return file.error().message;
  }

  fs::path dir_;
};

TEST_F(Idx, ReadsAWholePair) {
  write("t10k-images-idx3-ubyte", images_bytes(20, 28, 28));
  write("t10k-labels-idx1-ubyte", labels_bytes(20));
  const auto pair = find_idx_pair(dir_.string());
  ASSERT_TRUE(pair) << pair.error().message;
  const auto dataset = load_idx(*pair, 10);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ(dataset->size(), 20u);
  EXPECT_EQ(dataset->rows, 28u);
  EXPECT_EQ(dataset->pixels[1], 7u);
  EXPECT_EQ(dataset->labels[13], 3u);
}

TEST_F(Idx, FindsT10kBeforeTrainBeforeOthers) {
  write("other-images-idx3-ubyte", "");
  write("other-labels-idx1-ubyte", "");
  EXPECT_THAT(find_idx_pair(dir_.string())->images, HasSubstr("other-images-idx3-ubyte"));
  write("train-images.idx3-ubyte", "");
  write("train-labels.idx1-ubyte", "");
  EXPECT_THAT(find_idx_pair(dir_.string())->images, HasSubstr("train-images.idx3-ubyte"));
  write("t10k-images-idx3-ubyte.gz", "");
  write("t10k-labels-idx1-ubyte", "");
  const auto pair = find_idx_pair(dir_.string());
  EXPECT_THAT(pair->images, HasSubstr("t10k-images-idx3-ubyte.gz"));
  EXPECT_THAT(pair->labels, ::testing::EndsWith("t10k-labels-idx1-ubyte"));
  EXPECT_THAT(find_idx_pair((dir_ / "other-images-idx3-ubyte").string())->labels, HasSubstr("other-labels"));
}

TEST_F(Idx, MissingThingsAreNamed) {
  EXPECT_THAT(find_idx_pair((dir_ / "none").string()).error().message, HasSubstr("no file or directory"));
  EXPECT_THAT(find_idx_pair(dir_.string()).error().message, HasSubstr("t10k-images-idx3-ubyte"));
  write("t10k-images-idx3-ubyte", images_bytes(2, 2, 2));
  EXPECT_THAT(find_idx_pair(dir_.string()).error().message, HasSubstr("t10k-labels-idx1-ubyte"));
  EXPECT_THAT(find_idx_pair(write("digits.png", "")).error().message, HasSubstr("no images file"));
  EXPECT_THAT(read_idx((dir_ / "gone").string(), 3).error().message, AllOf(HasSubstr("gone"), HasSubstr("No such")));
  EXPECT_THAT(read_idx(dir_.string(), 3).error().message, HasSubstr("is a directory"));
}

TEST_F(Idx, EveryTruncationIsAnError) {
  const std::string whole = images_bytes(3, 4, 5);
  ASSERT_EQ(images_error(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(images_error(whole.substr(0, size)), AllOf(HasSubstr("expected"), HasSubstr("found"))) << size;
  }
}

TEST_F(Idx, ShortHeaderAndShortValuesSayHowMuch) {
  EXPECT_THAT(images_error(images_bytes(3, 4, 5).substr(0, 10)),
              AllOf(HasSubstr("header of 16 bytes"), HasSubstr("10 bytes")));
  EXPECT_THAT(images_error(images_bytes(3, 4, 5).substr(0, 70)),
              AllOf(HasSubstr("60 bytes of values (3 x 4 x 5)"), HasSubstr("only 54")));
}

TEST_F(Idx, TrailingBytes) { EXPECT_THAT(images_error(images_bytes(3, 4, 5) + "x"), HasSubstr("more bytes")); }

TEST_F(Idx, WrongMagic) {
  std::string bytes = images_bytes(3, 4, 5);
  bytes[2] = 0x0d;  // floats
  EXPECT_THAT(images_error(bytes), AllOf(HasSubstr("0x00000803"), HasSubstr("0x00000d03")));
  EXPECT_THAT(images_error(labels_bytes(30)), AllOf(HasSubstr("0x00000803"), HasSubstr("0x00000801")));
  EXPECT_THAT(images_error("GIF89a, certainly no IDX"), HasSubstr("magic"));
}

TEST_F(Idx, AbsurdDimensions) {
  EXPECT_THAT(images_error(be32(0x803) + be32(0) + be32(28) + be32(28)), HasSubstr("dimension 0"));
  EXPECT_THAT(images_error(be32(0x803) + be32(5) + be32(0) + be32(28)), HasSubstr("dimension 1"));
  EXPECT_THAT(images_error(be32(0x803) + be32(5) + be32(28) + be32(0x80000000u)),
              AllOf(HasSubstr("dimension 2"), HasSubstr("2147483648")));
  EXPECT_THAT(images_error(be32(0x803) + be32(0xffffffffu) + be32(28) + be32(28)), HasSubstr("4294967295"));
  EXPECT_THAT(images_error(be32(0x803) + be32(99'000'000) + be32(4096) + be32(4096)), HasSubstr("announced"));
}

TEST_F(Idx, ALyingHeaderCostsNoMemory) {
  const std::string path = write("liar", be32(0x803) + be32(2'000'000) + be32(28) + be32(28) + "four");
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const auto file = read_idx(path, 3);
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, AllOf(HasSubstr("1568000000 bytes of values"), HasSubstr("only 4")));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024);  // KiB, of 1.5 GB announced
}

TEST_F(Idx, CountsMustAgree) {
  const IdxPair pair{write("a-images-idx3-ubyte", images_bytes(5, 2, 2)),
                     write("a-labels-idx1-ubyte", labels_bytes(6))};
  EXPECT_THAT(load_idx(pair, 10).error().message,
              AllOf(HasSubstr(pair.labels), HasSubstr("5 labels"), HasSubstr("found 6")));
}

TEST_F(Idx, LabelOutOfRange) {
  std::string labels = labels_bytes(5);
  labels[8 + 3] = 10;
  const IdxPair pair{write("a-images-idx3-ubyte", images_bytes(5, 2, 2)), write("a-labels-idx1-ubyte", labels)};
  EXPECT_THAT(load_idx(pair, 10).error().message, AllOf(HasSubstr("0 to 9"), HasSubstr("10 at example 3")));
}

#ifdef CLUSTAR_HAVE_ZLIB
TEST_F(Idx, Gzip) {
  const auto file = read_idx(write_gzip("images.gz", images_bytes(3, 4, 5)), 3);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->values.size(), 60u);
}

TEST_F(Idx, EveryTruncationOfGzipIsAnError) {
  const std::string path = write_gzip("whole.gz", images_bytes(3, 4, 5));
  std::ifstream in(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto file = read_idx(write("cut.gz", whole.substr(0, size)), 3);
    EXPECT_FALSE(file) << size << " of " << whole.size() << " bytes were accepted";
  }
  EXPECT_THAT(read_idx(write("cut.gz", whole.substr(0, whole.size() / 2)), 3).error().message,
              HasSubstr("truncated gzip"));
}

TEST_F(Idx, DamagedGzip) {
  const std::string path = write_gzip("whole.gz", images_bytes(30, 14, 15));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-6, std::ios::end);  // within the checksum
  file.put('\x55').flush();
  EXPECT_THAT(read_idx(path, 3).error().message, HasSubstr("damaged gzip"));
}

TEST_F(Idx, PlainFileNamedGz) {
  EXPECT_THAT(read_idx(write("images.gz", images_bytes(3, 4, 5)), 3).error().message, HasSubstr("no gzip file"));
}

TEST_F(Idx, GzipHoldingMoreThanAnnounced) {
  EXPECT_THAT(read_idx(write_gzip("images.gz", images_bytes(3, 4, 5) + std::string(5000, 'x')), 3).error().message,
              HasSubstr("more bytes"));
}
#else
TEST_F(Idx, GzipIsRefusedWithTheFix) {
  const auto file = read_idx(write("images.gz", "any"), 3);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(file.error().message, AllOf(HasSubstr("gunzip"), HasSubstr("CLUSTAR_WITH_ZLIB")));
}
#endif

// Opening a pipe that nobody writes to would wait forever.
TEST_F(Idx, APipeIsNoFile) {
  const std::string path = tests::temp_path("idx_pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto read = read_idx(path, 3);
  std::remove(path.c_str());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace clustar::bench::trainer
