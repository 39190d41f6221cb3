// How child processes of a test ended.
#pragma once

#include <sys/wait.h>

#include <span>
#include <vector>

namespace clustar::tests {

// Waits for it. Its exit status, or minus the signal that ended it.
inline int end_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline std::vector<int> ends_of(std::span<const pid_t> children) {
  std::vector<int> ends;
  for (const pid_t child : children) ends.push_back(end_of(child));
  return ends;
}

}  // namespace clustar::tests
