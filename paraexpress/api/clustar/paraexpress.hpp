// ParaExpress's C API (clustar/paraexpress.h) for C++17: handles that end by themselves, errors as exceptions.
#pragma once

#include <clustar/paraexpress.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace clustar::px {

class Error : public std::runtime_error {
 public:
  Error(int status, const std::string& what) : std::runtime_error(what), code(status) {}
  const int code;  // CLUSTARPX_E*
};
inline void check(int status) {
  if (status != CLUSTARPX_OK) throw Error(status, clustarPxLastError());
}

template <class T>
struct DatatypeOf;
template <>
struct DatatypeOf<float> {
  static constexpr int value = CLUSTARPX_FLOAT32;
};
template <>
struct DatatypeOf<double> {
  static constexpr int value = CLUSTARPX_FLOAT64;
};
template <>
struct DatatypeOf<std::int32_t> {
  static constexpr int value = CLUSTARPX_INT32;
};
template <>
struct DatatypeOf<std::int64_t> {
  static constexpr int value = CLUSTARPX_INT64;
};

// Not waited for, it is waited for when it goes, whatever comes of it.
class Operation {
 public:
  explicit Operation(clustarPxOperation_t handle) : handle_(handle) {}
  Operation(Operation&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Operation& operator=(Operation&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Operation() {
    if (handle_ != 0) (void)clustarPxWait(handle_);
  }
  bool done() const {
    int done = 0;
    check(clustarPxTest(handle_, &done));
    return done == 1;
  }
  void wait() { check(clustarPxWait(std::exchange(handle_, 0))); }

 private:
  clustarPxOperation_t handle_;
};

class Communicator {
 public:
  explicit Communicator(clustarPxOptions_v1 options) {
    options.size = sizeof options;
    check(clustarPxInit(&options, &handle_));
  }
  Communicator(Communicator&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Communicator() {
    if (handle_ != 0) (void)clustarPxFinalize(handle_);
  }
  // Of one that others have: waits until they take it in at a resize(). `place`: where.
  static Communicator join(clustarPxOptions_v1 options, int wait_ms, clustarPxPlace_v1& place) {
    options.size = sizeof options;
    place.size = sizeof place;
    Communicator made;
    check(clustarPxJoin(&options, wait_ms, &made.handle_, &place));
    return made;
  }
  clustarPx_t handle() const { return handle_; }
  // Between operations, by all ranks.
  clustarPxPlace_v1 resize() {
    clustarPxPlace_v1 place{};
    place.size = sizeof place;
    check(clustarPxResize(handle_, &place));
    return place;
  }
  // In the place of resize(); this is of no further use then.
  void leave() { check(clustarPxLeave(std::exchange(handle_, 0))); }

  void add_memory(void* memory, std::size_t bytes) { check(clustarPxRegister(handle_, memory, bytes)); }
  template <class T>
  Operation all_reduce(T* elements, std::size_t count, int reduction = CLUSTARPX_SUM) {
    return start(clustarPxAllReduce, elements, count, DatatypeOf<T>::value, reduction);
  }
  template <class T>
  Operation reduce_scatter(T* blocks, std::size_t count, int reduction = CLUSTARPX_SUM) {
    return start(clustarPxReduceScatter, blocks, count, DatatypeOf<T>::value, reduction);
  }
  template <class T>
  Operation push(T* elements, std::size_t count, int reduction = CLUSTARPX_SUM) {
    return start(clustarPxPush, elements, count, DatatypeOf<T>::value, reduction);
  }
  template <class T>
  Operation pull(T* elements, std::size_t count) {
    return start(clustarPxPull, elements, count, DatatypeOf<T>::value);
  }
  Operation all_gather(void* blocks, std::size_t bytes) { return start(clustarPxAllGather, blocks, bytes); }
  Operation broadcast(void* memory, std::size_t bytes, int root) {
    return start(clustarPxBroadcast, memory, bytes, root);
  }

 private:
  Communicator() = default;
  template <class Call, class... Arguments>
  Operation start(Call call, Arguments... arguments) {
    clustarPxOperation_t operation = 0;
    check(call(handle_, arguments..., &operation));
    return Operation(operation);
  }

  clustarPx_t handle_ = 0;
};

}  // namespace clustar::px
