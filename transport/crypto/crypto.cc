#include "transport/crypto/crypto.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "transport/base/own_folder.h"
#include "transport/base/table_module.h"

namespace clustar::transport::crypto {
namespace {

Bytes bytes_of(std::span<const std::byte> span) {
  return {reinterpret_cast<const unsigned char*>(span.data()), span.size()};
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

}  // namespace

Result<std::unique_ptr<Crypto>> Crypto::open() { return open(module_folders()); }

Result<std::unique_ptr<Crypto>> Crypto::open(const std::vector<std::string>& folders) {
  const auto opened = open_table({.file = "libclustar-crypto.so",
                                  .kind = "crypto module",
                                  .symbol = "clustar_crypto",
                                  .abi = Table::kAbi,
                                  .size = sizeof(Table),
                                  .built_where = "OpenSSL 3's headers are (Debian: package libssl-dev)"},
                                 folders);
  if (!opened) return tl::unexpected(opened.error());
  const auto* table = static_cast<const Table*>(opened->table);
  std::array<char, 512> why{};
  void* library = table->create(why.data(), why.size());
  if (library == nullptr) {
    dlclose(opened->module);
    return fail(ErrorCode::kUnavailable, fmt::format("{}: {}", opened->path, why.data()));
  }
  return std::unique_ptr<Crypto>(new Crypto(opened->module, *table, library));
}

Crypto::~Crypto() {
  table_.destroy(library_);
  dlclose(module_);
}

Result<Digest> Crypto::hmac(std::span<const std::byte> key, std::span<const std::byte> data) const {
  Digest digest;
  if (table_.hmac(library_, bytes_of(key), bytes_of(data), raw(digest.data())) == 1) return digest;
  return fail(ErrorCode::kSystem, "OpenSSL computes no HMAC: out of memory?");
}

Result<Key> Crypto::hkdf(std::span<const std::byte> secret, std::span<const std::byte> salt,
                         std::span<const std::byte> info) const {
  Key key;
  if (table_.hkdf(library_, bytes_of(secret), bytes_of(salt), bytes_of(info), raw(key.data()), key.size()) == 1) {
    return key;
  }
  return fail(ErrorCode::kSystem, "OpenSSL derives no key: out of memory?");
}

Result<Aead> Aead::create(const Crypto& crypto, const Key& key, Use use) {
  Aead made;
  made.table_ = &crypto.table_;
  made.key_ = crypto.table_.new_key(crypto.library_, raw(key.data()), use == Use::kSeal ? 1 : 0);
  if (made.key_ == nullptr) return fail(ErrorCode::kSystem, "OpenSSL takes no key: out of memory?");
  return made;
}

void Aead::reset() {
  if (key_ != nullptr) table_->free_key(std::exchange(key_, nullptr));
}

bool Aead::seal(const Nonce& nonce, std::span<const std::byte> header, std::span<const std::byte> clear,
                std::span<const std::byte> plain, std::byte* cipher, std::span<std::byte, kTagBytes> tag) {
  return table_->seal(key_, raw(nonce.data()), bytes_of(header), bytes_of(clear), bytes_of(plain), raw(cipher),
                      raw(tag.data())) == 1;
}

bool Aead::open(const Nonce& nonce, std::span<const std::byte> header, std::span<const std::byte> clear,
                std::span<const std::byte> cipher, std::byte* plain, std::span<const std::byte, kTagBytes> tag) {
  return table_->open(key_, raw(nonce.data()), bytes_of(header), bytes_of(clear), bytes_of(cipher), raw(plain),
                      raw(tag.data())) == 1;
}

}  // namespace clustar::transport::crypto
