#include "bench/conform/raw_table.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <array>

#include "bench/conform/verdict.h"
#include "nccl_plugin/abi/tables.h"

namespace clustar::bench::conform {

const char* slot_name(Slot slot) {
  constexpr std::array kNames = {
      "name",        "init",        "devices",       "getProperties", "listen",   "connect",   "accept",    "regMr",
      "regMrDmaBuf", "deregMr",     "isend",         "irecv",         "iflush",   "test",      "closeSend", "closeRecv",
      "closeListen", "getDeviceMr", "irecvConsumed", "makeVDevice",   "finalize", "setNetAttr"};
  static_assert(kNames.size() == kSlots);
  return kNames[slot];
}

RawTable::RawTable(const std::string& plugin, int version) : version_(version) {
  note_call("dlopen");
  void* library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen(fmt::format("libnccl-net-{}.so", plugin).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail_check(dlerror());
  const std::string symbol = fmt::format("ncclNetPlugin_v{}", version);
  void* table = dlsym(library, symbol.c_str());
  if (table == nullptr) fail_check(fmt::format("{} is not exported", symbol));
  slots_ = static_cast<void* const*>(table);
  Dl_info info;
  ElfW(Sym)* entry = nullptr;
  if (dladdr1(table, &info, reinterpret_cast<void**>(&entry), RTLD_DL_SYMENT) != 0 && entry != nullptr) {
    symbol_type_ = ELF64_ST_TYPE(entry->st_info);
    symbol_bytes_ = entry->st_size;
  }
}

std::size_t RawTable::slots() const {
  switch (version_) {
    case 6: return sizeof(nccl_abi::TableV6) / sizeof(void*);
    case 7: return sizeof(nccl_abi::TableV7) / sizeof(void*);
    case 8: return sizeof(nccl_abi::TableV8) / sizeof(void*);
    case 9: return sizeof(nccl_abi::TableV9) / sizeof(void*);
    case 10: return sizeof(nccl_abi::TableV10) / sizeof(void*);
    case 11: return sizeof(nccl_abi::TableV11) / sizeof(void*);
    default: return sizeof(nccl_abi::TableV12) / sizeof(void*);
  }
}

}  // namespace clustar::bench::conform
