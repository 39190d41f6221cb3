// What this project declares of cuBLAS and cuDNN, compared by the compiler to NVIDIA's headers, where they are.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "bench/trainer/graph/cuda/libraries/cublas_calls.h"
#include "bench/trainer/graph/cuda/libraries/cudnn_calls.h"

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define CLUSTAR_HAVE_CUBLAS_HEADER
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define CLUSTAR_HAVE_CUDNN_HEADER
#endif

namespace clustar::bench::trainer::graph::cuda {
namespace {

#if defined(CLUSTAR_HAVE_CUBLAS_HEADER) || defined(CLUSTAR_HAVE_CUDNN_HEADER)
// cuDNN calls the functions deprecated that its graph interface replaces.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// A type of NVIDIA's as this project passes it: enumerations as int, pointers to what is not known inside as void*.
template <class Type>
struct Passed {
  using type = Type;
};
template <class Type>
requires std::is_enum_v<Type>
struct Passed<Type> {
  static_assert(sizeof(Type) == sizeof(int));
  using type = int;
};
template <class Type>
requires std::is_class_v<Type>
struct Passed<Type*> {
  using type = void*;
};
template <class Type>
requires std::is_class_v<Type>
struct Passed<Type**> {
  using type = void**;
};
#ifdef CLUSTAR_HAVE_CUDNN_HEADER
template <>
struct Passed<cudnnConvolutionFwdAlgoPerf_t*> {
  using type = CudnnAlgorithm*;
};
template <>
struct Passed<cudnnConvolutionBwdDataAlgoPerf_t*> {
  using type = CudnnAlgorithm*;
};
template <>
struct Passed<cudnnConvolutionBwdFilterAlgoPerf_t*> {
  using type = CudnnAlgorithm*;
};
#endif
template <class Result, class... Arguments>
struct Passed<Result (*)(Arguments...)> {
  using type = typename Passed<Result>::type (*)(typename Passed<Arguments>::type...);
};

// Of a function of NVIDIA's and one of ours.
template <class Theirs, class Ours>
constexpr bool kSame = std::is_same_v<typename Passed<Theirs>::type, Ours>;
#endif

#ifdef CLUSTAR_HAVE_CUBLAS_HEADER
static_assert(kSame<decltype(&cublasCreate_v2), decltype(CublasCalls::create)>);
static_assert(kSame<decltype(&cublasDestroy_v2), decltype(CublasCalls::destroy)>);
static_assert(kSame<decltype(&cublasGetProperty), decltype(CublasCalls::get_property)>);
static_assert(kSame<decltype(&cublasSetStream_v2), decltype(CublasCalls::set_stream)>);
static_assert(kSame<decltype(&cublasSetMathMode), decltype(CublasCalls::set_math_mode)>);
static_assert(kSame<decltype(&cublasSetAtomicsMode), decltype(CublasCalls::set_atomics_mode)>);
static_assert(kSame<decltype(&cublasGetStatusString), decltype(CublasCalls::status_string)>);
static_assert(kSame<decltype(&cublasSgemm_v2), decltype(CublasCalls::sgemm)>);
static_assert(CUBLAS_STATUS_SUCCESS == kCublasSuccess);
static_assert(CUBLAS_OP_N == kCublasNoTranspose && CUBLAS_OP_T == kCublasTranspose);
static_assert(MAJOR_VERSION == kCublasMajor && MINOR_VERSION == kCublasMinor);
static_assert(CUBLAS_DEFAULT_MATH == kCublasDefaultMath && CUBLAS_ATOMICS_NOT_ALLOWED == kCublasNoAtomics);
#endif

TEST(Declarations, OfCublasAreThoseOfItsHeader) {
#ifndef CLUSTAR_HAVE_CUBLAS_HEADER
  GTEST_SKIP() << "cublas_v2.h is not here";
#endif
}

#ifdef CLUSTAR_HAVE_CUDNN_HEADER
static_assert(kSame<decltype(&cudnnCreate), decltype(CudnnCalls::create)>);
static_assert(kSame<decltype(&cudnnDestroy), decltype(CudnnCalls::destroy)>);
static_assert(kSame<decltype(&cudnnSetStream), decltype(CudnnCalls::set_stream)>);
static_assert(kSame<decltype(&cudnnGetErrorString), decltype(CudnnCalls::error_string)>);
static_assert(kSame<decltype(&cudnnGetVersion), decltype(CudnnCalls::get_version)>);
static_assert(kSame<decltype(&cudnnCreateTensorDescriptor), decltype(CudnnCalls::create_tensor)>);
static_assert(kSame<decltype(&cudnnSetTensor4dDescriptor), decltype(CudnnCalls::set_tensor)>);
static_assert(kSame<decltype(&cudnnDestroyTensorDescriptor), decltype(CudnnCalls::destroy_tensor)>);
static_assert(kSame<decltype(&cudnnCreateFilterDescriptor), decltype(CudnnCalls::create_filter)>);
static_assert(kSame<decltype(&cudnnSetFilter4dDescriptor), decltype(CudnnCalls::set_filter)>);
static_assert(kSame<decltype(&cudnnDestroyFilterDescriptor), decltype(CudnnCalls::destroy_filter)>);
static_assert(kSame<decltype(&cudnnCreateConvolutionDescriptor), decltype(CudnnCalls::create_convolution)>);
static_assert(kSame<decltype(&cudnnSetConvolution2dDescriptor), decltype(CudnnCalls::set_convolution)>);
static_assert(kSame<decltype(&cudnnSetConvolutionMathType), decltype(CudnnCalls::set_math)>);
static_assert(kSame<decltype(&cudnnDestroyConvolutionDescriptor), decltype(CudnnCalls::destroy_convolution)>);
static_assert(kSame<decltype(&cudnnGetConvolutionForwardAlgorithm_v7), CudnnCalls::Algorithms>);
static_assert(kSame<decltype(&cudnnGetConvolutionBackwardDataAlgorithm_v7), CudnnCalls::Algorithms>);
static_assert(kSame<decltype(&cudnnGetConvolutionBackwardFilterAlgorithm_v7), CudnnCalls::Algorithms>);
static_assert(kSame<decltype(&cudnnGetConvolutionForwardWorkspaceSize), CudnnCalls::WorkspaceSize>);
static_assert(kSame<decltype(&cudnnGetConvolutionBackwardDataWorkspaceSize), CudnnCalls::WorkspaceSize>);
static_assert(kSame<decltype(&cudnnGetConvolutionBackwardFilterWorkspaceSize), CudnnCalls::WorkspaceSize>);
static_assert(kSame<decltype(&cudnnConvolutionForward), CudnnCalls::Convolve>);
static_assert(kSame<decltype(&cudnnConvolutionBackwardData), CudnnCalls::Convolve>);
static_assert(kSame<decltype(&cudnnConvolutionBackwardFilter), CudnnCalls::Convolve>);
static_assert(CUDNN_STATUS_SUCCESS == kCudnnSuccess && CUDNN_DATA_FLOAT == kCudnnFloat);
static_assert(CUDNN_TENSOR_NHWC == kCudnnNhwc && CUDNN_CROSS_CORRELATION == kCudnnCrossCorrelation);
static_assert(CUDNN_DEFAULT_MATH == kCudnnDefaultMath && CUDNN_FMA_MATH == kCudnnFmaMath);
static_assert(CUDNN_DETERMINISTIC == kCudnnDeterministic);
static_assert(CUDNN_STATUS_NOT_SUPPORTED == (CUDNN_MAJOR < 9 ? kCudnn8NotSupported : kCudnnNotSupported));

template <class Theirs>
constexpr bool kLaidOutAlike = sizeof(Theirs) == sizeof(CudnnAlgorithm) &&
                               offsetof(Theirs, algo) == offsetof(CudnnAlgorithm, algorithm) &&
                               offsetof(Theirs, status) == offsetof(CudnnAlgorithm, status) &&
                               offsetof(Theirs, time) == offsetof(CudnnAlgorithm, time) &&
                               offsetof(Theirs, memory) == offsetof(CudnnAlgorithm, memory) &&
                               offsetof(Theirs, determinism) == offsetof(CudnnAlgorithm, determinism) &&
                               offsetof(Theirs, mathType) == offsetof(CudnnAlgorithm, math);
static_assert(kLaidOutAlike<cudnnConvolutionFwdAlgoPerf_t>);
static_assert(kLaidOutAlike<cudnnConvolutionBwdDataAlgoPerf_t>);
static_assert(kLaidOutAlike<cudnnConvolutionBwdFilterAlgoPerf_t>);
#endif

TEST(Declarations, OfCudnnAreThoseOfItsHeaders) {
#ifndef CLUSTAR_HAVE_CUDNN_HEADER
  GTEST_SKIP() << "cudnn.h is not here";
#endif
}

}  // namespace
}  // namespace clustar::bench::trainer::graph::cuda
