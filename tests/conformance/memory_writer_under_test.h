// What an implementation of io::MemoryWriter gives to its conformance suite.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "transport/io/packet_io.h"

namespace clustar::transport::conformance {

// A writer, and memory that it fills and the processor must not touch.
class MemoryWriterBed {
 public:
  static constexpr std::size_t kBytes = 32 * 1024;  // of each of two memories
  virtual ~MemoryWriterBed() = default;
  virtual io::MemoryWriter& writer() = 0;
  virtual const io::Mr& mr(std::size_t index) = 0;
  // What its owner sees. Between operations only.
  virtual std::span<std::byte> view(std::size_t index) = 0;
};

struct MemoryWriterUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<MemoryWriterBed>>()> create;
};
inline void PrintTo(const MemoryWriterUnderTest& under_test, std::ostream* out) { *out << under_test.name; }

// The list of the program: memory_writer_late_under_test.cc's for what runs everywhere, tests/rdma's for what needs
// RDMA devices.
std::vector<MemoryWriterUnderTest> memory_writers_under_test();

}  // namespace clustar::transport::conformance
