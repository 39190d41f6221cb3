// In place of libclustar-crypto.so: its seals hide the payload and no more, and it cannot seal payload that begins with
// '!', as a real one cannot without memory.
#include <cstring>

#include "transport/crypto/table.h"

namespace {

using clustar::transport::crypto::Bytes;
using clustar::transport::crypto::Table;

int library;

void* create(char*, std::size_t) { return &library; }
void destroy(void*) {}
const char* version(void*) { return "none"; }
int hmac(void*, Bytes, Bytes, unsigned char* out) {
  std::memset(out, 1, 32);
  return 1;
}
int hkdf(void*, Bytes, Bytes, Bytes, unsigned char* out, std::size_t size) {
  std::memset(out, 1, size);
  return 1;
}
void* new_key(void*, const unsigned char*, int) { return &library; }
void free_key(void*) {}
int seal(void*, const unsigned char*, Bytes, Bytes, Bytes plain, unsigned char* cipher, unsigned char* tag) {
  if (plain.size > 0 && plain.data[0] == '!') return 0;
  for (std::size_t i = 0; i < plain.size; ++i) cipher[i] = static_cast<unsigned char>(~plain.data[i]);
  std::memset(tag, 1, 16);
  return 1;
}
int open(void*, const unsigned char*, Bytes, Bytes, Bytes, unsigned char*, const unsigned char*) { return 0; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const Table clustar_crypto = {
    Table::kAbi, sizeof(Table), create, destroy, version, hmac, hkdf, new_key, free_key, seal, open};
