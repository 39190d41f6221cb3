#include "bench/trainer/compute/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "bench/trainer/compute/cards.h"

namespace clustar::bench::trainer {
namespace {

constexpr const char* kReplayIs = "replay=";
constexpr const char* kEstimateIs = "estimate=";

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
  return options.replays() ? fmt::format("replay-t{:g}-b{:g}", options.time_scale, options.byte_scale) : std::string();
}

std::string tagged(const std::string& path, const ComputeOptions& options) { return tagged(path, file_tag(options)); }

std::string tagged(const std::string& path, const std::string& tag) {
  if (tag.empty() || path.empty() || path == "-") return path;
  const std::filesystem::path given(path);
  if (given.filename().string().find(tag) != std::string::npos) return path;
  std::filesystem::path named = given;
  named.replace_filename(given.stem().string() + "." + tag + given.extension().string());
  return named.string();
}

}  // namespace clustar::bench::trainer
