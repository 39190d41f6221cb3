#include "bench/trainer/compute_thread.h"

#include <dlfcn.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace clustar::bench::trainer {
namespace {

#if defined(__x86_64__)
constexpr unsigned long long kFlushDenormals = 0x8040;  // MXCSR: results and operands
unsigned long long control() { return _mm_getcsr(); }
void set_control(unsigned long long value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
constexpr unsigned long long kFlushDenormals = 1ull << 24;  // FPCR.FZ
unsigned long long control() {
  unsigned long long value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_control(unsigned long long value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
constexpr unsigned long long kFlushDenormals = 0;
unsigned long long control() { return 0; }
void set_control(unsigned long long) {}
#endif

}  // namespace

ComputeThread::ComputeThread() : before_(control()) {
  // Asked of the OpenMP runtime that oneDNN brought along, if it did: linking one of our own could give the process
  // two, and OMP_NUM_THREADS would have to be in the environment, which must reach the net plugin unchanged.
  using SetThreads = void (*)(int);
  if (const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set_threads(1);
  set_control(before_ | kFlushDenormals);
}

ComputeThread::~ComputeThread() { set_control(before_); }

}  // namespace clustar::bench::trainer
