#include "bench/trainer/graph/cuda/libraries/cudnn.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bench/trainer/graph/cuda/launches.h"
#include "bench/trainer/graph/cuda/libraries/library.h"

namespace clustar::bench::trainer::graph::cuda {

using gdr::launch::Device;

namespace {

// As CUDNN_VERSION of cudnn_version.h: 8907 is 8.9.7, 91900 is 9.19.0.
std::string version_text(std::size_t version) {
  return version < 10000 ? fmt::format("{}.{}", version / 1000, version / 100 % 10)
                         : fmt::format("{}.{}", version / 10000, version / 100 % 100);
}

}  // namespace

Result<std::unique_ptr<Cudnn>> Cudnn::open(Device& device, const std::string& library) {
  std::unique_ptr<Cudnn> made(new Cudnn(device));
  if (auto ok = made->start(library); !ok) return fail(ErrorCode::kUnavailable, ok.error().message);
  return made;
}

Result<void> Cudnn::start(const std::string& library) {
  const LibraryEntry entries[] = {{"cudnnCreate", &calls_.create},
                                  {"cudnnDestroy", &calls_.destroy},
                                  {"cudnnSetStream", &calls_.set_stream},
                                  {"cudnnGetErrorString", &calls_.error_string},
                                  {"cudnnGetVersion", &calls_.get_version},
                                  {"cudnnCreateTensorDescriptor", &calls_.create_tensor},
                                  {"cudnnSetTensor4dDescriptor", &calls_.set_tensor},
                                  {"cudnnDestroyTensorDescriptor", &calls_.destroy_tensor},
                                  {"cudnnCreateFilterDescriptor", &calls_.create_filter},
                                  {"cudnnSetFilter4dDescriptor", &calls_.set_filter},
                                  {"cudnnDestroyFilterDescriptor", &calls_.destroy_filter},
                                  {"cudnnCreateConvolutionDescriptor", &calls_.create_convolution},
                                  {"cudnnSetConvolution2dDescriptor", &calls_.set_convolution},
                                  {"cudnnSetConvolutionMathType", &calls_.set_math},
                                  {"cudnnDestroyConvolutionDescriptor", &calls_.destroy_convolution},
                                  {"cudnnGetConvolutionForwardAlgorithm_v7", &calls_.forward_algorithms},
                                  {"cudnnGetConvolutionBackwardDataAlgorithm_v7", &calls_.data_algorithms},
                                  {"cudnnGetConvolutionBackwardFilterAlgorithm_v7", &calls_.filter_algorithms},
                                  {"cudnnGetConvolutionForwardWorkspaceSize", &calls_.forward_workspace},
                                  {"cudnnGetConvolutionBackwardDataWorkspaceSize", &calls_.data_workspace},
                                  {"cudnnGetConvolutionBackwardFilterWorkspaceSize", &calls_.filter_workspace},
                                  {"cudnnConvolutionForward", &calls_.forward},
                                  {"cudnnConvolutionBackwardData", &calls_.backward_data},
                                  {"cudnnConvolutionBackwardFilter", &calls_.backward_filter}};
  LibraryChoice choice{.what = "cuDNN", .names = {library}, .emulated = device_.emulated()};
  if (library.empty()) choice.names = {"libcudnn.so.9", "libcudnn.so.8"};
  if (auto opened = open_library(choice, entries); !opened) return tl::unexpected(opened.error());
  version_ = version_text(calls_.get_version());
  const Device::InContext here(device_);
  void* handle = nullptr;
  if (auto ok = check(calls_.create(&handle), "cudnnCreate"); !ok) return ok;
  handle_ = handle;
  return check(calls_.set_stream(handle_, device_.stream()), "cudnnSetStream");
}

Cudnn::~Cudnn() {
  device_.release(workspace_);
  if (handle_ == nullptr) return;
  const Device::InContext here(device_);
  calls_.destroy(handle_);
}

Result<void> Cudnn::check(int status, const std::string& call) const {
  if (status == kCudnnSuccess) return {};
  const char* const name = calls_.error_string(status);
  return fail(ErrorCode::kSystem,
              fmt::format("cuDNN: {} ({}) in {}", name == nullptr ? "an unknown status" : name, status, call));
}

void Cudnn::checked(int status, const std::string& call) const { cuda::checked(check(status, call)); }

Cudnn::Descriptor Cudnn::made(int (*create)(void**), int (*destroy)(void*), const char* call) const {
  void* descriptor = nullptr;
  checked(create(&descriptor), call);
  return {descriptor, destroy};
}

Cudnn::Descriptor Cudnn::tensor(std::size_t images, std::size_t channels, std::size_t rows, std::size_t columns) const {
  Descriptor one = made(calls_.create_tensor, calls_.destroy_tensor, "cudnnCreateTensorDescriptor");
  checked(calls_.set_tensor(one.get(), kCudnnNhwc, kCudnnFloat, dimension(images), dimension(channels), dimension(rows),
                            dimension(columns)),
          fmt::format("cudnnSetTensor4dDescriptor of {}x{}x{}x{}", images, rows, columns, channels));
  return one;
}

Cudnn::Descriptor Cudnn::filter(std::size_t filters, std::size_t channels, std::size_t window) const {
  Descriptor one = made(calls_.create_filter, calls_.destroy_filter, "cudnnCreateFilterDescriptor");
  const int side = dimension(window);
  checked(calls_.set_filter(one.get(), kCudnnFloat, kCudnnNhwc, dimension(filters), dimension(channels), side, side),
          fmt::format("cudnnSetFilter4dDescriptor of {}x{}x{}x{}", filters, window, window, channels));
  return one;
}

Cudnn::Descriptor Cudnn::convolution(std::size_t stride, std::size_t padding) const {
  Descriptor one = made(calls_.create_convolution, calls_.destroy_convolution, "cudnnCreateConvolutionDescriptor");
  const int step = dimension(stride);
  const int around = dimension(padding);
  checked(calls_.set_convolution(one.get(), around, around, step, step, 1, 1, kCudnnCrossCorrelation, kCudnnFloat),
          fmt::format("cudnnSetConvolution2dDescriptor of stride {}, padding {}", stride, padding));
  checked(calls_.set_math(one.get(), kCudnnFmaMath), "cudnnSetConvolutionMathType");
  return one;
}

void* Cudnn::workspace(std::size_t bytes) {
  if (bytes <= workspace_bytes_) return workspace_;
  device_.release(workspace_);  // once the calls that use it are done
  workspace_ = nullptr;
  workspace_bytes_ = 0;
  const auto memory = device_.allocate(bytes);
  if (!memory) throw std::runtime_error(memory.error().message);
  workspace_ = *memory;
  workspace_bytes_ = bytes;
  return workspace_;
}

}  // namespace clustar::bench::trainer::graph::cuda
