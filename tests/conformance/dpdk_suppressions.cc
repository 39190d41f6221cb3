// What the sanitizers find in DPDK's drivers themselves, which are built without them. Empty for all other builds,
// where nobody calls these.

// libxdp keeps 80 bytes of each UMEM that net_af_xdp made, and the driver what libbpf made of the steering program.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:xsk_umem__create\nleak:libbpf.so\n"; }

// EAL's heap and net_memif's connections are of two threads, EAL's and the caller's, ordered by locks that are not
// seen. Calls of net_memif are passed over: on its way to report one, ThreadSanitizer of clang 14 ends with a failed
// check.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:librte_net_memif\nrace:librte_eal\n"; }
