// Work that may crash or hang (a foreign library's constructors, a command on another host) in a process of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::bench::doctor {

class Child {
 public:
  struct Ended {
    std::string answer;  // what it wrote to the descriptor that it was given
    std::string errors;  // what it wrote to standard error
    std::string why;     // how it ended, unless by exit status 0: "signal 11 (Segmentation fault)", "exit status 127"
  };

  // Forks; call it while the process has one thread. The child gets the descriptor for its answer, and ends with what
  // the function returns.
  static Result<Child> start(const std::function<int(int answer)>& work);
  // The words as a command, looked up on PATH; its answer is its standard output.
  static Result<Child> start(const std::vector<std::string>& command);

  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  // Kills it if it still runs.
  ~Child();

  // Until it has ended, or is killed because `limit` is over. Once.
  Ended wait(std::chrono::steady_clock::time_point limit);

 private:
  bool take_what_is_there(Ended& ended, std::chrono::milliseconds pause);

  Child(pid_t pid, FileDescriptor answer, FileDescriptor errors);

  pid_t pid_;
  FileDescriptor answer_;
  FileDescriptor errors_;
};

// Of what a child wrote: the last line that is not empty.
std::string last_line(std::string text);

}  // namespace clustar::bench::doctor
