#pragma once

namespace clustar::emulated {

// Of each planted kernel, launched with 64 threads.
struct PlantedArguments {
  float* values = nullptr;  // 64
  unsigned count = 0;       // the first threads, which do what the others do not
};

}  // namespace clustar::emulated
