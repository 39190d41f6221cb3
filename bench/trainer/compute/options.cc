#include "bench/trainer/compute/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "bench/trainer/compute/cards.h"

namespace clustar::bench::trainer {
namespace {

constexpr const char* kReplayIs = "replay=";
constexpr const char* kEstimateIs = "estimate=";
constexpr std::string_view kTag = "replay";

bool take_scale(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  double scale = 0;
  const char* const from = text.data() + word.size();
  const auto parsed = std::from_chars(from, text.data() + text.size(), scale);
  if (parsed.ec != std::errc()) return false;
  std::size_t taken = static_cast<std::size_t>(parsed.ptr - text.data());
  if (text[taken - 1] == '.') --taken;  // of the ending
  text.remove_prefix(taken);
  return true;
}

// `name` without a file_tag() before its ending, of whatever scales, or "replay" alone. Nothing: it has none.
std::optional<std::string> without_tag(const std::string& name) {
  const std::size_t at = name.rfind("." + std::string(kTag));
  if (at == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(at + 1 + kTag.size());
  std::string_view scaled = rest;
  if (take_scale(scaled, "-t") && take_scale(scaled, "-b")) rest = scaled;
  const bool ending = rest.empty() || (rest.front() == '.' && rest.find('.', 1) == rest.npos);
  return ending ? std::optional(name.substr(0, at) + std::string(rest)) : std::nullopt;
}

// Of a device, a pipe, and of what a process has open a file of another name is none, and nobody wants a new file
// beside it.
bool is_a_place_of_its_own(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) return true;
  const std::string folder =
      std::filesystem::canonical(std::filesystem::absolute(path, error).parent_path(), error).string();
  return folder == "/dev" || folder.starts_with("/proc/");
}

}  // namespace

const char* to_string(DeviceKind device) {
  switch (device) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return "cuda";
  }
  return "?";
}

Result<ComputeOptions> parse_compute(const std::string& text, double time_scale, double byte_scale) {
  ComputeOptions options;
  options.time_scale = time_scale;
  options.byte_scale = byte_scale;
  const auto begins = [&](const std::string& word) { return text.starts_with(word) && text.size() > word.size(); };
  if (begins(kReplayIs)) {
    options.kind = ComputeKind::kReplay;
    options.source = text.substr(std::string(kReplayIs).size());
  } else if (begins(kEstimateIs)) {
    options.kind = ComputeKind::kEstimate;
    options.source = text.substr(std::string(kEstimateIs).size());
    if (find_card(options.source) == nullptr) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("--compute: there is no card '{}'; there are: {}",
                                                           options.source, fmt::join(card_names(), ", ")));
    }
  } else if (text != "cpu") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--compute '{}'; allowed: cpu, replay=FILE or estimate=CARD ({})", text,
                            fmt::join(card_names(), ", ")));
  }
  if (!options.replays() && (time_scale != 1 || byte_scale != 1)) {
    return fail(ErrorCode::kInvalidArgument,
                "--time-scale and --byte-scale are of a replay; --compute replay=FILE or estimate=CARD makes one");
  }
  return options;
}

std::string to_text(const ComputeOptions& options) {
  switch (options.kind) {
    case ComputeKind::kReplay: return kReplayIs + options.source;
    case ComputeKind::kEstimate: return kEstimateIs + options.source;
    case ComputeKind::kNetwork: break;
  }
  return "cpu";
}

std::string file_tag(const ComputeOptions& options) {
  return options.replays() ? fmt::format("{}-t{}-b{}", kTag, options.time_scale, options.byte_scale) : std::string();
}

std::string tagged(const std::string& path, const ComputeOptions& options) { return tagged(path, file_tag(options)); }

std::string tagged(const std::string& path, const std::string& tag) {
  if (tag.empty() || path.empty() || path == "-" || is_a_place_of_its_own(path)) return path;
  std::filesystem::path named(path);
  const std::string name = named.filename().string();
  const std::filesystem::path plain(without_tag(name).value_or(name));
  named.replace_filename(plain.stem().string() + "." + tag + plain.extension().string());
  return named.string();
}

}  // namespace clustar::bench::trainer
