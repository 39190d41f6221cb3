// kernel-check: our kernels on the GPU that is there, against float64, and as a fraction of a copy's bandwidth.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bench/trainer/graph/cuda/device_code.h"
#include "gdr/launch/device.h"
#include "gdr/launch/image.h"
#include "tests/gpu/kernel_check_cases.h"

namespace clustar::gdr::launch {

extern const Image gdr_device_code;  // of gdr/kernels

}  // namespace clustar::gdr::launch

namespace clustar::gpu_check {
namespace {

using gdr::launch::Device;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kUsage =
    R"(usage: kernel-check [--driver LIBRARY] [--max BYTES] [--rounds N] [--check-only] [--json FILE]

Runs kernels of gdr and of the trainer on the GPU, compares what they make with float64, and measures those that memory
bounds beside a copy from device memory to device memory, in turns.

  --driver LIBRARY  the CUDA driver (libcuda.so.1); that of the tests' emulated device has no speed to measure
  --max BYTES       of a kernel's largest array, 4096 to 1073741824 (64 MiB, 64 KiB on the emulated device)
  --rounds N        of copy and kernel in turns, 3 to 100 (9)
  --check-only      no speed
  --json FILE       the results for programs
  --help            this text

Example: kernel-check --json kernels.json
Exit status: 0 all right, 1 a kernel is wrong or failed, 2 wrong usage, 77 no CUDA device here.
)";
constexpr int kSkip = 77;
constexpr double kBar = 0.8;  // of the copy's bandwidth

struct Options {
  std::string driver = gdr::launch::kCudaDriver;
  std::size_t max = 0;
  int rounds = 9;
  bool check_only = false;
  std::string json;
};

template <class T>
bool parse(std::string_view text, T least, T most, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
}

// Seconds of one of `launches` in a row.
Result<double> seconds_of(Device& device, int launches, const std::function<Result<void>()>& launch) {
  if (auto done = device.wait(); !done) return tl::unexpected(done.error());
  const auto begin = Clock::now();
  for (int i = 0; i < launches; ++i) {
    if (auto done = launch(); !done) return tl::unexpected(done.error());
  }
  if (auto done = device.wait(); !done) return tl::unexpected(done.error());
  return std::chrono::duration<double>(Clock::now() - begin).count() / launches;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Bytes/s of the kernel over those of a copy, in turns; or operations/s.
Result<json> speed_of(Device& device, const Prepared& prepared, std::size_t bytes, int rounds) {
  // Longer than looking whether they have ended.
  const int launches = device.emulated() ? 1 : 50;
  Prepared copies;
  for (int i = 0; i < 2; ++i) {
    auto memory = device.allocate(bytes);
    if (!memory) return tl::unexpected(memory.error());
    copies.memory.push_back(*memory);
  }
  const auto copy = [&] { return device.copy(copies.memory[0], copies.memory[1], bytes); };
  std::vector<double> kernel_s, ratios, copy_rates;
  for (int round = 0; round < rounds; ++round) {
    const auto copied = seconds_of(device, launches, copy);
    const auto ran = seconds_of(device, launches, prepared.launch);
    if (!copied || !ran) return tl::unexpected((copied ? ran : copied).error());
    kernel_s.push_back(*ran);
    copy_rates.push_back(2 * static_cast<double>(bytes) / *copied);
    ratios.push_back(prepared.bytes / *ran / copy_rates.back());
  }
  for (void* memory : copies.memory) device.release(memory);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  if (prepared.bytes == 0) return json{{"tflops", prepared.operations / median(kernel_s) / 1e12}};
  return json{{"bytes_per_s", prepared.bytes / median(kernel_s)},
              {"copy_bytes_per_s", median(copy_rates)},
              {"of_copy", median(ratios)},
              {"of_copy_least", *least},
              {"of_copy_most", *most}};
}

std::string told(const json& row) {
  if (!row["right"]) return "WRONG: " + row["reason"].get<std::string>();
  if (!row.contains("speed")) return "right; " + row["speed_reason"].get<std::string>();
  const json& speed = row["speed"];
  if (speed.contains("tflops")) return fmt::format("right; {:.2f} TFLOP/s", speed["tflops"].get<double>());
  const double ratio = speed["of_copy"];
  return fmt::format("right; {:.0f} GB/s, {:.2f} [{:.2f}, {:.2f}] of a copy: {}",
                     speed["bytes_per_s"].get<double>() / 1e9, ratio, speed["of_copy_least"].get<double>(),
                     speed["of_copy_most"].get<double>(), ratio >= kBar ? "met" : "MISSED (0.8)");
}

json run_case(const Case& one, std::size_t bytes, const Options& options) {
  json row{{"kernel", one.name}, {"right", false}};
  Device& device = *one.device;
  auto prepared = one.prepare(device, bytes);
  if (!prepared) return row["reason"] = prepared.error().message, row;
  const auto launched = prepared->launch();
  const auto wrong = launched ? prepared->wrong() : Result<std::string>(tl::unexpected(launched.error()));
  row["reason"] = wrong ? *wrong : wrong.error().message;
  row["right"] = wrong && wrong->empty();
  row["speed_reason"] = device.emulated() ? "no speed: emulated" : "not measured";
  if (row["right"] && !options.check_only) {
    // On the emulated device, too, where its result is dropped: so that a GPU is not the first to run it.
    const auto speed = speed_of(device, *prepared, bytes, device.emulated() ? 3 : options.rounds);
    if (speed && !device.emulated()) row["speed"] = *speed;
    if (!speed) {
      row["right"] = false;
      row["reason"] = speed.error().message;
    }
  }
  for (void* memory : prepared->memory) device.release(memory);
  return row;
}

int run(const Options& options) {
  auto hooks = Device::open(options.driver, gdr::launch::gdr_device_code);
  // A driver that was named, and one that has a GPU but not its code, are to work.
  const bool absent = hooks || (options.driver == gdr::launch::kCudaDriver &&
                                hooks.error().message.find("has no code for") == std::string::npos);
  if (!absent) return std::fprintf(stderr, "kernel-check: %s\n", hooks.error().message.c_str()), 1;
  if (!hooks) {
    std::printf("SKIP: no CUDA device here: %s\n", hooks.error().message.c_str());
    return kSkip;
  }
  auto trainer = Device::open(options.driver, gdr::launch::clustar_trainer_device_code);
  if (!trainer) return std::fprintf(stderr, "kernel-check: %s\n", trainer.error().message.c_str()), 1;
  const bool emulated = (*hooks)->emulated();
  const std::size_t bytes = options.max != 0 ? options.max : emulated ? std::size_t{64} << 10 : std::size_t{64} << 20;
  std::printf("%s%s, arrays of %zu bytes\n", (*hooks)->name().c_str(), emulated ? " (emulated: no GPU)" : "", bytes);
  json document{{"command", "kernel-check"},
                {"device", (*hooks)->name()},
                {"emulated", emulated},
                {"bytes", bytes},
                {"kernels", json::array()}};
  int wrong = 0;
  for (const Case& one : all_cases(**hooks, **trainer)) {
    const json row = run_case(one, bytes, options);
    wrong += row["right"] ? 0 : 1;
    std::printf("%-24s %s\n", one.name.c_str(), told(row).c_str());
    std::fflush(stdout);
    document["kernels"].push_back(row);
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << document.dump(1) << '\n';
    if (!file.flush()) return std::fprintf(stderr, "kernel-check: cannot write %s\n", options.json.c_str()), 1;
  }
  std::printf("%zu kernels, %d wrong\n", document["kernels"].size(), wrong);
  return wrong == 0 ? 0 : 1;
}

int wrong_usage(const std::string& what) {
  std::fprintf(stderr, "kernel-check: %s\nkernel-check --help says what is allowed.\n", what.c_str());
  return 2;
}

int main_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") return std::fputs(kUsage.data(), stdout) < 0;
    if (name == "--check-only") {
      options.check_only = true;
      continue;
    }
    if (i + 1 == argc) return wrong_usage("unknown option '" + name + "', or its value lacks");
    const std::string value = argv[++i];
    if (name == "--driver") {
      options.driver = value;
    } else if (name == "--json") {
      options.json = value;
    } else if (!(name == "--max" && parse<std::size_t>(value, 4096, std::size_t{1} << 30, options.max)) &&
               !(name == "--rounds" && parse(value, 3, 100, options.rounds))) {
      return wrong_usage("unknown option, or a value that is not allowed: " + name + " " + value);
    }
  }
  return run(options);
}

}  // namespace
}  // namespace clustar::gpu_check

int main(int argc, char** argv) { return clustar::gpu_check::main_of(argc, argv); }
