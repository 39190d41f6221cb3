// What the CUDA module does on a real GPU: memory of every kind, dma-bufs, flush, copies. scripts/gpu-check runs it.

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include "tests/gpu/gdr_check_parts.h"
#include "transport/module.h"

namespace clustar::gdr_check {
namespace {

constexpr int kSkip = 77;
constexpr const char* kUsage =
    "usage: gdr-check [--device N] [--max BYTES] [--rounds N] [--modules DIR] [--json FILE]\n"
    "                 [--behind-only 1]\n"
    "  What the CUDA driver says of GPU memory of each kind, which of it is exported as a dma-buf, how long a flush "
    "of\n"
    "  GPUDirect writes takes, and what staging through host memory costs, by three ways in turns.\n"
    "  --device   CUDA's number (default 0)\n"
    "  --max      largest message, 65536 to 1073741824 (default 67108864)\n"
    "  --rounds   of each way and size, 1 to 1000 (default 9)\n"
    "  --modules  folder of libclustar-cuda.so (default: lib beside this program's folder)\n"
    "  --behind-only  1: only whether copies end while kernels wait, as with CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    "  Example: gdr-check --json /tmp/gdr.json\n"
    "Exit status: 0 all bytes arrived, 1 failed, 2 wrong usage, 77 no GPU here. A dma-buf that the driver refuses is "
    "an\n"
    "answer, no failure.\n";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Options parse(int argc, char** argv) {
  Options options;
  options.modules = (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib").string();
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) throw UsageError(option + " needs a value");
    const std::string value = argv[i + 1];
    try {
      if (option == "--device") {
        options.device = std::stoi(value);
      } else if (option == "--max") {
        options.most_bytes = std::stoull(value);
      } else if (option == "--rounds") {
        options.rounds = std::stoi(value);
      } else if (option == "--modules") {
        options.modules = value;
      } else if (option == "--behind-only") {
        options.behind_only = std::stoi(value) != 0;
      } else if (option == "--json") {
        options.json = value;
      } else {
        throw UsageError("unknown option '" + option + "'");
      }
    } catch (const std::logic_error&) {
      throw UsageError(option + ": '" + value + "' is not a number");
    }
  }
  if (options.most_bytes < (64u << 10) || options.most_bytes > (1u << 30)) {
    throw UsageError("--max must be 65536 to 1073741824");
  }
  if (options.rounds < 1 || options.rounds > 1000) throw UsageError("--rounds must be 1 to 1000");
  if (options.device < 0) throw UsageError("--device must be at least 0");
  return options;
}

int skip(const std::string& why) {
  std::printf("SKIP: no CUDA device here: %s\n", why.c_str());
  return kSkip;
}

// Wrong bytes, dma-bufs of another size than was said, copies that a kernel held up, captures that were broken.
int count_failures(const nlohmann::json& document) {
  int failures = 0;
  for (const auto& row : document.value("staging", nlohmann::json::array()))
    failures += row.at("wrong_rounds") > 0 ? 1 : 0;
  for (const auto& row : document.value("memory", nlohmann::json::array())) {
    for (const auto& exported : row.value("exports", nlohmann::json::array())) {
      if (exported.at("exported")) failures += exported.at("end_of_fd") == exported.at("size") ? 0 : 1;
    }
  }
  for (const auto& row : document.value("beside_others", nlohmann::json::array())) {
    if (row.contains("capture")) failures += row.at("ended") && row.at("capture") == "CUDA_SUCCESS" ? 0 : 1;
  }
  for (const auto& row : document.at("behind_a_kernel")) failures += row.at("ended_while_the_kernel_waited") ? 0 : 1;
  return failures;
}

// On the GPU's primary context, which is current.
nlohmann::json look(const Driver& driver, const Options& options, CUdevice device) {
  const auto module = transport::Module::open(options.modules, "cuda");
  if (!module) throw std::runtime_error(module.error().message);
  const auto api = gdr::cuda::api_of([&](const char* name) { return module->find(name); });
  if (!api) throw std::runtime_error("libclustar-cuda.so in " + options.modules + " is of another build");
  if (options.behind_only) return {{"behind_a_kernel", copy_behind_a_kernel(driver, *api, options)}};
  char gpu[128] = "";
  int version = 0;
  driver.cuDeviceGetName(gpu, sizeof(gpu) - 1, device);
  driver.cuDriverGetVersion(&version);
  const auto attribute = [&](CUdevice_attribute which) -> nlohmann::json {
    int value = 0;
    const CUresult result = driver.cuDeviceGetAttribute(&value, which, device);
    if (result != CUDA_SUCCESS) return driver.name_of(result);
    return value;
  };
  return {{"gpu", gpu},
          {"device", options.device},
          {"cuda_version", version},
          {"attributes",
           {{"gpu_direct_rdma", attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)},
            {"flush_options", attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)},
            {"writes_ordering", attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)},
            {"dma_buf", attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)},
            {"gpu_direct_with_vmm", attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)}}},
          {"memory", look_at_memory(driver, *api, options)},
          {"flush", time_flush(*api, options)},
          {"behind_a_kernel", copy_behind_a_kernel(driver, *api, options)},
          {"beside_others", copy_beside_others(driver, *api, options)},
          {"staging", stage(driver, *api, options)}};
}

int run(const Options& options) {
  Driver driver;
  if (const std::string why = driver.open(); !why.empty()) return skip(why);
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    return skip("cuInit: " + driver.name_of(result));
  int devices = 0;
  driver.check(driver.cuDeviceGetCount(&devices), "cuDeviceGetCount");
  if (devices == 0) return skip("cuDeviceGetCount counts none");
  CUdevice device = 0;
  driver.check(driver.cuDeviceGet(&device, options.device), "cuDeviceGet");
  CUcontext context = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  driver.check(driver.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  const nlohmann::json document = look(driver, options, device);
  driver.cuCtxPopCurrent(&context);
  driver.cuDevicePrimaryCtxRelease(device);
  if (!options.json.empty()) {
    std::ofstream out(options.json);
    out << document.dump(1) << "\n";
    if (!out.flush()) throw std::runtime_error("cannot write --json '" + options.json + "'");
  }
  const int failures = count_failures(document);
  const auto rows = [&](const char* part) { return document.value(part, nlohmann::json::array()).size(); };
  std::printf("%zu kinds of memory, %zu rows of staging, %zu copies behind kernels; %d wrong\n", rows("memory"),
              rows("staging"), rows("behind_a_kernel"), failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace clustar::gdr_check

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(clustar::gdr_check::kUsage, stdout);
    return 0;
  }
  try {
    return clustar::gdr_check::run(clustar::gdr_check::parse(argc, argv));
  } catch (const clustar::gdr_check::UsageError& error) {
    std::fprintf(stderr, "gdr-check: %s\n%s", error.what(), clustar::gdr_check::kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gdr-check: %s\n", error.what());
    return 1;
  }
}
