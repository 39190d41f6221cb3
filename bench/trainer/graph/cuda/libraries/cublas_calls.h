// The functions and values of cuBLAS that are used, as cublas_api.h of CUDA 11.4 to 13.0 declares them; the test
// tests/gdr/emulated_libraries/declarations_test.cc compares them to that header where there is one. Enumerations are
// int, cublasHandle_t and cudaStream_t void*.
#pragma once

namespace clustar::bench::trainer::graph::cuda {

inline constexpr int kCublasSuccess = 0;
inline constexpr int kCublasNoTranspose = 0;  // CUBLAS_OP_N
inline constexpr int kCublasTranspose = 1;    // CUBLAS_OP_T
inline constexpr int kCublasDefaultMath = 0;  // float32 products in float32: TF32 is a mode of its own
inline constexpr int kCublasMajor = 0;        // MAJOR_VERSION, of libraryPropertyType
inline constexpr int kCublasMinor = 1;        // MINOR_VERSION
inline constexpr int kCublasNoAtomics = 0;    // CUBLAS_ATOMICS_NOT_ALLOWED

struct CublasCalls {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  // Not cublasGetVersion_v2, whose number has other places in cuBLAS 11 (11605 and 12103) than later (120103).
  int (*get_property)(int property, int* value) = nullptr;
  int (*set_stream)(void* handle, void* stream) = nullptr;
  int (*set_math_mode)(void* handle, int mode) = nullptr;
  int (*set_atomics_mode)(void* handle, int mode) = nullptr;
  const char* (*status_string)(int status) = nullptr;
  // Column-major; alpha and beta in host memory.
  int (*sgemm)(void* handle, int a_operation, int b_operation, int m, int n, int k, const float* alpha, const float* a,
               int a_stride, const float* b, int b_stride, const float* beta, float* c, int c_stride) = nullptr;
};

}  // namespace clustar::bench::trainer::graph::cuda
