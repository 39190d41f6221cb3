// cuDNN on one device: its handle, its descriptors and a workspace. Never run on a GPU so far: on the emulated device,
// by the emulated library alone.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench/trainer/graph/cuda/libraries/cudnn_calls.h"
#include "gdr/launch/device.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::graph::cuda {

// Its work happens on the device's stream. The device outlives it, and it outlives what uses it. Calls other than
// open() throw std::runtime_error with what failed.
class Cudnn {
 public:
  using Descriptor = std::unique_ptr<void, int (*)(void*)>;

  // `library` empty: libcudnn.so.9 or .8. kUnavailable: as open_library(), or cuDNN does not start.
  static Result<std::unique_ptr<Cudnn>> open(gdr::launch::Device& device, const std::string& library);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  gdr::launch::Device& device() const { return device_; }
  const CudnnCalls& calls() const { return calls_; }
  void* handle() const { return handle_; }
  const std::string& version() const { return version_; }  // "9.19"
  void checked(int status, const std::string& call) const;

  // Of float32, channels adjacent.
  Descriptor tensor(std::size_t images, std::size_t channels, std::size_t rows, std::size_t columns) const;
  Descriptor filter(std::size_t filters, std::size_t channels, std::size_t window) const;
  // Cross-correlation in float32, never TF32.
  Descriptor convolution(std::size_t stride, std::size_t padding) const;
  // At least so many bytes of the device's, the same for all calls, whose order is that of the stream. Null for none.
  void* workspace(std::size_t bytes);

 private:
  explicit Cudnn(gdr::launch::Device& device) : device_(device) {}
  Result<void> start(const std::string& library);
  Result<void> check(int status, const std::string& call) const;
  Descriptor made(int (*create)(void**), int (*destroy)(void*), const char* call) const;

  gdr::launch::Device& device_;
  CudnnCalls calls_;
  void* handle_ = nullptr;
  std::string version_;
  void* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace clustar::bench::trainer::graph::cuda
