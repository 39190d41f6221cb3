// Which of the versions of a kernel this processor can run.
#pragma once

#include <cstdint>

namespace clustar::paraexpress {

enum class InstructionSet : std::uint8_t {
  kPortable,  // what every processor of the build's architecture has
  kAvx2,      // with F16C
  kAvx512,    // F and BW
};

const char* name_of(InstructionSet set);
// By this build, this processor and its operating system.
bool supported(InstructionSet set);
// The widest that is supported. Looked up by the first caller, not when the library is loaded.
InstructionSet widest();

}  // namespace clustar::paraexpress
