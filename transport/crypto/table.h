// What libclustar-crypto.so exports, as the data object `clustar_crypto`: plain C, so that the module needs neither a
// C++ library nor the same compiler as the plugin. Functions that answer int give 1 for success and 0 for failure.
// Nothing here is shared by threads but a library, whose hmac, hkdf and new_key may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clustar::transport::crypto {

struct Bytes {
  const unsigned char* data;
  std::size_t size;
};

struct Table {
  static constexpr std::uint32_t kAbi = 1;
  std::uint32_t abi;
  std::uint32_t size;  // sizeof(Table)

  // Opens OpenSSL. Null: it cannot be used, and `why` (up to `why_size` bytes with the final 0) says why.
  void* (*create)(char* why, std::size_t why_size);
  void (*destroy)(void* library);  // after all its keys
  const char* (*version)(void* library);

  int (*hmac)(void* library, Bytes key, Bytes data, unsigned char* out);  // HMAC-SHA256: 32 bytes
  // HKDF-SHA256, extract and expand (RFC 5869); at most 8,160 bytes.
  int (*hkdf)(void* library, Bytes secret, Bytes salt, Bytes info, unsigned char* out, std::size_t size);

  // AES-256-GCM with a key of 32 bytes, either for seal or for open. Null: no memory.
  void* (*new_key)(void* library, const unsigned char* key, int seals);
  void (*free_key)(void* key);
  // Nonce of 12 bytes, tag of 16. What is authenticated: `header`, then `clear`, then the ciphertext. `plain` and
  // `cipher` have one size; both may be empty. No allocation.
  int (*seal)(void* key, const unsigned char* nonce, Bytes header, Bytes clear, Bytes plain, unsigned char* cipher,
              unsigned char* tag);
  // 0: the tag does not fit, or a failure; what was written to `plain` is then not to be used.
  int (*open)(void* key, const unsigned char* nonce, Bytes header, Bytes clear, Bytes cipher, unsigned char* plain,
              const unsigned char* tag);
};

}  // namespace clustar::transport::crypto
