// A net plugin's table as the array of pointers that it is: for the checks that NetPlugin's shape hides.
#pragma once

#include <cstddef>
#include <string>

namespace clustar::bench::conform {

// Slots that all versions share, then those of v7+, v9+ and v11+.
enum Slot : std::size_t {
  kName = 0,
  kInit,
  kDevices,
  kGetProperties,
  kListen,
  kConnect,
  kAccept,
  kRegMr,
  kRegMrDmaBuf,
  kDeregMr,
  kIsend,
  kIrecv,
  kIflush,
  kTest,
  kCloseSend,
  kCloseRecv,
  kCloseListen,
  kGetDeviceMr,
  kIrecvConsumed,
  kMakeVDevice,
  kFinalize,
  kSetNetAttr,
  kSlots,
};
const char* slot_name(Slot slot);

// Opens the library again and keeps it open until the process ends.
class RawTable {
 public:
  // Ends the check when the library or ncclNetPlugin_v<version> is not there.
  RawTable(const std::string& plugin, int version);

  std::size_t slots() const;  // that this version's table has
  const void* slot(Slot slot) const { return slots_[slot]; }
  const char* name() const { return static_cast<const char*>(slots_[kName]); }
  // From the dynamic symbol table: STT_* and size in bytes (0 = the linker knew none).
  int symbol_type() const { return symbol_type_; }
  std::size_t symbol_bytes() const { return symbol_bytes_; }

 private:
  int version_;
  void* const* slots_ = nullptr;
  int symbol_type_ = 0;
  std::size_t symbol_bytes_ = 0;
};

}  // namespace clustar::bench::conform
