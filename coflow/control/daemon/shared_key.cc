#include "coflow/control/daemon/shared_key.h"

#include <utility>

namespace clustar::coflow::control {

Result<SharedKey> SharedKey::read(const std::string& path) {
  SharedKey made;
  if (path.empty()) return made;
  auto secret = transport::crypto::read_psk(path);
  if (!secret) return fail(secret.error().code, "--key-file: " + secret.error().message);
  auto crypto = transport::crypto::Crypto::open();
  if (!crypto) return fail(crypto.error().code, "--key-file: " + crypto.error().message);
  made.secret_ = std::move(*secret);
  made.crypto_ = std::move(*crypto);
  return made;
}

SessionKey SharedKey::session_key() const {
  if (!crypto_) return {};
  const auto hmac = [crypto = crypto_.get()](std::span<const std::byte> key,
                                             std::span<const std::byte> data) -> std::optional<Digest32> {
    const auto digest = crypto->hmac(key, data);
    return digest ? std::optional<Digest32>(*digest) : std::nullopt;
  };
  return {hmac, secret_.bytes()};
}

}  // namespace clustar::coflow::control
