#include "transport/base/library_thread.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace clustar {
namespace {

// Without destructors: the library's unloading looks here.
constinit std::mutex list_mutex;
constinit LibraryThread* running = nullptr;
constinit std::atomic<pid_t> owner{0};

__attribute__((destructor)) void end_at_unload() { LibraryThread::end_all(); }

}  // namespace

void LibraryThread::start(std::function<void()> run, std::function<void()> ask_to_end) {
  const std::lock_guard lock(list_mutex);
  ask_to_end_ = std::move(ask_to_end);
  thread_ = std::thread(std::move(run));
  next_ = std::exchange(running, this);
  process_ = owner = getpid();
}

void LibraryThread::end() {
  const std::lock_guard lock(list_mutex);
  end_listed();
}

void LibraryThread::end_listed() {
  if (!thread_.joinable()) return;
  LibraryThread** at = &running;
  while (*at != this) at = &(*at)->next_;
  *at = next_;
  // In the child of a fork it does not run, and what would ask it to end is shared with the parent.
  if (process_ != getpid()) return thread_.detach();
  ask_to_end_();
  thread_.join();
}

void LibraryThread::end_all() {
  if (owner != getpid()) return;
  const std::lock_guard lock(list_mutex);
  while (running != nullptr) running->end_listed();
}

}  // namespace clustar
