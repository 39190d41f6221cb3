#include "paraexpress/sums/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace clustar::paraexpress {

#if defined(__x86_64__)
namespace {

// clang 14 has no name for it.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

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
  if (set == InstructionSet::kAvx2) return __builtin_cpu_supports("avx2") && has_f16c();
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
