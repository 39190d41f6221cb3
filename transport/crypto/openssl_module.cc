// The module libclustar-crypto.so: OpenSSL 3 behind transport/crypto/table.h.
//
// OpenSSL is opened here by name and its functions are looked up in that handle, never in the process's global scope:
// an executable that exports functions of the same names (a static OpenSSL or BoringSSL) cannot get between. All work
// is done in a library context of our own, so that neither openssl.cnf nor providers that the process loaded have a
// say.
#include <dlfcn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transport/crypto/table.h"

namespace clustar::transport::crypto {
namespace {

constexpr const char* kLibrary = "libcrypto.so.3";
constexpr std::size_t kHash = 32;
constexpr std::size_t kTag = 16;

#define CLUSTAR_OPENSSL_FUNCTIONS(X) \
  X(OPENSSL_init_crypto)             \
  X(OpenSSL_version)                 \
  X(OSSL_LIB_CTX_new)                \
  X(OSSL_LIB_CTX_free)               \
  X(ERR_set_mark)                    \
  X(ERR_pop_to_mark)                 \
  X(EVP_MAC_fetch)                   \
  X(EVP_MAC_free)                    \
  X(EVP_MAC_CTX_new)                 \
  X(EVP_MAC_CTX_free)                \
  X(EVP_MAC_init)                    \
  X(EVP_MAC_update)                  \
  X(EVP_MAC_final)                   \
  X(EVP_KDF_fetch)                   \
  X(EVP_KDF_free)                    \
  X(EVP_KDF_CTX_new)                 \
  X(EVP_KDF_CTX_free)                \
  X(EVP_KDF_derive)                  \
  X(EVP_CIPHER_fetch)                \
  X(EVP_CIPHER_free)                 \
  X(EVP_CIPHER_CTX_new)              \
  X(EVP_CIPHER_CTX_free)             \
  X(EVP_CIPHER_CTX_ctrl)             \
  X(EVP_EncryptInit_ex2)             \
  X(EVP_EncryptUpdate)               \
  X(EVP_EncryptFinal_ex)             \
  X(EVP_DecryptInit_ex2)             \
  X(EVP_DecryptUpdate)               \
  X(EVP_DecryptFinal_ex)

struct Functions {
#define CLUSTAR_MEMBER(name) decltype(&::name) name;
  CLUSTAR_OPENSSL_FUNCTIONS(CLUSTAR_MEMBER)
#undef CLUSTAR_MEMBER
};

struct Library {
  void* handle = nullptr;
  Functions ssl{};
  OSSL_LIB_CTX* context = nullptr;
  EVP_MAC* hmac = nullptr;
  EVP_KDF* hkdf = nullptr;
  EVP_CIPHER* cipher = nullptr;
};

struct Key {
  const Functions* ssl;
  EVP_CIPHER_CTX* context;
};

// The process's own use of OpenSSL in this thread must not find errors of ours in its queue.
class QuietErrors {
 public:
  explicit QuietErrors(const Functions& ssl) : ssl_(ssl) { ssl_.ERR_set_mark(); }
  ~QuietErrors() { ssl_.ERR_pop_to_mark(); }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  const Functions& ssl_;
};

Library& of(void* library) { return *static_cast<Library*>(library); }

OSSL_PARAM octets(const char* name, Bytes bytes) {
  return {name, OSSL_PARAM_OCTET_STRING, const_cast<unsigned char*>(bytes.data), bytes.size, OSSL_PARAM_UNMODIFIED};
}

OSSL_PARAM text(const char* name, const char* value) {
  return {name, OSSL_PARAM_UTF8_STRING, const_cast<char*>(value), std::strlen(value), OSSL_PARAM_UNMODIFIED};
}

constexpr OSSL_PARAM kEnd{nullptr, 0, nullptr, 0, 0};

bool load(Library& library, char* why, std::size_t why_size) {
  library.handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) {
    const char* reason = dlerror();
    std::snprintf(why, why_size, "OpenSSL 3 is needed (Debian: package libssl3): %s",
                  reason == nullptr ? kLibrary : reason);
    return false;
  }
#define CLUSTAR_LOOK_UP(name)                                                                               \
  library.ssl.name = reinterpret_cast<decltype(&::name)>(dlsym(library.handle, #name));                     \
  if (library.ssl.name == nullptr) {                                                                        \
    std::snprintf(why, why_size, "%s has no function %s: OpenSSL 3.0 or later is needed", kLibrary, #name); \
    return false;                                                                                           \
  }
  CLUSTAR_OPENSSL_FUNCTIONS(CLUSTAR_LOOK_UP)
#undef CLUSTAR_LOOK_UP
  return true;
}

bool fetch(Library& library, char* why, std::size_t why_size) {
  const Functions& ssl = library.ssl;
  const QuietErrors quiet(ssl);
  // The first caller decides for the process whether OpenSSL cleans up at exit; not by us, while threads may run.
  ssl.OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  library.context = ssl.OSSL_LIB_CTX_new();
  if (library.context != nullptr) {
    library.hmac = ssl.EVP_MAC_fetch(library.context, "HMAC", nullptr);
    library.hkdf = ssl.EVP_KDF_fetch(library.context, "HKDF", nullptr);
    library.cipher = ssl.EVP_CIPHER_fetch(library.context, "AES-256-GCM", nullptr);
  }
  if (library.hmac != nullptr && library.hkdf != nullptr && library.cipher != nullptr) return true;
  std::snprintf(why, why_size, "%s offers no HMAC, HKDF or AES-256-GCM", ssl.OpenSSL_version(OPENSSL_VERSION));
  return false;
}

void destroy(void* opaque) {
  Library& library = of(opaque);
  if (library.cipher != nullptr) library.ssl.EVP_CIPHER_free(library.cipher);
  if (library.hkdf != nullptr) library.ssl.EVP_KDF_free(library.hkdf);
  if (library.hmac != nullptr) library.ssl.EVP_MAC_free(library.hmac);
  if (library.context != nullptr) library.ssl.OSSL_LIB_CTX_free(library.context);
  if (library.handle != nullptr) dlclose(library.handle);
  std::free(opaque);
}

void* create(char* why, std::size_t why_size) {
  // No `new`: the module has no C++ library.
  void* memory = std::calloc(1, sizeof(Library));
  if (memory == nullptr) {
    std::snprintf(why, why_size, "no memory");
    return nullptr;
  }
  if (load(of(memory), why, why_size) && fetch(of(memory), why, why_size)) return memory;
  destroy(memory);
  return nullptr;
}

const char* version(void* library) { return of(library).ssl.OpenSSL_version(OPENSSL_VERSION); }

int hmac(void* opaque, Bytes key, Bytes data, unsigned char* out) {
  const Library& library = of(opaque);
  const Functions& ssl = library.ssl;
  const QuietErrors quiet(ssl);
  EVP_MAC_CTX* context = ssl.EVP_MAC_CTX_new(library.hmac);
  if (context == nullptr) return 0;
  const OSSL_PARAM parameters[] = {text(OSSL_MAC_PARAM_DIGEST, "SHA256"), kEnd};
  std::size_t length = 0;
  const bool done = ssl.EVP_MAC_init(context, key.data, key.size, parameters) == 1 &&
                    ssl.EVP_MAC_update(context, data.data, data.size) == 1 &&
                    ssl.EVP_MAC_final(context, out, &length, kHash) == 1 && length == kHash;
  ssl.EVP_MAC_CTX_free(context);
  return done ? 1 : 0;
}

int hkdf(void* opaque, Bytes secret, Bytes salt, Bytes info, unsigned char* out, std::size_t size) {
  const Library& library = of(opaque);
  const Functions& ssl = library.ssl;
  const QuietErrors quiet(ssl);
  EVP_KDF_CTX* context = ssl.EVP_KDF_CTX_new(library.hkdf);
  if (context == nullptr) return 0;
  OSSL_PARAM parameters[5] = {text(OSSL_KDF_PARAM_DIGEST, "SHA256"), octets(OSSL_KDF_PARAM_KEY, secret), kEnd, kEnd,
                              kEnd};
  // An empty string is no value to OpenSSL 3.0: absent means the same to RFC 5869.
  std::size_t count = 2;
  if (salt.size > 0) parameters[count++] = octets(OSSL_KDF_PARAM_SALT, salt);
  if (info.size > 0) parameters[count++] = octets(OSSL_KDF_PARAM_INFO, info);
  const bool done = ssl.EVP_KDF_derive(context, out, size, parameters) == 1;
  ssl.EVP_KDF_CTX_free(context);
  return done ? 1 : 0;
}

void free_key(void* opaque) {
  if (opaque == nullptr) return;
  Key* key = static_cast<Key*>(opaque);
  key->ssl->EVP_CIPHER_CTX_free(key->context);
  std::free(key);
}

void* new_key(void* opaque, const unsigned char* bytes, int seals) {
  const Library& library = of(opaque);
  const QuietErrors quiet(library.ssl);
  EVP_CIPHER_CTX* context = library.ssl.EVP_CIPHER_CTX_new();
  Key* key = static_cast<Key*>(std::malloc(sizeof(Key)));
  const auto init = seals != 0 ? library.ssl.EVP_EncryptInit_ex2 : library.ssl.EVP_DecryptInit_ex2;
  if (context != nullptr && key != nullptr && init(context, library.cipher, bytes, nullptr, nullptr) == 1) {
    key->ssl = &library.ssl;
    key->context = context;
    return key;
  }
  library.ssl.EVP_CIPHER_CTX_free(context);
  std::free(key);
  return nullptr;
}

// Without `out` the bytes are authenticated only.
template <class Update>
bool feed(Update update, EVP_CIPHER_CTX* context, unsigned char* out, Bytes in) {
  if (in.size == 0) return true;
  if (in.size > INT_MAX) return false;
  int length = 0;
  return update(context, out, &length, in.data, static_cast<int>(in.size)) == 1;
}

int seal(void* opaque, const unsigned char* nonce, Bytes header, Bytes clear, Bytes plain, unsigned char* cipher,
         unsigned char* tag) {
  const Functions& ssl = *static_cast<Key*>(opaque)->ssl;
  EVP_CIPHER_CTX* context = static_cast<Key*>(opaque)->context;
  const QuietErrors quiet(ssl);
  int length = 0;
  unsigned char rest[kTag];
  const bool done =
      ssl.EVP_EncryptInit_ex2(context, nullptr, nullptr, nonce, nullptr) == 1 &&
      feed(ssl.EVP_EncryptUpdate, context, nullptr, header) && feed(ssl.EVP_EncryptUpdate, context, nullptr, clear) &&
      feed(ssl.EVP_EncryptUpdate, context, cipher, plain) && ssl.EVP_EncryptFinal_ex(context, rest, &length) == 1 &&
      ssl.EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTag, tag) == 1;
  return done ? 1 : 0;
}

int open(void* opaque, const unsigned char* nonce, Bytes header, Bytes clear, Bytes cipher, unsigned char* plain,
         const unsigned char* tag) {
  const Functions& ssl = *static_cast<Key*>(opaque)->ssl;
  EVP_CIPHER_CTX* context = static_cast<Key*>(opaque)->context;
  const QuietErrors quiet(ssl);
  int length = 0;
  unsigned char rest[kTag];
  const bool done =
      ssl.EVP_DecryptInit_ex2(context, nullptr, nullptr, nonce, nullptr) == 1 &&
      ssl.EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTag, const_cast<unsigned char*>(tag)) == 1 &&
      feed(ssl.EVP_DecryptUpdate, context, nullptr, header) && feed(ssl.EVP_DecryptUpdate, context, nullptr, clear) &&
      feed(ssl.EVP_DecryptUpdate, context, plain, cipher) && ssl.EVP_DecryptFinal_ex(context, rest, &length) == 1;
  return done ? 1 : 0;
}

}  // namespace
}  // namespace clustar::transport::crypto

namespace crypto = clustar::transport::crypto;
extern "C" __attribute__((visibility("default"))) const crypto::Table clustar_crypto;
const crypto::Table clustar_crypto = {crypto::Table::kAbi, sizeof(crypto::Table), crypto::create, crypto::destroy,
                                      crypto::version,     crypto::hmac,          crypto::hkdf,   crypto::new_key,
                                      crypto::free_key,    crypto::seal,          crypto::open};
