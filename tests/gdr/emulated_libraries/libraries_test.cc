// The stand-ins for NVIDIA's libraries against definitions in double precision, and what is made of the libraries. The
// operations by them are in tests/trainer/graph/kernels_test.cc.
#include "bench/trainer/graph/cuda/libraries/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/trainer/graph/cuda/image_kernels.h"
#include "bench/trainer/graph/cuda/launches.h"
#include "bench/trainer/graph/cuda/libraries/cublas.h"
#include "bench/trainer/graph/cuda/libraries/cudnn.h"
#include "bench/trainer/graph/cuda/libraries/cudnn_convolution.h"
#include "bench/trainer/graph/cuda/libraries/library.h"
#include "bench/trainer/graph/cuda/products.h"
#include "gdr/launch/device.h"
#include "transport/base/rng.h"

namespace clustar::bench::trainer::graph::cuda {
namespace {

using gdr::launch::Device;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr int kInvalidValue = 7;  // of cublasStatus_t
constexpr int kBadParam = 2000;   // of cudnnStatus_t
constexpr int kNotSupported = 3000;

std::unique_ptr<Device> open_device() {
  auto device = Device::open(CLUSTAR_EMULATED_LIBCUDA, gdr::launch::Image{});
  if (!device) throw std::runtime_error(device.error().message);
  return std::move(*device);
}

Floats random_values(std::size_t count, std::uint64_t seed) {
  clustar::Rng rng(seed);
  Floats all(count);
  for (float& one : all) one = static_cast<float>(2 * rng.uniform() - 1);
  return all;
}

// Device memory for one test.
class Array {
 public:
  Array(Device& device, const Floats& values) : device_(device), count_(values.size()) {
    auto memory = device.allocate(count_ * sizeof(float));
    if (!memory) throw std::runtime_error(memory.error().message);
    at_ = static_cast<float*>(*memory);
    checked(device.upload(at_, values.data(), count_ * sizeof(float)));
  }
  ~Array() { device_.release(at_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  float* get() const { return at_; }
  Floats values() const {
    Floats all(count_);
    checked(device_.download(all.data(), at_, count_ * sizeof(float)));
    return all;
  }

 private:
  Device& device_;
  std::size_t count_;
  float* at_ = nullptr;
};

void* symbol(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  return handle == nullptr ? nullptr : dlsym(handle, name);
}
int living(const char* library) { return reinterpret_cast<int (*)()>(symbol(library, kEmulatedLibrary))(); }

std::size_t index(int value) { return static_cast<std::size_t>(value); }

// C = alpha op(A) op(B) + beta C by the stand-in's own interface: column-major, with rows left over in each column.
TEST(EmulatedCublas, MultipliesByItsDefinition) {
  const auto device = open_device();
  const auto cublas = Cublas::open(*device, CLUSTAR_EMULATED_CUBLAS);
  ASSERT_TRUE(cublas) << cublas.error().message;
  CublasCalls calls;
  calls.create = reinterpret_cast<decltype(calls.create)>(symbol(CLUSTAR_EMULATED_CUBLAS, "cublasCreate_v2"));
  calls.destroy = reinterpret_cast<decltype(calls.destroy)>(symbol(CLUSTAR_EMULATED_CUBLAS, "cublasDestroy_v2"));
  calls.set_stream =
      reinterpret_cast<decltype(calls.set_stream)>(symbol(CLUSTAR_EMULATED_CUBLAS, "cublasSetStream_v2"));
  calls.sgemm = reinterpret_cast<decltype(calls.sgemm)>(symbol(CLUSTAR_EMULATED_CUBLAS, "cublasSgemm_v2"));
  const Device::InContext here(*device);
  void* handle = nullptr;
  ASSERT_EQ(calls.create(&handle), 0);
  ASSERT_EQ(calls.set_stream(handle, device->stream()), 0);
  const int m = 3, n = 4, k = 5;
  const float alpha = 0.5f;
  for (const float beta : {0.0f, 2.0f}) {
    for (const int a_operation : {0, 1}) {
      for (const int b_operation : {0, 1}) {
        const int lda = (a_operation == 0 ? m : k) + 1, ldb = (b_operation == 0 ? k : n) + 2, ldc = m + 3;
        const Floats a = random_values(index(lda * 6), 1), b = random_values(index(ldb * 6), 2);
        const Floats c = random_values(index(ldc * n), 3);
        const Array on_a(*device, a), on_b(*device, b), on_c(*device, c);
        ASSERT_EQ(calls.sgemm(handle, a_operation, b_operation, m, n, k, &alpha, on_a.get(), lda, on_b.get(), ldb,
                              &beta, on_c.get(), ldc),
                  0);
        const Floats written = on_c.values();
        for (int at = 0; at < ldc * n; ++at) {
          const int row = at % ldc, column = at / ldc;
          double expected = double{c[index(at)]};
          if (row < m) {
            expected *= double{beta};
            for (int d = 0; d < k; ++d) {
              expected += double{alpha} * double{a[index(a_operation == 0 ? d * lda + row : row * lda + d)]} *
                          double{b[index(b_operation == 0 ? column * ldb + d : d * ldb + column)]};
            }
          }
          ASSERT_NEAR(written[index(at)], expected, 1e-6) << at;
        }
        const auto refused = [&](int operation, int rows, int stride, const float* factor, float* to) {
          return calls.sgemm(handle, operation, b_operation, rows, n, k, factor, on_a.get(), stride, on_b.get(), ldb,
                             &beta, to, ldc);
        };
        EXPECT_EQ(refused(7, m, lda, &alpha, on_c.get()), kInvalidValue);
        EXPECT_EQ(refused(a_operation, -1, lda, &alpha, on_c.get()), kInvalidValue);
        EXPECT_EQ(refused(a_operation, m, 1, &alpha, on_c.get()), kInvalidValue);
        EXPECT_EQ(refused(a_operation, m, lda, nullptr, on_c.get()), kInvalidValue);
        EXPECT_EQ(refused(a_operation, m, lda, &alpha, nullptr), kInvalidValue);
        Floats host(index(ldc * n));
        EXPECT_NE(refused(a_operation, m, lda, &alpha, host.data()), 0);
      }
    }
  }
  EXPECT_EQ(calls.destroy(handle), 0);
  EXPECT_NE(calls.set_stream(handle, nullptr), 0);
}

TEST(EmulatedCublas, TakesNoCallWithoutAContext) {
  const auto device = open_device();
  auto* const create = reinterpret_cast<int (*)(void**)>(symbol(CLUSTAR_EMULATED_CUBLAS, "cublasCreate_v2"));
  void* handle = nullptr;
  EXPECT_NE(create(&handle), 0);
}

TEST(Cublas, AgreesWithFloat64AndOurKernels) {
  const auto device = open_device();
  auto cublas = Cublas::open(*device, CLUSTAR_EMULATED_CUBLAS);
  ASSERT_TRUE(cublas) << cublas.error().message;
  KernelProducts kernels(*device);
  for (const auto& [m, n, k] : {std::array{1, 1, 1}, std::array{7, 3, 5}, std::array{65, 10, 33}}) {
    const Floats a = random_values(index(m * k), 1), b = random_values(index(k * n), 2);
    const Array on_a(*device, a), on_b(*device, b);
    for (const Form form : {Form::kNt, Form::kTn, Form::kNn}) {
      const Array library(*device, Floats(index(m * n), 77)), own(*device, Floats(index(m * n), 77));
      (*cublas)->multiply(form, on_a.get(), on_b.get(), library.get(), index(m), index(n), index(k));
      kernels.multiply(form, on_a.get(), on_b.get(), own.get(), index(m), index(n), index(k));
      const Floats by_library = library.values(), by_kernels = own.values();
      for (int i = 0; i < m * n; ++i) {
        double expected = 0;
        for (int d = 0; d < k; ++d) {
          expected += double{a[index(form == Form::kTn ? d * m + i / n : i / n * k + d)]} *
                      double{b[index(form == Form::kNt ? i % n * k + d : d * n + i % n)]};
        }
        ASSERT_NEAR(by_library[index(i)], expected, 1e-6) << m << "x" << n << "x" << k;
        ASSERT_NEAR(by_library[index(i)], by_kernels[index(i)], 1e-5);
      }
    }
  }
}

// Of the stand-in, by both formats, both modes and all that windows may have; against the definition.
struct Sizes {
  int n, c, h, w;
  std::size_t count() const { return index(n * c * h * w); }
  int at(int format, int i, int j, int row, int column) const {
    return format == 1 ? ((i * h + row) * w + column) * c + j : ((i * c + j) * h + row) * w + column;
  }
};

struct CudnnBed {
  explicit CudnnBed(const Cudnn& cudnn, const Sizes& x_sizes, const Sizes& w_sizes, const Sizes& y_sizes, int format)
      : calls(cudnn.calls()) {
    calls.create_tensor(&x);
    calls.create_filter(&w);
    calls.create_tensor(&y);
    calls.create_convolution(&how);
    set_ok = calls.set_tensor(x, format, 0, x_sizes.n, x_sizes.c, x_sizes.h, x_sizes.w) == 0 &&
             calls.set_filter(w, 0, format, w_sizes.n, w_sizes.c, w_sizes.h, w_sizes.w) == 0 &&
             calls.set_tensor(y, format, 0, y_sizes.n, y_sizes.c, y_sizes.h, y_sizes.w) == 0;
  }
  ~CudnnBed() {
    calls.destroy_tensor(x);
    calls.destroy_filter(w);
    calls.destroy_tensor(y);
    calls.destroy_convolution(how);
  }
  CudnnBed(const CudnnBed&) = delete;
  CudnnBed& operator=(const CudnnBed&) = delete;

  const CudnnCalls& calls;
  void *x = nullptr, *w = nullptr, *y = nullptr, *how = nullptr;
  bool set_ok = false;
};

TEST(EmulatedCudnn, ConvolvesByItsDefinition) {
  const auto device = open_device();
  auto opened = Cudnn::open(*device, CLUSTAR_EMULATED_CUDNN);
  ASSERT_TRUE(opened) << opened.error().message;
  Cudnn& cudnn = **opened;
  const Device::InContext here(*device);
  constexpr int kStrideH = 2, kStrideW = 1, kPadH = 1, kPadW = 2, kDilationW = 2;
  const Sizes x{2, 3, 5, 6}, w{4, 3, 3, 2}, y{2, 4, 3, 8};
  const Floats host_x = random_values(x.count(), 1), host_w = random_values(w.count(), 2);
  const Floats host_dy = random_values(y.count(), 3);
  for (const int format : {0, 1}) {
    for (const int mode : {0, 1}) {
      CudnnBed bed(cudnn, x, w, y, format);
      ASSERT_TRUE(bed.set_ok);
      ASSERT_EQ(bed.calls.set_convolution(bed.how, kPadH, kPadW, kStrideH, kStrideW, 1, kDilationW, mode, 0), 0);
      ASSERT_EQ(bed.calls.set_math(bed.how, kCudnnFmaMath), 0);
      std::vector<double> expected_y(y.count()), expected_dx(x.count()), expected_dw(w.count());
      for (int i = 0; i < y.n * y.c * y.h * y.w; ++i) {
        const int q = i % y.w, p = i / y.w % y.h, filter = i / y.w / y.h % y.c, image = i / y.w / y.h / y.c;
        for (int j = 0; j < w.c * w.h * w.w; ++j) {
          const int s = j % w.w, r = j / w.w % w.h, channel = j / w.w / w.h;
          const int row = p * kStrideH - kPadH + r, column = q * kStrideW - kPadW + s * kDilationW;
          if (row < 0 || row >= x.h || column < 0 || column >= x.w) continue;
          const std::size_t at_x = index(x.at(format, image, channel, row, column));
          const std::size_t at_y = index(y.at(format, image, filter, p, q));
          const std::size_t at_w = index(mode == 1 ? w.at(format, filter, channel, r, s)
                                                   : w.at(format, filter, channel, w.h - 1 - r, w.w - 1 - s));
          expected_y[at_y] += double{host_x[at_x]} * double{host_w[at_w]};
          expected_dx[at_x] += double{host_dy[at_y]} * double{host_w[at_w]};
          expected_dw[at_w] += double{host_dy[at_y]} * double{host_x[at_x]};
        }
      }
      std::size_t bytes = 0;
      ASSERT_EQ(bed.calls.forward_workspace(cudnn.handle(), bed.x, bed.w, bed.how, bed.y, 1, &bytes), 0);
      void* const space = cudnn.workspace(bytes);
      const Array on_x(*device, host_x), on_w(*device, host_w), on_dy(*device, host_dy);
      const float one = 1, half = 0.5f;
      const auto expect = [&](const Array& written, const Floats& before, const std::vector<double>& expected) {
        const Floats values = written.values();
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(values[i], expected[i] + 0.5 * double{before[i]}, 1e-5) << "format " << format << " at " << i;
        }
      };
      const Floats before_y(y.count(), 3), before_x(x.count(), 3), before_w(w.count(), 3);
      const Array on_y(*device, before_y), on_dx(*device, before_x), on_dw(*device, before_w);
      const auto forward = [&](int algorithm, void* workspace, std::size_t size, const float* factor, void* handle) {
        return bed.calls.forward(handle, factor, bed.x, on_x.get(), bed.w, on_w.get(), bed.how, algorithm, workspace,
                                 size, &half, bed.y, on_y.get());
      };
      EXPECT_EQ(forward(1, space, bytes - 1, &one, cudnn.handle()), kBadParam);
      EXPECT_EQ(forward(1, nullptr, bytes, &one, cudnn.handle()), kBadParam);
      EXPECT_EQ(forward(1, space, bytes, nullptr, cudnn.handle()), kBadParam);
      EXPECT_EQ(forward(9, space, bytes, &one, cudnn.handle()), kNotSupported);
      EXPECT_NE(forward(1, space, bytes, &one, bed.x), 0);
      ASSERT_EQ(forward(1, space, bytes, &one, cudnn.handle()), 0);
      expect(on_y, before_y, expected_y);
      ASSERT_EQ(bed.calls.backward_data(cudnn.handle(), &one, bed.w, on_w.get(), bed.y, on_dy.get(), bed.how, 1, space,
                                        bytes, &half, bed.x, on_dx.get()),
                0);
      expect(on_dx, before_x, expected_dx);
      ASSERT_EQ(bed.calls.backward_filter(cudnn.handle(), &one, bed.x, on_x.get(), bed.y, on_dy.get(), bed.how, 1,
                                          space, bytes, &half, bed.w, on_dw.get()),
                0);
      expect(on_dw, before_w, expected_dw);
      EXPECT_EQ(bed.calls.set_tensor(bed.y, format, 0, 2, 4, 3, 7), 0);  // not what the windows make
      EXPECT_EQ(forward(1, space, bytes, &one, cudnn.handle()), kBadParam);
      EXPECT_EQ(bed.calls.set_tensor(bed.w, format, 0, 2, 4, 3, 7), kBadParam);  // a filter is no tensor
      EXPECT_EQ(bed.calls.set_tensor(bed.x, 5, 0, 2, 4, 3, 7), kBadParam);
      EXPECT_EQ(bed.calls.set_math(bed.how, 9), kBadParam);
    }
  }
}

std::string problem_of(const MathOptions& options) {
  const auto device = open_device();
  const auto libraries = open_libraries(*device, options);
  return libraries ? "found " + libraries->text() : libraries.error().message;
}

TEST(Libraries, AreThoseThatARunAsksFor) {
  const auto kLibraries = MathChoice::kLibraries;
  EXPECT_EQ(problem_of({}), "found own kernels");
  EXPECT_EQ(problem_of({MathChoice::kKernels}), "found own kernels");
  EXPECT_EQ(problem_of({MathChoice::kAuto, CLUSTAR_EMULATED_CUBLAS}), "found cublas 13.0");
  EXPECT_EQ(problem_of({kLibraries, CLUSTAR_EMULATED_CUBLAS, kNoLibrary}), "found cublas 13.0");
  EXPECT_EQ(problem_of({kLibraries, CLUSTAR_EMULATED_CUBLAS, CLUSTAR_EMULATED_CUDNN}), "found cublas 13.0, cudnn 9.0");
  EXPECT_THAT(problem_of({kLibraries}), HasSubstr("name them by --cublas"));
  EXPECT_THAT(problem_of({MathChoice::kAuto, "libnone.so"}), HasSubstr("cannot open cuBLAS: libnone.so"));
  EXPECT_THAT(problem_of({kLibraries, CLUSTAR_EMULATED_CUBLAS, "libnone.so"}), HasSubstr("cannot open cuDNN"));
  EXPECT_THAT(problem_of({kLibraries, "libc.so.6"}), HasSubstr("'libc.so.6' has no cublasCreate_v2"));
  EXPECT_THAT(problem_of({kLibraries, CLUSTAR_EMULATED_CUBLAS, CLUSTAR_EMULATED_CUBLAS}),
              HasSubstr("has no cudnnCreate"));
  EXPECT_EQ(living(CLUSTAR_EMULATED_CUBLAS) + living(CLUSTAR_EMULATED_CUDNN), 0);
}

// NVIDIA's libraries, where they are: they have every function, by which time they are asked whether they are emulated.
TEST(Libraries, OfNvidiaHaveEveryFunction) {
#if defined(CLUSTAR_REAL_CUBLAS) && defined(CLUSTAR_REAL_CUDNN)
  EXPECT_THAT(problem_of({MathChoice::kLibraries, CLUSTAR_REAL_CUBLAS}),
              HasSubstr("is not emulated, and the device is"));
  EXPECT_THAT(problem_of({MathChoice::kLibraries, CLUSTAR_EMULATED_CUBLAS, CLUSTAR_REAL_CUDNN}),
              HasSubstr("is not emulated, and the device is"));
#else
  GTEST_SKIP() << "libcublas.so or libcudnn.so is not here";
#endif
}

class Fault {
 public:
  explicit Fault(const char* fault) { setenv("EMULATED_LIBRARY_FAULT", fault, 1); }
  ~Fault() { unsetenv("EMULATED_LIBRARY_FAULT"); }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
};

TEST(Libraries, SayWhichCallFailsAndLeaveNothing) {
  for (const auto& [fault, message] :
       {std::pair{"cublasCreate_v2:1:1", "cuBLAS: emulated CUBLAS_STATUS_NOT_INITIALIZED (1) in cublasCreate_v2"},
        std::pair{"cublasSetStream_v2:1:7", "INVALID_VALUE (7) in cublasSetStream_v2"},
        std::pair{"cudnnSetStream:1:2000", "cuDNN: emulated CUDNN_STATUS_BAD_PARAM (2000) in cudnnSetStream"}}) {
    const Fault planted(fault);
    EXPECT_THAT(problem_of({MathChoice::kLibraries, CLUSTAR_EMULATED_CUBLAS, CLUSTAR_EMULATED_CUDNN}),
                HasSubstr(message));
  }
  EXPECT_EQ(living(CLUSTAR_EMULATED_CUBLAS) + living(CLUSTAR_EMULATED_CUDNN), 0);
}

// Two images of 4 x 4 x 1, two filters of 3 x 3.
class SmallConvolution {
 public:
  SmallConvolution(Device& device, Libraries& libraries)
      : kernel_(make_cudnn_convolution(*libraries.cudnn, kOp, kIn, kOut,
                                       make_convolution(device, *libraries.cublas, kOp, kIn, kOut))),
        x_(device, random_values(32, 1)),
        w_(device, random_values(18, 2)),
        y_(device, random_values(16, 3)),
        dx_(device, Floats(32)),
        dw_(device, Floats(18)),
        scratch_(device, Floats(std::max<std::size_t>(1, kernel_->scratch(2)))) {}

  void forward() {
    ForwardCall call;
    call.batch = 2;
    call.inputs = inputs_;
    call.output = y_.get();
    call.parameters = parameters_;
    call.scratch = scratch_.get();
    kernel_->forward(call);
  }
  void backward() {
    BackwardCall call;
    call.batch = 2;
    call.inputs = inputs_;
    call.output_gradient = y_.get();
    call.input_gradients = input_gradients_;
    call.parameters = parameters_;
    call.gradients = gradients_;
    call.scratch = scratch_.get();
    kernel_->backward_parameters(call);
    kernel_->backward_inputs(call);
  }
  std::vector<Floats> results() const { return {y_.values(), dx_.values(), dw_.values()}; }

 private:
  static constexpr Convolution kOp{.filters = 2, .kernel = 3, .bias = false};
  static constexpr Shape kIn{4, 4, 1};
  static constexpr Shape kOut{2, 2, 2};

  std::unique_ptr<graph::Kernel> kernel_;
  Array x_, w_, y_, dx_, dw_, scratch_;
  const float* inputs_[1] = {x_.get()};
  const float* parameters_[1] = {w_.get()};
  float* input_gradients_[1] = {dx_.get()};
  float* gradients_[1] = {dw_.get()};
};

// Each direction in turn, whether cuDNN answers that there is no algorithm or has none that a run may take.
TEST(Libraries, LeaveToProductsWhatCudnnHasNoAlgorithmFor) {
  const auto device = open_device();
  auto libraries = open_libraries(*device, {MathChoice::kLibraries, CLUSTAR_EMULATED_CUBLAS, CLUSTAR_EMULATED_CUDNN});
  ASSERT_TRUE(libraries) << libraries.error().message;
  SmallConvolution by_cudnn(*device, *libraries);
  by_cudnn.forward();
  by_cudnn.backward();
  const std::vector<Floats> expected = by_cudnn.results();
  for (const char* direction : {"Forward", "BackwardData", "BackwardFilter"}) {
    for (const char* answer : {"-1", "3000", "9"}) {
      SCOPED_TRACE(fmt::format("{} {}", direction, answer));
      const Fault planted(fmt::format("cudnnGetConvolution{}Algorithm_v7:1:{}", direction, answer).c_str());
      SmallConvolution one(*device, *libraries);
      one.forward();
      one.backward();
      const std::vector<Floats> results = one.results();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t j = 0; j < expected[i].size(); ++j) ASSERT_NEAR(results[i][j], expected[i][j], 1e-5);
      }
    }
  }
}

TEST(Libraries, NameTheOperationThatFails) {
  const auto device = open_device();
  auto libraries = open_libraries(*device, {MathChoice::kLibraries, CLUSTAR_EMULATED_CUBLAS, CLUSTAR_EMULATED_CUDNN});
  ASSERT_TRUE(libraries) << libraries.error().message;
  const Array values(*device, Floats(1000, 1));
  const auto said = [](const auto& act) {
    try {
      act();
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  {
    const Fault planted("cublasSgemm_v2:1:13");
    EXPECT_EQ(said([&] { libraries->cublas->multiply(Form::kNn, values.get(), values.get(), values.get(), 2, 3, 4); }),
              "cuBLAS: emulated CUBLAS_STATUS_EXECUTION_FAILED (13) in cublasSgemm_v2 of 2x3x4");
  }
  for (const char* function : {"cudnnConvolutionForward", "cudnnGetConvolutionForwardAlgorithm_v7"}) {
    const Fault planted((std::string(function) + ":1:5000").c_str());
    SmallConvolution convolution(*device, *libraries);
    EXPECT_THAT(said([&] { convolution.forward(); }),
                AllOf(HasSubstr("EXECUTION_FAILED (5000) in "), HasSubstr("cudnnConvolutionForward of "),
                      HasSubstr("on 2x4x4x1")));
  }
}

}  // namespace
}  // namespace clustar::bench::trainer::graph::cuda
