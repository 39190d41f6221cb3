// A second process of a check: a peer that can be killed, stopped and continued. Start peers before the check opens
// the plugin, while it has no threads.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <type_traits>

#include "bench/conform/session.h"

namespace clustar::bench::conform {

// Pipe of small fixed-size messages between a check and its peer. Reading is bounded; what goes wrong ends the check.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}

  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(&value, sizeof(value));
  }
  template <class T>
  T get(milliseconds limit) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    get_bytes(&value, sizeof(value), limit);
    return value;
  }
  bool readable() const;

 private:
  friend class Peer;
  void put_bytes(const void* data, std::size_t size);
  void get_bytes(void* data, std::size_t size, milliseconds limit);

  int fd_;
  const std::function<std::string()>* describe_peer_ = nullptr;  // why the other end is gone
};

class Peer {
 public:
  // Forks; the child runs `role` and exits. A fail_check in it ends the whole check.
  explicit Peer(const std::function<void(Channel&)>& role);
  ~Peer();  // kills and collects the process
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Channel& channel() { return channel_; }
  // SIGKILL; returns when the process is gone and the kernel has closed its sockets.
  void kill_now();
  void stop();
  void resume();
  // Waits for the role to return; ends the check when it does not within `limit`.
  void finish(milliseconds limit);

 private:
  bool collect(bool block);
  std::string describe();

  pid_t pid_ = -1;
  int status_ = 0;
  bool gone_ = false;
  Channel channel_{-1};
  std::function<std::string()> describe_;
};

}  // namespace clustar::bench::conform
