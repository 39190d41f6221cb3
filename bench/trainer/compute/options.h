// Whether a run computes, or takes the time that another machine would.
#pragma once

#include <cstdint>
#include <string>

#include "bench/trainer/graph/cuda/libraries/options.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

enum class ComputeKind : std::uint8_t { kNetwork, kReplay, kEstimate };
enum class DeviceKind : std::uint8_t { kCpu, kCuda };
const char* to_string(DeviceKind device);  // "cpu", "cuda"

// Where gradients are summed and parameters updated. kAuto: on the GPU where that goes (residence.h).
enum class UpdatePlace : std::uint8_t { kAuto, kHost, kDevice };

struct ComputeOptions {
  ComputeKind kind = ComputeKind::kNetwork;
  std::string source{};                     // kReplay: the file of LayerTimes; kEstimate: the card's name
  double time_scale = 1;                    // every time is multiplied by it
  double byte_scale = 1;                    // every tensor's elements, and so the gradients' bytes, are divided by it
  DeviceKind device = DeviceKind::kCpu;     // of kNetwork
  std::string cuda_driver{};                // of kCuda; empty: libcuda.so.1, where the loader finds it
  UpdatePlace update = UpdatePlace::kAuto;  // of kCuda
  graph::cuda::MathOptions math{};          // of kCuda

  bool replays() const { return kind != ComputeKind::kNetwork; }
  bool operator==(const ComputeOptions&) const = default;
};

inline constexpr double kMostScale = 1e6;

// "cpu", "replay=FILE" or "estimate=CARD". kInvalidArgument: another word, a card that is not known, a scale without a
// replay.
Result<ComputeOptions> parse_compute(const std::string& text, double time_scale, double byte_scale);
std::string to_text(const ComputeOptions& options);  // as it is given

// For names of files: "replay-t32-b32". Empty where nothing is replayed.
std::string file_tag(const ComputeOptions& options);
// PATH with the tag before its ending: "ab.replay-t32-b32.json"; in place of another one that is there. PATH itself
// without a tag, for "-" and "", and where it names what is there and no regular file, as /dev/stdout.
std::string tagged(const std::string& path, const std::string& tag);
std::string tagged(const std::string& path, const ComputeOptions& options);

}  // namespace clustar::bench::trainer
