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
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "bench/trainer/data/file_bytes.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::uint64_t kMostHeadBytes = 1u << 20;  // of facts: some dozens, and one for each rank
constexpr const char* kEpochs = "epochs that are over";
constexpr const char* kPasses = "forward passes";
constexpr const char* kAccuracy = "accuracy";
constexpr std::size_t kHexDigits = 16;

// Of another run, or of the same epoch of another state, the name is another: a part is never written over one that
// FILE still names.
std::string part_name(const std::string& file, int epochs, int rank, const std::string& checksum) {
  return fmt::format("{}.epoch{}.rank{}.{}", file, epochs, rank, checksum);
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

// Written at `path` + ".partial", then renamed to what `name` says of its checksum: what is there stays whole until the
// new file is. Of a run that was killed the unfinished one is left, for the next to write over.
using NameOf = std::function<std::string(std::uint64_t checksum)>;
Result<std::uint64_t> replace_file(const std::string& path, const Facts& facts, const std::vector<ArrayView>& arrays,
                                   const NameOf& name) {
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
  const std::string place = name(*checksum);
  if (std::rename(part.c_str(), place.c_str()) != 0) return undo(cannot("replace", place).value());
  if (auto ok = sync_folder_of(place); !ok) return tl::unexpected(ok.error());
  return checksum;
}

// A number from the front of `text`.
bool take_number(std::string_view& text, int& number) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
  return true;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// The rank of a part of `file`, both names without folders. Nothing: it is none.
std::optional<int> rank_of_part(std::string_view name, const std::string& file) {
  int epoch = 0;
  int rank = 0;
  if (!take_word(name, file) || !take_word(name, ".epoch") || !take_number(name, epoch) || !take_word(name, ".rank") ||
      !take_number(name, rank) || !take_word(name, ".")) {
    return std::nullopt;
  }
  const bool checksum = name.size() == kHexDigits && name.find_first_not_of("0123456789abcdef") == name.npos;
  return checksum ? std::optional(rank) : std::nullopt;
}

// By what lies in the folder, so that also those of a run before this one go, by whatever path it named FILE. Rank 0
// takes those of ranks that there are no more. What cannot be removed is no harm.
void remove_other_parts(const std::string& file, const std::string& kept, int rank, int size) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = fs::absolute(file, error);
  const std::string name = path.filename().string();
  const std::string kept_name = fs::path(kept).filename().string();
  fs::directory_iterator entry(path.parent_path(), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string other = entry->path().filename().string();
    const auto of_rank = rank_of_part(other, name);
    if (!of_rank || other == kept_name || (*of_rank != rank && (rank != 0 || *of_rank < size))) continue;
    std::error_code ignored;
    fs::remove(entry->path(), ignored);
  }
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

// The whole of a file of this run. Of a larger one no more is read than says of which run it is.
Result<std::vector<std::uint8_t>> bytes_of_run(const std::string& path, const Facts& run,
                                               const std::vector<TrainingState::Array>& arrays) {
  const auto head = file_head(path, kMostHeadBytes);
  if (!head) return tl::unexpected(head.error());
  const auto said = parse_checkpoint_head(std::as_bytes(std::span(head->bytes)));
  if (!said) return unusable(path, said.error().message);
  const std::uint64_t most = said->bytes + bytes_behind_facts(views_of(arrays));
  if (head->size <= most) return file_bytes(path, most);
  if (const std::string wrong = differences(said->facts, run); !wrong.empty()) {
    return unusable(path, "it is of another run: " + wrong);
  }
  return unusable(path, fmt::format("it has {} bytes; of this run it has {}", head->size, most));
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
  const auto bytes = bytes_of_run(path, run_, state.shared);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto checkpoint = parse_checkpoint(std::as_bytes(std::span(*bytes)));
  if (!checkpoint) return unusable(path, checkpoint.error().message);
  if (const std::string wrong = differences(checkpoint->facts, run_); !wrong.empty()) {
    return unusable(path, "it is of another run: " + wrong);
  }
  if (!read_number(checkpoint->facts, kEpochs, state.epochs) || state.epochs < 1 ||
      !read_number(checkpoint->facts, kPasses, state.passes) ||
      !read_number(checkpoint->facts, kAccuracy, state.accuracy)) {
    return unusable(path, "it does not say how far its run had come");
  }
  if (auto ok = copy_arrays(*checkpoint, path, state.shared); !ok) return tl::unexpected(ok.error());
  if (!state.own.empty()) {
    if (auto ok = load_part(*checkpoint, state); !ok) return tl::unexpected(ok.error());
  }
  return checkpoint->checksum;
}

Result<void> Checkpoints::load_part(const Checkpoint& checkpoint, TrainingState& state) {
  const auto named = checkpoint.facts.find(part_fact(rank()));
  if (named == checkpoint.facts.end()) {
    return unusable(options_.resume, fmt::format("it names no part of rank {}", rank()));
  }
  const std::string path = part_name(options_.resume, state.epochs, rank(), named->second);
  const auto bytes = bytes_of_run(path, run_, state.own);
  if (!bytes) return tl::unexpected(bytes.error());
  const auto part = parse_checkpoint(std::as_bytes(std::span(*bytes)));
  if (!part) return unusable(path, part.error().message);
  if (named->second != hex(part->checksum)) {
    return unusable(path, fmt::format("it is not the part that '{}' was written with", options_.resume));
  }
  return copy_arrays(*part, path, state.own);
}

Result<void> Checkpoints::save(const TrainingState& state) {
  const auto start = std::chrono::steady_clock::now();
  std::string part;  // the name of this rank's
  Result<std::uint64_t> own = 0;
  if (!state.own.empty()) {
    own = replace_file(
        fmt::format("{}.rank{}", options_.file, rank()), run_, views_of(state.own),
        [&](std::uint64_t checksum) { return part = part_name(options_.file, state.epochs, rank(), hex(checksum)); });
  }
  const auto parts = agree("write", own);
  if (!parts) return tl::unexpected(parts.error());
  Result<std::uint64_t> written = 0;
  if (rank() == 0) {
    Facts facts = run_;
    facts[kEpochs] = std::to_string(state.epochs);
    facts[kPasses] = std::to_string(state.passes);
    facts[kAccuracy] = fmt::format("{}", state.accuracy);
    for (int r = 0; r < size() && !part.empty(); ++r) facts[part_fact(r)] = hex((*parts)[static_cast<std::size_t>(r)]);
    written = replace_file(options_.file, facts, views_of(state.shared), [&](std::uint64_t) { return options_.file; });
  }
  if (const auto all = agree("write", written); !all) return tl::unexpected(all.error());
  remove_other_parts(options_.file, part, rank(), size());
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

Result<void> check_goes_on(const TrainConfig& config, const TrainingState& state) {
  const std::string& file = config.checkpoint.resume;
  if (state.epochs >= config.epochs) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("checkpoint '{}' is of the end of epoch {}; allowed: --epochs above that", file, state.epochs));
  }
  if (config.target_accuracy && state.accuracy >= *config.target_accuracy) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("checkpoint '{}' has an accuracy of {} already; allowed: --target-accuracy above that, or "
                            "none",
                            file, state.accuracy));
  }
  return {};
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
