// A secret in a file as psk_file wants it, for as long as the object lives.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/temp_path.h"

namespace clustar::tests {

class PskFile {
 public:
  explicit PskFile(const std::string& secret, int mode = 0600) {
    static int number = 0;
    path_ = temp_path("psk_" + std::to_string(++number));
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    EXPECT_EQ(::write(fd, secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
    EXPECT_EQ(fchmod(fd, static_cast<mode_t>(mode)), 0);
    ::close(fd);
  }
  ~PskFile() { std::remove(path_.c_str()); }
  PskFile(const PskFile&) = delete;
  PskFile& operator=(const PskFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace clustar::tests
