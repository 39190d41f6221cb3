#include "bench/trainer/graph/cuda/libraries/cublas.h"

#include <fmt/format.h>

#include "bench/trainer/graph/cuda/launches.h"
#include "bench/trainer/graph/cuda/libraries/library.h"

namespace clustar::bench::trainer::graph::cuda {

using gdr::launch::Device;

Result<std::unique_ptr<Cublas>> Cublas::open(Device& device, const std::string& library) {
  std::unique_ptr<Cublas> made(new Cublas(device));
  if (auto ok = made->start(library); !ok) return fail(ErrorCode::kUnavailable, ok.error().message);
  return made;
}

Result<void> Cublas::start(const std::string& library) {
  const LibraryEntry entries[] = {{"cublasCreate_v2", &calls_.create},
                                  {"cublasDestroy_v2", &calls_.destroy},
                                  {"cublasGetProperty", &calls_.get_property},
                                  {"cublasSetStream_v2", &calls_.set_stream},
                                  {"cublasSetMathMode", &calls_.set_math_mode},
                                  {"cublasSetAtomicsMode", &calls_.set_atomics_mode},
                                  {"cublasGetStatusString", &calls_.status_string},
                                  {"cublasSgemm_v2", &calls_.sgemm}};
  LibraryChoice choice{.what = "cuBLAS", .names = {library}, .emulated = device_.emulated()};
  if (library.empty()) choice.names = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
  if (auto opened = open_library(choice, entries); !opened) return tl::unexpected(opened.error());
  const Device::InContext here(device_);
  void* handle = nullptr;
  if (auto ok = check(calls_.create(&handle), "cublasCreate_v2"); !ok) return ok;
  handle_ = handle;
  int major = 0;
  int minor = 0;
  if (auto ok = check(calls_.get_property(kCublasMajor, &major), "cublasGetProperty"); !ok) return ok;
  if (auto ok = check(calls_.get_property(kCublasMinor, &minor), "cublasGetProperty"); !ok) return ok;
  version_ = fmt::format("{}.{}", major, minor);
  if (auto ok = check(calls_.set_stream(handle_, device_.stream()), "cublasSetStream_v2"); !ok) return ok;
  if (auto ok = check(calls_.set_math_mode(handle_, kCublasDefaultMath), "cublasSetMathMode"); !ok) return ok;
  return check(calls_.set_atomics_mode(handle_, kCublasNoAtomics), "cublasSetAtomicsMode");
}

Cublas::~Cublas() {
  if (handle_ == nullptr) return;
  const Device::InContext here(device_);
  calls_.destroy(handle_);
}

Result<void> Cublas::check(int status, const std::string& call) const {
  if (status == kCublasSuccess) return {};
  const char* const name = calls_.status_string(status);
  return fail(ErrorCode::kSystem,
              fmt::format("cuBLAS: {} ({}) in {}", name == nullptr ? "an unknown status" : name, status, call));
}

// A row-major matrix is its transpose to cuBLAS, whose matrices are column-major: C^T = op(B)^T op(A)^T.
void Cublas::multiply(Form form, const float* a, const float* b, float* c, std::size_t m, std::size_t n,
                      std::size_t k) {
  if (m == 0 || n == 0) return;
  const bool a_transposed = form == Form::kTn;
  const bool b_transposed = form == Form::kNt;
  const int rows = dimension(m);
  const int columns = dimension(n);
  const int depth = dimension(k);
  const float one = 1;
  const float zero = 0;
  const int a_stride = a_transposed ? rows : depth;
  const int b_stride = b_transposed ? depth : columns;
  const Device::InContext here(device_);
  const int status = calls_.sgemm(handle_, b_transposed ? kCublasTranspose : kCublasNoTranspose,
                                  a_transposed ? kCublasTranspose : kCublasNoTranspose, columns, rows, depth, &one, b,
                                  b_stride, a, a_stride, &zero, c, columns);
  if (status != kCublasSuccess) checked(check(status, fmt::format("cublasSgemm_v2 of {}x{}x{}", m, n, k)));
}

}  // namespace clustar::bench::trainer::graph::cuda
