// What the stand-ins for cuBLAS and cuDNN have in common: they compute on the emulated device's memory, in the order of
// its streams.
#pragma once

#include <cstddef>
#include <functional>
#include <set>

namespace clustar::emulated {

#define EMULATED_EXPORT extern "C" __attribute__((visibility("default")))

// Whether the calling thread has a context of the emulated driver. Without one NVIDIA's libraries would take the
// first GPU, which is not each rank's.
bool has_context();
// All of it within one allocation of the device.
bool on_device(const void* at, std::size_t bytes);
void enqueue(void* stream, std::function<void()> work);
// The status that this call of a function has to fail with, by EMULATED_LIBRARY_FAULT=FUNCTION:CALL:STATUS, calls
// counted from 1 since the variable was set; 0: none.
int planted_fault(const char* function);

// Handles and descriptors that were made and not destroyed: each is known by its address.
template <class Object>
class Living {
 public:
  void* make() {
    auto* const made = new Object;
    all_.insert(made);
    return made;
  }
  Object* find(const void* handle) const {
    auto* const one = static_cast<Object*>(const_cast<void*>(handle));
    return all_.contains(one) ? one : nullptr;
  }
  bool destroy(const void* handle) {
    Object* const one = find(handle);
    if (one == nullptr) return false;
    all_.erase(one);
    delete one;
    return true;
  }
  std::size_t count() const { return all_.size(); }

 private:
  std::set<Object*> all_;
};

}  // namespace clustar::emulated
