#include "bench/trainer/checkpoint/checkpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "bench/trainer/data/file_bytes.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 38;
constexpr const char* kEpochs = "epochs that are over";
constexpr const char* kPasses = "forward passes";

std::string part_name(const std::string& file, int epochs, int rank) {
  return fmt::format("{}.epoch{}.rank{}", file, epochs, rank);
}
std::string part_fact(int rank) { return fmt::format("part of rank {}", rank); }
std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

tl::unexpected<Error> cannot(const char* what, const std::string& path) {
  return fail(ErrorCode::kSystem, fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno)));
}

Result<void> write_all(int file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return cannot("write", path);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

// A rename is on the disk once its folder is.
Result<void> sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  const FileDescriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems have no sync of folders.
  if (!opened || (fsync(opened.fd()) != 0 && errno != EINVAL)) return cannot("sync", folder);
  return {};
}

// What is at `path` stays whole until the new file is. Of a run that was killed the unfinished one is left, for the
// next to write over.
Result<std::uint64_t> replace_file(const std::string& path, const Facts& facts, const std::vector<ArrayView>& arrays) {
  const std::string part = path + ".partial";
  FileDescriptor file(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return cannot("write", part);
  std::vector<std::byte> small;  // most pieces are a few bytes
  constexpr std::size_t kTogether = 1u << 16;
  const auto flush = [&] { return write_all(file.fd(), std::exchange(small, {}), part); };
  auto checksum = write_checkpoint(facts, arrays, [&](std::span<const std::byte> piece) -> Result<void> {
    if (small.size() + piece.size() <= kTogether) {
      small.insert(small.end(), piece.begin(), piece.end());
      return {};
    }
    if (auto ok = flush(); !ok) return ok;
    return write_all(file.fd(), piece, part);
  });
  const auto undo = [&](Error error) {
    unlink(part.c_str());
    return tl::unexpected(std::move(error));
  };
  if (!checksum) return undo(checksum.error());
  if (auto ok = flush(); !ok) return undo(ok.error());
  if (fsync(file.fd()) != 0) return undo(cannot("sync", part).value());
  if (std::rename(part.c_str(), path.c_str()) != 0) return undo(cannot("replace", path).value());
  if (auto ok = sync_folder_of(path); !ok) return tl::unexpected(ok.error());
  return checksum;
}

std::vector<ArrayView> views_of(const std::vector<TrainingState::Array>& arrays) {
  std::vector<ArrayView> views;
  for (const TrainingState::Array& array : arrays) views.push_back({array.name, array.values});
  return views;
}

tl::unexpected<Error> unusable(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("checkpoint '{}': {}", path, why));
}

Result<void> copy_arrays(const Checkpoint& from, const std::string& path, std::vector<TrainingState::Array>& to) {
  for (const TrainingState::Array& array : to) {
    const auto found = from.arrays.find(array.name);
    if (found == from.arrays.end() || found->second.size() != array.values.size_bytes()) {
      return unusable(path, fmt::format("it has {} bytes of '{}'; this run has {}",
                                        found == from.arrays.end() ? 0 : found->second.size(), array.name,
                                        array.values.size_bytes()));
    }
    std::memcpy(array.values.data(), found->second.data(), found->second.size());
  }
  if (from.arrays.size() != to.size()) {
    return unusable(path, fmt::format("it has {} arrays; this run has {}", from.arrays.size(), to.size()));
  }
  return {};
}

// Each difference, for people. Empty: the same run.
std::string differences(const Facts& there, const Facts& here) {
  std::string text;
  for (const auto& [name, value] : here) {
    const auto found = there.find(name);
    if (found != there.end() && found->second == value) continue;
    text += fmt::format("{}{}: {} there, {} here", text.empty() ? "" : "; ", name,
                        found == there.end() ? "nothing" : found->second, value);
  }
  return text;
}

template <class Number>
bool read_number(const Facts& facts, const char* name, Number& number) {
  const auto found = facts.find(name);
  if (found == facts.end()) return false;
  const char* const end = found->second.data() + found->second.size();
  const auto parsed = std::from_chars(found->second.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

}  // namespace

Checkpoints::Checkpoints(CheckpointOptions options, Facts run, proxy::Bootstrap* bootstrap)
    : options_(std::move(options)), run_(std::move(run)), bootstrap_(bootstrap) {}

bool Checkpoints::is_due(int epochs, bool last) const {
  return !options_.file.empty() && (last || epochs % options_.every == 0);
}

Result<void> Checkpoints::load(TrainingState& state) {
  const auto all = agree("read", load_mine(state));
  if (!all) return tl::unexpected(all.error());
  const auto other = std::find_if(all->begin(), all->end(), [&](std::uint64_t one) { return one != all->front(); });
  if (other == all->end()) return {};
  return unusable(options_.resume,
                  fmt::format("rank {} has another one of this name than rank 0", other - all->begin()));
}

// The checksum of FILE.
Result<std::uint64_t> Checkpoints::load_mine(TrainingState& state) {
  const std::string& path = options_.resume;
  const auto bytes = file_bytes(path, kMostBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto checkpoint = parse_checkpoint(std::as_bytes(std::span(*bytes)));
  if (!checkpoint) return unusable(path, checkpoint.error().message);
  if (const std::string wrong = differences(checkpoint->facts, run_); !wrong.empty()) {
    return unusable(path, "it is of another run: " + wrong);
  }
  if (!read_number(checkpoint->facts, kEpochs, state.epochs) || state.epochs < 1 ||
      !read_number(checkpoint->facts, kPasses, state.passes)) {
    return unusable(path, "it does not say how far its run had come");
  }
  if (auto ok = copy_arrays(*checkpoint, path, state.shared); !ok) return tl::unexpected(ok.error());
  if (!state.own.empty()) {
    if (auto ok = load_part(*checkpoint, state); !ok) return tl::unexpected(ok.error());
  }
  return checkpoint->checksum;
}

Result<void> Checkpoints::load_part(const Checkpoint& checkpoint, TrainingState& state) {
  const std::string path = part_name(options_.resume, state.epochs, rank());
  const auto bytes = file_bytes(path, kMostBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto part = parse_checkpoint(std::as_bytes(std::span(*bytes)));
  if (!part) return unusable(path, part.error().message);
  const auto named = checkpoint.facts.find(part_fact(rank()));
  if (named == checkpoint.facts.end() || named->second != hex(part->checksum)) {
    return unusable(path, fmt::format("it is not the part that '{}' was written with", options_.resume));
  }
  if (options_.resume == options_.file) latest_part_ = path;
  return copy_arrays(*part, path, state.own);
}

Result<void> Checkpoints::save(const TrainingState& state) {
  const auto start = std::chrono::steady_clock::now();
  const std::string part = state.own.empty() ? "" : part_name(options_.file, state.epochs, rank());
  const auto parts =
      agree("write", part.empty() ? Result<std::uint64_t>(0) : replace_file(part, run_, views_of(state.own)));
  if (!parts) return tl::unexpected(parts.error());
  Result<std::uint64_t> written = 0;
  if (rank() == 0) {
    Facts facts = run_;
    facts[kEpochs] = std::to_string(state.epochs);
    facts[kPasses] = std::to_string(state.passes);
    for (int r = 0; r < size() && !part.empty(); ++r) facts[part_fact(r)] = hex((*parts)[static_cast<std::size_t>(r)]);
    written = replace_file(options_.file, facts, views_of(state.shared));
  }
  if (const auto all = agree("write", written); !all) return tl::unexpected(all.error());
  if (!latest_part_.empty() && latest_part_ != part) unlink(latest_part_.c_str());
  latest_part_ = part;
  ++saved_;
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {};
}

// What each rank has; an error where one has none.
Result<std::vector<std::uint64_t>> Checkpoints::agree(const char* what, const Result<std::uint64_t>& mine) const {
  if (bootstrap_ == nullptr) {
    if (!mine) return tl::unexpected(mine.error());
    return std::vector<std::uint64_t>{*mine};
  }
  const std::uint64_t words[2] = {mine ? 1u : 0u, mine.value_or(0)};
  const auto gathered = bootstrap_->all_gather(std::as_bytes(std::span(words)));
  if (!mine) return tl::unexpected(mine.error());
  if (!gathered) return tl::unexpected(gathered.error());
  std::vector<std::uint64_t> values;
  for (std::size_t at = 0; at < gathered->size(); at += sizeof words) {
    std::uint64_t theirs[2];
    std::memcpy(theirs, gathered->data() + at, sizeof theirs);
    if (theirs[0] == 0) {
      return fail(ErrorCode::kRemote, fmt::format("rank {} could not {} its checkpoint", values.size(), what));
    }
    values.push_back(theirs[1]);
  }
  return values;
}

Result<void> check_checkpoint_path(const std::string& path) {
  struct stat there {};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a regular file", path));
  }
  const std::string part = path + ".partial";
  const FileDescriptor file(open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file) return cannot("write", part);
  unlink(part.c_str());
  return {};
}

}  // namespace clustar::bench::trainer
