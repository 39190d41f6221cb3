#include "bench/trainer/checkpoint/file.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string_view>

#include "bench/trainer/digest.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::string_view kMagic = "clustrcp";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The checksum as the pieces go by.
class Writer {
 public:
  explicit Writer(const WritePiece& write) : write_(write) {}

  template <class T>
  void put(const T& value) {
    put(bytes_of(value));
  }
  void put(std::span<const std::byte> piece) {
    if (!outcome_) return;
    checksum_ = digest(piece, checksum_);
    outcome_ = write_(piece);
  }
  Result<std::uint64_t> finish() {
    const std::uint64_t checksum = checksum_;
    put(checksum);
    if (!outcome_) return tl::unexpected(outcome_.error());
    return checksum;
  }

 private:
  const WritePiece& write_;
  std::uint64_t checksum_ = 0;
  Result<void> outcome_;
};

// Takes from the front what was written in one piece.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  bool take(std::size_t size, std::span<const std::byte>& piece) {
    if (size > left_.size()) return false;
    piece = left_.first(size);
    left_ = left_.subspan(size);
    checksum_ = digest(piece, checksum_);
    return true;
  }
  template <class T>
  bool take(T& value) {
    std::span<const std::byte> piece;
    if (!take(sizeof value, piece)) return false;
    std::memcpy(&value, piece.data(), sizeof value);
    return true;
  }
  bool take(std::uint32_t size, std::string& text) {
    std::span<const std::byte> piece;
    if (size > kMaxFactBytes || !take(size, piece)) return false;
    text.assign(reinterpret_cast<const char*>(piece.data()), piece.size());
    return true;
  }
  std::uint64_t checksum() const { return checksum_; }
  std::size_t left() const { return left_.size(); }
  bool at_end() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
  std::uint64_t checksum_ = 0;
};

tl::unexpected<Error> refused(const std::string& why) { return fail(ErrorCode::kInvalidArgument, why); }

bool read_facts(Reader& reader, Facts& facts) {
  std::uint32_t count = 0;
  if (!reader.take(count) || count > kMaxEntries) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t name_bytes = 0;
    std::uint32_t value_bytes = 0;
    std::string name;
    std::string value;
    if (!reader.take(name_bytes) || !reader.take(value_bytes) || !reader.take(name_bytes, name) ||
        !reader.take(value_bytes, value) || !facts.emplace(std::move(name), std::move(value)).second) {
      return false;
    }
  }
  return true;
}

bool read_arrays(Reader& reader, Checkpoint& checkpoint) {
  std::uint32_t count = 0;
  if (!reader.take(count) || count > kMaxEntries) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t name_bytes = 0;
    std::uint64_t value_bytes = 0;
    std::string name;
    std::span<const std::byte> values;
    if (!reader.take(name_bytes) || !reader.take(value_bytes) || !reader.take(name_bytes, name) ||
        !reader.take(value_bytes, values) || !checkpoint.arrays.emplace(std::move(name), values).second) {
      return false;
    }
  }
  return true;
}

Result<void> read_head(Reader& reader, Facts& facts) {
  std::span<const std::byte> magic;
  if (!reader.take(kMagic.size(), magic) || std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    return refused("it is no checkpoint of clustar train");
  }
  std::uint32_t format = 0;
  if (!reader.take(format) || format != kFormat) {
    return refused(fmt::format("it has format {}; this version reads format {}", format, kFormat));
  }
  if (!read_facts(reader, facts)) return refused("it is cut off or damaged");
  return {};
}

}  // namespace

std::uint64_t bytes_behind_facts(std::span<const ArrayView> arrays) {
  std::uint64_t bytes = sizeof(std::uint32_t) + kChecksumBytes;
  for (const ArrayView& array : arrays) {
    bytes += sizeof(std::uint32_t) + sizeof(std::uint64_t) + array.name.size() + array.values.size_bytes();
  }
  return bytes;
}

Result<std::uint64_t> write_checkpoint(const Facts& facts, std::span<const ArrayView> arrays, const WritePiece& write) {
  Writer writer(write);
  writer.put(std::as_bytes(std::span(kMagic)));
  writer.put(kFormat);
  writer.put(static_cast<std::uint32_t>(facts.size()));
  for (const auto& [name, value] : facts) {
    writer.put(static_cast<std::uint32_t>(name.size()));
    writer.put(static_cast<std::uint32_t>(value.size()));
    writer.put(bytes_of(name));
    writer.put(bytes_of(value));
  }
  writer.put(static_cast<std::uint32_t>(arrays.size()));
  for (const ArrayView& array : arrays) {
    writer.put(static_cast<std::uint32_t>(array.name.size()));
    writer.put(static_cast<std::uint64_t>(array.values.size_bytes()));
    writer.put(bytes_of(array.name));
    writer.put(std::as_bytes(array.values));
  }
  return writer.finish();
}

Result<CheckpointHead> parse_checkpoint_head(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  CheckpointHead head;
  if (auto ok = read_head(reader, head.facts); !ok) return tl::unexpected(ok.error());
  head.bytes = bytes.size() - reader.left();
  return head;
}

Result<Checkpoint> parse_checkpoint(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Checkpoint checkpoint;
  if (auto ok = read_head(reader, checkpoint.facts); !ok) return tl::unexpected(ok.error());
  if (!read_arrays(reader, checkpoint)) return refused("it is cut off or damaged");
  checkpoint.checksum = reader.checksum();
  std::uint64_t written = 0;
  if (!reader.take(written)) return refused("it is cut off");
  if (written != checkpoint.checksum) return refused("it is damaged: its checksum differs");
  if (!reader.at_end()) return refused("it is damaged: more follows its end");
  return checkpoint;
}

}  // namespace clustar::bench::trainer
