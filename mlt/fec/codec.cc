#include "mlt/fec/codec.h"

#include <dlfcn.h>

#include "transport/base/own_folder.h"
#include "transport/base/table_module.h"

namespace clustar::mlt::fec {
namespace {

const unsigned char* const* raw(std::span<const std::byte* const> packets) {
  return reinterpret_cast<const unsigned char* const*>(packets.data());
}

}  // namespace

Result<std::unique_ptr<Codec>> Codec::open() { return open(module_folders()); }

Result<std::unique_ptr<Codec>> Codec::open(const std::vector<std::string>& folders) {
  const auto opened = open_table({.file = "libclustar-fec.so",
                                  .kind = "parity module",
                                  .symbol = "clustar_fec",
                                  .abi = Table::kAbi,
                                  .size = sizeof(Table),
                                  .built_where = "ISA-L's headers are (Debian: package libisal-dev)",
                                  .unopened = "; install ISA-L (Debian: package libisal2)"},
                                 folders);
  if (!opened) return tl::unexpected(opened.error());
  return std::unique_ptr<Codec>(new Codec(opened->module, *static_cast<const Table*>(opened->table)));
}

Codec::~Codec() { dlclose(module_); }

bool Codec::encode(std::span<const std::byte* const> packets, std::uint8_t row, std::size_t bytes,
                   std::byte* out) const {
  return table_.encode(static_cast<unsigned>(packets.size()), row, bytes, raw(packets),
                       reinterpret_cast<unsigned char*>(out)) == 1;
}

bool Codec::rebuild(std::span<const std::byte* const> packets, std::span<const std::uint8_t> places,
                    std::span<const std::uint8_t> rows, std::size_t bytes, std::span<std::byte* const> out) const {
  if (places.size() != rows.size() || places.size() != out.size()) return false;
  return table_.rebuild(static_cast<unsigned>(packets.size()), static_cast<unsigned>(places.size()), places.data(),
                        rows.data(), bytes, raw(packets), reinterpret_cast<unsigned char* const*>(out.data())) == 1;
}

}  // namespace clustar::mlt::fec
