// The functions and values of cuDNN that are used, as the headers of cuDNN 8 and 9 (cudnn_ops, cudnn_cnn) declare them;
// the test tests/gdr/emulated_libraries/declarations_test.cc compares them to those where they are. Enumerations are
// int; handles, descriptors and cudaStream_t void*.
#pragma once

#include <cstddef>

namespace clustar::bench::trainer::graph::cuda {

inline constexpr int kCudnnSuccess = 0;
inline constexpr int kCudnnNotSupported = 3000;   // CUDNN_STATUS_NOT_SUPPORTED
inline constexpr int kCudnn8NotSupported = 9;     // of cuDNN 8, where 9 has no such status
inline constexpr int kCudnnFloat = 0;             // CUDNN_DATA_FLOAT
inline constexpr int kCudnnNhwc = 1;              // CUDNN_TENSOR_NHWC
inline constexpr int kCudnnCrossCorrelation = 1;  // CUDNN_CROSS_CORRELATION
inline constexpr int kCudnnDefaultMath = 0;       // CUDNN_DEFAULT_MATH: lets float32 be TF32
inline constexpr int kCudnnFmaMath = 3;           // CUDNN_FMA_MATH: keeps to float32
inline constexpr int kCudnnDeterministic = 1;     // CUDNN_DETERMINISTIC

// cudnnConvolutionFwdAlgoPerf_t, and those of both backward directions, which are alike.
struct CudnnAlgorithm {
  int algorithm = 0;
  int status = 0;
  float time = 0;
  std::size_t memory = 0;  // bytes of workspace
  int determinism = 0;
  int math = 0;
  int reserved[3] = {};
};

// Sizes are n, c, h, w in this order, whatever the format.
struct CudnnCalls {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, void* stream) = nullptr;
  const char* (*error_string)(int status) = nullptr;
  std::size_t (*get_version)() = nullptr;
  int (*create_tensor)(void** descriptor) = nullptr;
  int (*set_tensor)(void* descriptor, int format, int type, int n, int c, int h, int w) = nullptr;
  int (*destroy_tensor)(void* descriptor) = nullptr;
  int (*create_filter)(void** descriptor) = nullptr;
  int (*set_filter)(void* descriptor, int type, int format, int k, int c, int h, int w) = nullptr;
  int (*destroy_filter)(void* descriptor) = nullptr;
  int (*create_convolution)(void** descriptor) = nullptr;
  int (*set_convolution)(void* descriptor, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                         int dilation_w, int mode, int type) = nullptr;
  int (*set_math)(void* descriptor, int math) = nullptr;
  int (*destroy_convolution)(void* descriptor) = nullptr;
  // Of two operands' descriptors, the convolution's and the result's: x, w, y forward; w, dy, dx and x, dy, dw
  // backward.
  using Algorithms = int (*)(void* handle, void* first, void* second, void* convolution, void* result, int asked,
                             int* returned, CudnnAlgorithm* algorithms);
  using WorkspaceSize = int (*)(void* handle, void* first, void* second, void* convolution, void* result, int algorithm,
                                std::size_t* bytes);
  using Convolve = int (*)(void* handle, const void* alpha, void* first_descriptor, const void* first,
                           void* second_descriptor, const void* second, void* convolution, int algorithm,
                           void* workspace, std::size_t workspace_bytes, const void* beta, void* result_descriptor,
                           void* result);
  Algorithms forward_algorithms = nullptr;
  Algorithms data_algorithms = nullptr;
  Algorithms filter_algorithms = nullptr;
  WorkspaceSize forward_workspace = nullptr;
  WorkspaceSize data_workspace = nullptr;
  WorkspaceSize filter_workspace = nullptr;
  Convolve forward = nullptr;
  Convolve backward_data = nullptr;
  Convolve backward_filter = nullptr;
};

}  // namespace clustar::bench::trainer::graph::cuda
