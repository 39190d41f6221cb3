#include "mlt/fec/codec.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "transport/base/own_folder.h"

namespace clustar::mlt::fec {
namespace {

constexpr const char* kFile = "libclustar-fec.so";

std::string find(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + kFile;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return {};
}

const unsigned char* const* raw(std::span<const std::byte* const> packets) {
  return reinterpret_cast<const unsigned char* const*>(packets.data());
}

}  // namespace

Result<std::unique_ptr<Codec>> Codec::open() {
  const std::string folder = own_folder();
  return open({folder, folder + "/../lib"});
}

Result<std::unique_ptr<Codec>> Codec::open(const std::vector<std::string>& folders) {
  const std::string path = find(folders);
  if (path.empty()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} is not beside the plugin; copy it there with the plugin, or build again where ISA-L's "
                            "headers are (Debian: package libisal-dev)",
                            kFile));
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* reason = dlerror();
    return fail(ErrorCode::kUnavailable, fmt::format("{}; install ISA-L (Debian: package libisal2)",
                                                     reason == nullptr ? path + " cannot be opened" : reason));
  }
  const auto* table = static_cast<const Table*>(dlsym(module, "clustar_fec"));
  if (table == nullptr || table->abi != Table::kAbi || table->size != sizeof(Table)) {
    dlclose(module);
    return fail(ErrorCode::kUnavailable,
                path + (table == nullptr ? " is not clustar's module; install the one that came with the plugin"
                                         : " comes from another build; install plugin and modules together"));
  }
  return std::unique_ptr<Codec>(new Codec(module, *table));
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
