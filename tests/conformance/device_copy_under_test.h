// What an implementation of gdr::DeviceCopy gives to the conformance suite.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gdr/device_copy.h"

namespace clustar::gdr::conformance {

// One DeviceCopy and the device's memory beside it.
class DeviceCopyBed {
 public:
  virtual ~DeviceCopyBed() = default;
  virtual DeviceCopy& copy() = 0;
  // The DeviceCopy ends, whatever is on its way; copy() is not called again.
  virtual void end() = 0;
  // The most copies that it has room for, so that the suite knows when it must refuse.
  virtual std::size_t most_outstanding() const = 0;
  // Device memory of this size, until the bed ends. The suite reads and writes it here, when no copy is on its way.
  virtual std::byte* device_memory(std::size_t bytes) = 0;

  // Copies end in the order in which they began, also those that nobody asks for. The rules do not ask for it.
  virtual bool in_order() const { return true; }

  // What a bed can force; the suite skips what it cannot.
  virtual bool hold(bool) { return false; }          // while on, no copy ends
  virtual bool next_copy_fails() { return false; }   // the next copy that would end fails, and the context is dead
  virtual bool next_begin_fails() { return false; }  // the driver takes no copy, and what began goes on
  // What the device says that it was asked for wrongly; empty: nothing.
  virtual std::string misuse() { return {}; }
};

struct DeviceCopyUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<DeviceCopyBed>>()> create;
};
inline void PrintTo(const DeviceCopyUnderTest& under_test, std::ostream* out) { *out << under_test.name; }

// The list of the program, device_copy_list.cc; device_copy_cuda_under_test.cc and its like add to it.
std::vector<DeviceCopyUnderTest> device_copies_under_test();
std::vector<DeviceCopyUnderTest> emulated_copies_under_test();
std::vector<DeviceCopyUnderTest> cuda_copies_under_test();

}  // namespace clustar::gdr::conformance
