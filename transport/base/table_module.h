// Modules that the plugin opens when they are needed, and that export one table of plain C functions: what needs a
// library of its own lies there, so that the plugin loads without it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar {

struct TableModule {
  const char* file;    // "libclustar-crypto.so"
  const char* kind;    // "crypto module", in errors
  const char* symbol;  // of the table
  std::uint32_t abi;
  std::uint32_t size;         // of the table
  const char* built_where;    // "OpenSSL 3's headers are (Debian: package libssl-dev)"
  const char* unopened = "";  // behind the loader's reason: the fix
};

// Every table begins with these.
struct TableStart {
  std::uint32_t abi;
  std::uint32_t size;
};

struct OpenedTable {
  void* module;  // the caller's, for dlclose()
  const void* table;
  std::string path;
};

// The first of `folders` (module_folders(), transport/base/own_folder.h) that has the file. Errors, all kUnavailable
// with the fix: absent, cannot be opened, not ours, of another build.
Result<OpenedTable> open_table(const TableModule& wanted, const std::vector<std::string>& folders);

}  // namespace clustar
