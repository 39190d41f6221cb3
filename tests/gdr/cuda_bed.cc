#include "tests/gdr/cuda_bed.h"

#include <dlfcn.h>

#include "transport/module.h"

namespace clustar::tests {
namespace {

Result<CudaBed> load() {
  // Before the module, whose own need of a libcuda.so.1 is met by it then.
  void* library = dlopen(CLUSTAR_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(ErrorCode::kUnavailable, dlerror());
  const auto* driver = static_cast<const FakeCuda*>(dlsym(library, kFakeCudaSymbol));
  if (driver == nullptr) return fail(ErrorCode::kUnavailable, "this libcuda.so.1 is not the fake one");
  static Result<transport::Module> module = transport::Module::open(CLUSTAR_MODULES, "cuda");
  if (!module) return tl::unexpected(module.error());
  const auto api = gdr::cuda::api_of([](const char* name) { return module->find(name); });
  if (!api) return fail(ErrorCode::kUnavailable, "the module offers not all of module_api.h");
  return CudaBed{driver, *api};
}

}  // namespace

Result<CudaBed> cuda_bed() {
  static const Result<CudaBed> bed = load();
  return bed;
}

Result<CudaBed> cuda_bed(const std::string& fixture) {
  auto bed = cuda_bed();
  if (!bed) return bed;
  const std::string problem = bed->driver->load(std::string(CLUSTAR_CUDA_DRIVERS) + "/" + fixture + ".txt");
  if (!problem.empty()) return fail(ErrorCode::kInvalidArgument, problem);
  return bed;
}

}  // namespace clustar::tests
