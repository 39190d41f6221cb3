// Owner of one file descriptor of the kernel, and the text of an errno.
#pragma once

#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

namespace clustar {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

inline std::string describe_errno(int error) {
  char text[128];
  return std::string(strerror_r(error, text, sizeof text)) + " (errno " + std::to_string(error) + ")";
}

}  // namespace clustar
