// A stand-in for libcudnn.so on the emulated device: what bench/trainer/graph/cuda/libraries calls, as cuDNN's
// documentation has it, stricter where a GPU would only fail later. It is no cuDNN: NVIDIA's was not run. What a run
// should not take shows: the algorithm that is not deterministic gives other bits in each call, and a convolution that
// is not held to float32 rounds its operands to TF32's ten bits.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>

#include "bench/trainer/graph/cuda/libraries/cudnn_calls.h"
#include "tests/gdr/emulated_libraries/stand_in.h"

namespace {

using namespace clustar::emulated;
using clustar::bench::trainer::graph::cuda::CudnnAlgorithm;
using clustar::bench::trainer::graph::cuda::CudnnCalls;

// Of cudnnStatus_t.
constexpr int kSuccess = 0, kNotInitialized = 1001, kBadParam = 2000, kNotSupported = 3000, kExecutionFailed = 5000;
constexpr int kNotDeterministic = 0, kGood = 1, kUnsupported = 4, kTooLarge = 5;  // algorithms
constexpr int kNoneDeterministic = -1;  // a fault: no other algorithm is offered
constexpr int kFma = 3;

struct Handle {
  void* stream = nullptr;
};
// Of a tensor, or of a filter, whose sizes are k, c, h, w.
struct Sizes {
  int format = -1;  // not set
  int n = 0, c = 0, h = 0, w = 0;

  std::size_t bytes() const {
    return static_cast<std::size_t>(n) * static_cast<std::size_t>(c) * static_cast<std::size_t>(h) *
           static_cast<std::size_t>(w) * sizeof(float);
  }
  std::ptrdiff_t at(std::ptrdiff_t image, std::ptrdiff_t channel, std::ptrdiff_t row, std::ptrdiff_t column) const {
    return format == 1 ? ((image * h + row) * w + column) * c + channel
                       : ((image * c + channel) * h + row) * w + column;
  }
};
struct Tensor : Sizes {};
struct Filter : Sizes {};
struct Convolution {
  int pad_h = 0, pad_w = 0, stride_h = 0, stride_w = 0;  // 0: not set
  int dilation_h = 1, dilation_w = 1;
  bool flips = false;
  int math = 0;
};

Living<Handle> handles;
Living<Tensor> tensors;
Living<Filter> filters;
Living<Convolution> convolutions;
std::uint32_t draws = 0;

int begin(const char* function, const void* handle) {
  if (handles.find(handle) == nullptr || !has_context()) return kNotInitialized;
  return planted_fault(function);
}

bool known_format(int format) { return format == 0 || format == 1; }

int out_size(int in, int pad, int window, int stride, int dilation) {
  return (in + 2 * pad - ((window - 1) * dilation + 1)) / stride + 1;
}

// The three descriptors of a convolution that fit; x null where they do not.
struct Problem {
  const Tensor* x = nullptr;
  const Filter* w = nullptr;
  const Tensor* y = nullptr;
  Convolution how;
};
Problem problem_of(const void* x_handle, const void* w_handle, const void* y_handle, const void* how_handle) {
  const Tensor* const x = tensors.find(x_handle);
  const Filter* const w = filters.find(w_handle);
  const Tensor* const y = tensors.find(y_handle);
  const Convolution* const how = convolutions.find(how_handle);
  if (x == nullptr || w == nullptr || y == nullptr || how == nullptr || how->stride_h == 0) return {};
  if (!known_format(x->format) || !known_format(w->format) || !known_format(y->format)) return {};
  const bool fits = x->c == w->c && y->c == w->n && x->n == y->n &&
                    y->h == out_size(x->h, how->pad_h, w->h, how->stride_h, how->dilation_h) &&
                    y->w == out_size(x->w, how->pad_w, w->w, how->stride_w, how->dilation_w);
  return fits ? Problem{x, w, y, *how} : Problem{};
}

std::size_t needed(const Problem& of) { return of.w->bytes() + 4; }

// In the order that a run has to look through.
int algorithms(const char* function, const void* handle, const Problem& of, int asked, int* returned,
               CudnnAlgorithm* all) {
  const int fault = begin(function, handle);
  if (fault != kSuccess && fault != kNoneDeterministic) return fault;
  if (of.x == nullptr || asked < 1 || returned == nullptr || all == nullptr) return kBadParam;
  const std::size_t bytes = needed(of);
  const CudnnAlgorithm offers[] = {{.algorithm = kNotDeterministic, .memory = bytes, .math = kFma},
                                   {.algorithm = kUnsupported, .status = kNotSupported, .determinism = 1, .math = kFma},
                                   {.algorithm = kGood, .memory = bytes, .determinism = 1, .math = 1},
                                   {.algorithm = kTooLarge, .memory = bytes, .determinism = 1, .math = kFma},
                                   {.algorithm = kGood, .memory = bytes, .determinism = 1, .math = kFma}};
  *returned = fault == kNoneDeterministic ? 1 : std::min(asked, static_cast<int>(std::size(offers)));
  std::copy_n(offers, *returned, all);
  return kSuccess;
}

int workspace(const char* function, const void* handle, const Problem& of, int algorithm, std::size_t* bytes) {
  if (const int wrong = begin(function, handle); wrong != kSuccess) return wrong;
  if (of.x == nullptr || bytes == nullptr) return kBadParam;
  switch (algorithm) {
    case kNotDeterministic:
    case kGood: return *bytes = needed(of), kSuccess;
    case kTooLarge: return *bytes = std::size_t{1} << 40, kSuccess;
    default: return kNotSupported;
  }
}

double operand(float value, int math) {
  return double{math == kFma ? value : std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000u)};
}

// act(x's index, w's index, y's index) for each product.
template <class Act>
void for_products(const Sizes& x, const Sizes& w, const Sizes& y, const Convolution& how, const Act& act) {
  for (int n = 0; n < y.n; ++n) {
    for (int k = 0; k < y.c; ++k) {
      for (int p = 0; p < y.h; ++p) {
        for (int q = 0; q < y.w; ++q) {
          for (int r = 0; r < w.h; ++r) {
            const int row = p * how.stride_h + r * how.dilation_h - how.pad_h;
            if (row < 0 || row >= x.h) continue;
            for (int s = 0; s < w.w; ++s) {
              const int column = q * how.stride_w + s * how.dilation_w - how.pad_w;
              if (column < 0 || column >= x.w) continue;
              for (int c = 0; c < x.c; ++c) {
                act(x.at(n, c, row, column), w.at(k, c, how.flips ? w.h - 1 - r : r, how.flips ? w.w - 1 - s : s),
                    y.at(n, k, p, q));
              }
            }
          }
        }
      }
    }
  }
}

struct Call {
  const char* function;
  void* handle;
  const void* alpha;
  const void* first;
  const void* second;
  int algorithm;
  void* workspace;
  std::size_t workspace_bytes;
  const void* beta;
  void* result;
};

enum class Wanted { kY, kX, kW };

int convolve(const Call& call, const Problem& of, Wanted wanted) {
  if (const int wrong = begin(call.function, call.handle); wrong != kSuccess) return wrong;
  if (of.x == nullptr || call.alpha == nullptr || call.beta == nullptr) return kBadParam;
  if (call.algorithm != kNotDeterministic && call.algorithm != kGood) return kNotSupported;
  if (call.workspace_bytes < needed(of) || !on_device(call.workspace, call.workspace_bytes)) return kBadParam;
  const Sizes x = *of.x, w = *of.w, y = *of.y;
  const Sizes& first = wanted == Wanted::kX ? w : x;
  const Sizes& second = wanted == Wanted::kY ? w : y;
  const Sizes& result = wanted == Wanted::kX ? x : wanted == Wanted::kW ? w : y;
  if (!on_device(call.first, first.bytes()) || !on_device(call.second, second.bytes()) ||
      !on_device(call.result, result.bytes())) {
    return kExecutionFailed;
  }
  const double alpha = double{*static_cast<const float*>(call.alpha)};
  const double beta = double{*static_cast<const float*>(call.beta)};
  const double noise = call.algorithm == kNotDeterministic ? 1e-6 * (++draws % 16) : 0;
  const std::size_t count = result.bytes() / sizeof(float);
  enqueue(handles.find(call.handle)->stream, [=, how = of.how] {
    const auto* const a = static_cast<const float*>(call.first);
    const auto* const b = static_cast<const float*>(call.second);
    auto* const out = static_cast<float*>(call.result);
    std::fill_n(static_cast<unsigned char*>(call.workspace), call.workspace_bytes, std::uint8_t{0xff});
    const auto sums = std::make_unique<double[]>(count);
    for_products(x, w, y, how, [&](std::ptrdiff_t at_x, std::ptrdiff_t at_w, std::ptrdiff_t at_y) {
      switch (wanted) {
        case Wanted::kY:
          sums[static_cast<std::size_t>(at_y)] += operand(a[at_x], how.math) * operand(b[at_w], how.math);
          break;
        case Wanted::kX:
          sums[static_cast<std::size_t>(at_x)] += operand(a[at_w], how.math) * operand(b[at_y], how.math);
          break;
        case Wanted::kW:
          sums[static_cast<std::size_t>(at_w)] += operand(a[at_x], how.math) * operand(b[at_y], how.math);
          break;
      }
    });
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = static_cast<float>(alpha * sums[i] + noise + (beta == 0 ? 0 : beta * double{out[i]}));
    }
  });
  return kSuccess;
}

template <class Object>
int create(const char* function, Living<Object>& all, void** made) {
  if (made == nullptr) return kBadParam;
  if (const int fault = planted_fault(function); fault != kSuccess) return fault;
  return *made = all.make(), kSuccess;
}
template <class Object>
int destroy(Living<Object>& all, void* one) {
  return all.destroy(one) ? kSuccess : kBadParam;
}

int set_sizes(Sizes* sizes, int format, int type, int n, int c, int h, int w) {
  if (sizes == nullptr || !known_format(format) || type != 0 || n < 1 || c < 1 || h < 1 || w < 1) return kBadParam;
  sizes->format = format;
  sizes->n = n;
  sizes->c = c;
  sizes->h = h;
  sizes->w = w;
  return kSuccess;
}

}  // namespace

EMULATED_EXPORT int clustar_emulated_library() {
  return static_cast<int>(handles.count() + tensors.count() + filters.count() + convolutions.count());
}

EMULATED_EXPORT int cudnnCreate(void** handle) {
  return has_context() ? create("cudnnCreate", handles, handle) : kNotInitialized;
}
EMULATED_EXPORT int cudnnDestroy(void* handle) { return destroy(handles, handle); }
EMULATED_EXPORT int cudnnSetStream(void* handle, void* stream) {
  if (const int wrong = begin("cudnnSetStream", handle); wrong != kSuccess) return wrong;
  return handles.find(handle)->stream = stream, kSuccess;
}
EMULATED_EXPORT const char* cudnnGetErrorString(int status) {
  switch (status) {
    case kSuccess: return "emulated CUDNN_STATUS_SUCCESS";
    case kNotInitialized: return "emulated CUDNN_STATUS_NOT_INITIALIZED";
    case kBadParam: return "emulated CUDNN_STATUS_BAD_PARAM";
    case kNotSupported: return "emulated CUDNN_STATUS_NOT_SUPPORTED";
    case kExecutionFailed: return "emulated CUDNN_STATUS_EXECUTION_FAILED";
    default: return "emulated, an unknown status";
  }
}
EMULATED_EXPORT std::size_t cudnnGetVersion() { return 90000; }

EMULATED_EXPORT int cudnnCreateTensorDescriptor(void** made) {
  return create("cudnnCreateTensorDescriptor", tensors, made);
}
EMULATED_EXPORT int cudnnSetTensor4dDescriptor(void* one, int format, int type, int n, int c, int h, int w) {
  return set_sizes(tensors.find(one), format, type, n, c, h, w);
}
EMULATED_EXPORT int cudnnDestroyTensorDescriptor(void* one) { return destroy(tensors, one); }
EMULATED_EXPORT int cudnnCreateFilterDescriptor(void** made) {
  return create("cudnnCreateFilterDescriptor", filters, made);
}
EMULATED_EXPORT int cudnnSetFilter4dDescriptor(void* one, int type, int format, int k, int c, int h, int w) {
  return set_sizes(filters.find(one), format, type, k, c, h, w);
}
EMULATED_EXPORT int cudnnDestroyFilterDescriptor(void* one) { return destroy(filters, one); }
EMULATED_EXPORT int cudnnCreateConvolutionDescriptor(void** made) {
  return create("cudnnCreateConvolutionDescriptor", convolutions, made);
}
EMULATED_EXPORT int cudnnSetConvolution2dDescriptor(void* one, int pad_h, int pad_w, int stride_h, int stride_w,
                                                    int dilation_h, int dilation_w, int mode, int type) {
  Convolution* const how = convolutions.find(one);
  if (how == nullptr || pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1 ||
      (mode != 0 && mode != 1) || type != 0) {
    return kBadParam;
  }
  *how = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, mode == 0, 0};
  return kSuccess;
}
EMULATED_EXPORT int cudnnSetConvolutionMathType(void* one, int math) {
  Convolution* const how = convolutions.find(one);
  if (how == nullptr || math < 0 || math > 3) return kBadParam;
  return how->math = math, kSuccess;
}
EMULATED_EXPORT int cudnnDestroyConvolutionDescriptor(void* one) { return destroy(convolutions, one); }

EMULATED_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void* handle, void* x, void* w, void* how, void* y,
                                                           int asked, int* returned, CudnnAlgorithm* all) {
  return algorithms("cudnnGetConvolutionForwardAlgorithm_v7", handle, problem_of(x, w, y, how), asked, returned, all);
}
EMULATED_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void* handle, void* w, void* dy, void* how, void* dx,
                                                                int asked, int* returned, CudnnAlgorithm* all) {
  return algorithms("cudnnGetConvolutionBackwardDataAlgorithm_v7", handle, problem_of(dx, w, dy, how), asked, returned,
                    all);
}
EMULATED_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void* handle, void* x, void* dy, void* how, void* dw,
                                                                  int asked, int* returned, CudnnAlgorithm* all) {
  return algorithms("cudnnGetConvolutionBackwardFilterAlgorithm_v7", handle, problem_of(x, dw, dy, how), asked,
                    returned, all);
}
EMULATED_EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void* handle, void* x, void* w, void* how, void* y,
                                                            int algorithm, std::size_t* bytes) {
  return workspace("cudnnGetConvolutionForwardWorkspaceSize", handle, problem_of(x, w, y, how), algorithm, bytes);
}
EMULATED_EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void* handle, void* w, void* dy, void* how, void* dx,
                                                                 int algorithm, std::size_t* bytes) {
  return workspace("cudnnGetConvolutionBackwardDataWorkspaceSize", handle, problem_of(dx, w, dy, how), algorithm,
                   bytes);
}
EMULATED_EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void* handle, void* x, void* dy, void* how, void* dw,
                                                                   int algorithm, std::size_t* bytes) {
  return workspace("cudnnGetConvolutionBackwardFilterWorkspaceSize", handle, problem_of(x, dw, dy, how), algorithm,
                   bytes);
}
EMULATED_EXPORT int cudnnConvolutionForward(void* handle, const void* alpha, void* x_descriptor, const void* x,
                                            void* w_descriptor, const void* w, void* how, int algorithm, void* space,
                                            std::size_t space_bytes, const void* beta, void* y_descriptor, void* y) {
  return convolve({"cudnnConvolutionForward", handle, alpha, x, w, algorithm, space, space_bytes, beta, y},
                  problem_of(x_descriptor, w_descriptor, y_descriptor, how), Wanted::kY);
}
EMULATED_EXPORT int cudnnConvolutionBackwardData(void* handle, const void* alpha, void* w_descriptor, const void* w,
                                                 void* dy_descriptor, const void* dy, void* how, int algorithm,
                                                 void* space, std::size_t space_bytes, const void* beta,
                                                 void* dx_descriptor, void* dx) {
  return convolve({"cudnnConvolutionBackwardData", handle, alpha, w, dy, algorithm, space, space_bytes, beta, dx},
                  problem_of(dx_descriptor, w_descriptor, dy_descriptor, how), Wanted::kX);
}
EMULATED_EXPORT int cudnnConvolutionBackwardFilter(void* handle, const void* alpha, void* x_descriptor, const void* x,
                                                   void* dy_descriptor, const void* dy, void* how, int algorithm,
                                                   void* space, std::size_t space_bytes, const void* beta,
                                                   void* dw_descriptor, void* dw) {
  return convolve({"cudnnConvolutionBackwardFilter", handle, alpha, x, dy, algorithm, space, space_bytes, beta, dw},
                  problem_of(x_descriptor, dw_descriptor, dy_descriptor, how), Wanted::kW);
}

static_assert(std::is_same_v<decltype(&cudnnConvolutionForward), decltype(CudnnCalls::forward)>);
static_assert(
    std::is_same_v<decltype(&cudnnGetConvolutionForwardAlgorithm_v7), decltype(CudnnCalls::forward_algorithms)>);
