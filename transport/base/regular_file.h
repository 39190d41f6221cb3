// A file of the user's, read without a wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar {

// Opening it never waits for anybody, as that of a pipe without a writer would. Errors say why, without the name.
class RegularFile {
 public:
  // kSystem: what the kernel says. kInvalidArgument: a folder, a pipe, a device.
  static Result<RegularFile> open(const std::string& path);

  std::uint64_t size() const { return size_; }  // bytes, when it was opened
  // The next bytes; fewer than fit in `to` only at its end.
  Result<std::size_t> read(std::span<std::byte> to);

 private:
  RegularFile(FileDescriptor file, std::uint64_t size) : file_(std::move(file)), size_(size) {}

  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace clustar
