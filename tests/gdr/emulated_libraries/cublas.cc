// A stand-in for libcublas.so on the emulated device: what bench/trainer/graph/cuda/libraries calls, as cuBLAS's
// documentation (cublas<t>gemm) has it, stricter where a GPU would only fail later. It is no cuBLAS: NVIDIA's was not
// run.
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "bench/trainer/graph/cuda/libraries/cublas_calls.h"
#include "tests/gdr/emulated_libraries/stand_in.h"

namespace {

using namespace clustar::emulated;
using clustar::bench::trainer::graph::cuda::CublasCalls;

// Of cublasStatus_t.
constexpr int kSuccess = 0, kNotInitialized = 1, kInvalidValue = 7, kExecutionFailed = 13;

struct Handle {
  void* stream = nullptr;
  int math = 0;
};
Living<Handle> handles;

struct Matrix {
  const float* values;
  int stride;
  bool transposed;
  double at(int row, int column) const {
    return double{transposed ? values[static_cast<std::ptrdiff_t>(row) * stride + column]
                             : values[static_cast<std::ptrdiff_t>(column) * stride + row]};
  }
};

// Of a column-major matrix.
std::size_t bytes_of(int rows, int columns, int stride) {
  return rows == 0 || columns == 0 ? 0
                                   : (static_cast<std::size_t>(stride) * static_cast<std::size_t>(columns - 1) +
                                      static_cast<std::size_t>(rows)) *
                                         sizeof(float);
}

bool readable(const Matrix& matrix, int rows, int columns) {
  if (matrix.transposed) std::swap(rows, columns);
  const std::size_t bytes = bytes_of(rows, columns, matrix.stride);
  return bytes == 0 || on_device(matrix.values, bytes);
}

int begin(const char* function, const void* handle) {
  if (handles.find(handle) == nullptr || !has_context()) return kNotInitialized;
  return planted_fault(function);
}

}  // namespace

EMULATED_EXPORT int clustar_emulated_library() { return static_cast<int>(handles.count()); }

EMULATED_EXPORT int cublasCreate_v2(void** handle) {
  if (handle == nullptr) return kInvalidValue;
  if (!has_context()) return kNotInitialized;
  if (const int fault = planted_fault("cublasCreate_v2"); fault != kSuccess) return fault;
  *handle = handles.make();
  return kSuccess;
}
EMULATED_EXPORT int cublasDestroy_v2(void* handle) { return handles.destroy(handle) ? kSuccess : kNotInitialized; }
EMULATED_EXPORT int cublasGetProperty(int property, int* value) {
  if (value == nullptr || property < 0 || property > 2) return kInvalidValue;
  if (const int fault = planted_fault("cublasGetProperty"); fault != kSuccess) return fault;
  return *value = property == 0 ? 13 : 0, kSuccess;
}
EMULATED_EXPORT int cublasSetStream_v2(void* handle, void* stream) {
  if (const int wrong = begin("cublasSetStream_v2", handle); wrong != kSuccess) return wrong;
  return handles.find(handle)->stream = stream, kSuccess;
}
EMULATED_EXPORT int cublasSetMathMode(void* handle, int mode) {
  if (const int wrong = begin("cublasSetMathMode", handle); wrong != kSuccess) return wrong;
  return mode == 0 || mode == 2 ? kSuccess : kInvalidValue;  // what keeps to float32
}
EMULATED_EXPORT int cublasSetAtomicsMode(void* handle, int mode) {
  if (const int wrong = begin("cublasSetAtomicsMode", handle); wrong != kSuccess) return wrong;
  return mode == 0 ? kSuccess : kInvalidValue;
}
EMULATED_EXPORT const char* cublasGetStatusString(int status) {
  switch (status) {
    case kSuccess: return "emulated CUBLAS_STATUS_SUCCESS";
    case kNotInitialized: return "emulated CUBLAS_STATUS_NOT_INITIALIZED";
    case kInvalidValue: return "emulated CUBLAS_STATUS_INVALID_VALUE";
    case kExecutionFailed: return "emulated CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "emulated, an unknown status";
  }
}

EMULATED_EXPORT int cublasSgemm_v2(void* handle, int a_operation, int b_operation, int m, int n, int k,
                                   const float* alpha, const float* a, int a_stride, const float* b, int b_stride,
                                   const float* beta, float* c, int c_stride) {
  if (const int wrong = begin("cublasSgemm_v2", handle); wrong != kSuccess) return wrong;
  const auto known = [](int operation) { return operation == 0 || operation == 1; };
  if (m < 0 || n < 0 || k < 0 || !known(a_operation) || !known(b_operation)) return kInvalidValue;
  const Matrix left{a, a_stride, a_operation == 1};
  const Matrix right{b, b_stride, b_operation == 1};
  if (a_stride < std::max(1, left.transposed ? k : m) || b_stride < std::max(1, right.transposed ? n : k) ||
      c_stride < std::max(1, m) || alpha == nullptr || beta == nullptr || c == nullptr) {
    return kInvalidValue;
  }
  if (m == 0 || n == 0) return kSuccess;
  if (!readable(left, m, k) || !readable(right, k, n) || !on_device(c, bytes_of(m, n, c_stride))) {
    return kExecutionFailed;
  }
  enqueue(handles.find(handle)->stream, [=, factor = double{*alpha}, kept = double{*beta}] {
    for (int column = 0; column < n; ++column) {
      for (int row = 0; row < m; ++row) {
        double sum = 0;
        for (int depth = 0; depth < k; ++depth) sum += left.at(row, depth) * right.at(depth, column);
        float& result = c[static_cast<std::ptrdiff_t>(column) * c_stride + row];
        // With beta 0 what is there is not read.
        result = static_cast<float>(factor * sum + (kept == 0 ? 0 : kept * double{result}));
      }
    }
  });
  return kSuccess;
}

static_assert(std::is_same_v<decltype(&cublasSgemm_v2), decltype(CublasCalls::sgemm)>);
