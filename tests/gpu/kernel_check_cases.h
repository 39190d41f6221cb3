// Kernels on the device that is there: what each makes against float64, and how fast beside a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gdr/launch/device.h"

namespace clustar::gpu_check {

// A kernel with its data on the device.
struct Prepared {
  std::function<Result<void>()> launch;
  // Empty: what one launch made is right. It is looked at after the first launch, before any other.
  std::function<Result<std::string>()> wrong;
  double bytes = 0;             // that a launch reads and writes; 0: it is not bound by memory
  double operations = 0;        // floating-point ones
  std::vector<void*> memory{};  // to be released
};
struct Case {
  std::string name;  // the kernel's
  gdr::launch::Device* device = nullptr;
  // `bytes`: of its largest array.
  std::function<Result<Prepared>(gdr::launch::Device& device, std::size_t bytes)> prepare;
};

// Of gdr/kernels, by `hooks`, which has their module; of the trainer's, by `trainer`.
std::vector<Case> all_cases(gdr::launch::Device& hooks, gdr::launch::Device& trainer);

}  // namespace clustar::gpu_check
