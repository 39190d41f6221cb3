// Names of files for tests. Each test is a process of its own, and several run at once.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace clustar::tests {

// Alike within a process, and no other's: the folder for temporary files, then NAME and the process's number.
inline std::string temp_path(const std::string& name, const std::string& extension = "") {
  return ::testing::TempDir() + "clustar_" + name + "_" + std::to_string(getpid()) + extension;
}

}  // namespace clustar::tests
