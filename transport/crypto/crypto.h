// The crypto module as C++: finds libclustar-crypto.so, checks it, and gives what it does. No OpenSSL here: the plugin
// loads without it, and every failure is a reason.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/result.h"
#include "transport/crypto/table.h"

namespace clustar::transport::crypto {

using Key = std::array<std::byte, 32>;
using Digest = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 12>;
inline constexpr std::size_t kTagBytes = 16;
using Tag = std::array<std::byte, kTagBytes>;

class Crypto {
 public:
  // From module_folders() (transport/base/own_folder.h).
  static Result<std::unique_ptr<Crypto>> open();
  // Errors, all kUnavailable with the fix: absent, cannot be opened, of another build, no OpenSSL 3.
  static Result<std::unique_ptr<Crypto>> open(const std::vector<std::string>& folders);
  ~Crypto();
  Crypto(const Crypto&) = delete;
  Crypto& operator=(const Crypto&) = delete;

  std::string version() const { return table_.version(library_); }  // "OpenSSL 3.0.19 27 Jan 2026"
  // By any thread. Errors: kSystem, out of memory.
  Result<Digest> hmac(std::span<const std::byte> key, std::span<const std::byte> data) const;
  Result<Key> hkdf(std::span<const std::byte> secret, std::span<const std::byte> salt,
                   std::span<const std::byte> info) const;

 private:
  friend class Aead;
  Crypto(void* module, const Table& table, void* library) : module_(module), table_(table), library_(library) {}

  void* const module_;
  const Table& table_;
  void* const library_;
};

// AES-256-GCM with one key, one way. One thread at a time; the Crypto outlives it. A nonce is used once per key: the
// caller's promise.
class Aead {
 public:
  enum class Use : std::uint8_t { kSeal, kOpen };

  Aead() = default;
  static Result<Aead> create(const Crypto& crypto, const Key& key, Use use);
  ~Aead() { reset(); }
  Aead(Aead&& other) noexcept : table_(other.table_), key_(std::exchange(other.key_, nullptr)) {}
  Aead& operator=(Aead&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(key_, other.key_);
    return *this;
  }
  explicit operator bool() const { return key_ != nullptr; }

  // Authenticates `header`, then `clear`, then what becomes of `plain`, which goes to `cipher` (as long).
  bool seal(const Nonce& nonce, std::span<const std::byte> header, std::span<const std::byte> clear,
            std::span<const std::byte> plain, std::byte* cipher, std::span<std::byte, kTagBytes> tag);
  // False: nothing that came with this tag is to be believed, `plain` included.
  bool open(const Nonce& nonce, std::span<const std::byte> header, std::span<const std::byte> clear,
            std::span<const std::byte> cipher, std::byte* plain, std::span<const std::byte, kTagBytes> tag);

 private:
  void reset();

  const Table* table_ = nullptr;
  void* key_ = nullptr;
};

}  // namespace clustar::transport::crypto
