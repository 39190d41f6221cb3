// A thread whose code goes with the library that it runs in. The program that unloads the library may have left its
// owner open (NCCL's dlclose comes with the last communicator, not with the last connection), so unloading ends all of
// them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>

namespace clustar {

class LibraryThread {
 public:
  LibraryThread() = default;
  ~LibraryThread() { end(); }
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;

  // Once. `ask_to_end` makes `run` return soon; it may be called from any thread. Throws as std::thread does.
  void start(std::function<void()> run, std::function<void()> ask_to_end);
  // Waits for `run` to return. Any thread; again has no effect.
  void end();

  // Called when the library is unloaded, or the process exits. Ends all that run; their owners stay, and need to do
  // without. Of the process that started them only: in the child of a fork they do not exist.
  static void end_all();

 private:
  void end_listed();

  std::function<void()> ask_to_end_{};
  std::thread thread_{};
  pid_t process_ = 0;  // that started it
  LibraryThread* next_ = nullptr;
};

}  // namespace clustar
