// The trainer's kernels as nvcc made them, those of gdr/kernels that it launches among them.
#pragma once

#include "gdr/launch/image.h"

namespace clustar::gdr::launch {

extern const Image clustar_trainer_device_code;  // by clustar_device_code() of the build

}  // namespace clustar::gdr::launch
