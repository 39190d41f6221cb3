// A module's code for GPUs, as the build made it.
#pragma once

#include <cstddef>

namespace clustar::gdr::launch {

// What nvcc compiled for sm_75 to sm_90, with PTX for later ones. Built without nvcc: kNoDeviceCode, which no GPU takes
// and an emulated device, which has the kernels as host code, does.
struct Image {
  const void* data = nullptr;
  std::size_t bytes = 0;
};
inline constexpr char kNoDeviceCode[] = "clustar: kernels by name only";

inline bool has_device_code(const Image& image) { return image.bytes > 0; }

}  // namespace clustar::gdr::launch
