// A statically linked libstdc++ keeps an emergency pool for exceptions that nothing frees at dlclose (72 kB a time);
// its own release function does.

namespace __gnu_cxx {
void __freeres();
}

namespace {
__attribute__((destructor)) void release_exception_pool() { __gnu_cxx::__freeres(); }
}  // namespace
