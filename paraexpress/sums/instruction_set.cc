#include "paraexpress/sums/instruction_set.h"

namespace clustar::paraexpress {

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable: return "portable";
    case InstructionSet::kAvx2: return "AVX2";
    case InstructionSet::kAvx512: return "AVX-512";
  }
  return "?";
}

bool supported(InstructionSet set) {
  if (set == InstructionSet::kPortable) return true;
#if defined(__x86_64__)
  // Also asks whether the operating system saves the wide registers.
  __builtin_cpu_init();
  if (set == InstructionSet::kAvx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

InstructionSet widest() {
  static const InstructionSet set = supported(InstructionSet::kAvx512) ? InstructionSet::kAvx512
                                    : supported(InstructionSet::kAvx2) ? InstructionSet::kAvx2
                                                                       : InstructionSet::kPortable;
  return set;
}

}  // namespace clustar::paraexpress
