// What a pre-shared key (CLUSTAR_PSK_FILE) gives a transport: proofs for the handshake, and a key per connection.
//
//   proof key     = HKDF(PSK, no salt, "clustar mlt proof")
//   proof         = HMAC(proof key, who speaks || all that was said so far)
//   session key   = HKDF(PSK, nonce of the connecting side || of the accepting side,
//                        "clustar mlt session" || token || connection number || mode)
// Packet keys come from the session key: sealing.h. Any thread may call what is const.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlt/driver/handshake.h"
#include "transport/base/config.h"
#include "transport/base/result.h"
#include "transport/crypto/crypto.h"
#include "transport/crypto/psk_file.h"

namespace clustar::mlt::driver {

namespace crypto = transport::crypto;

struct Session {
  crypto::Key key{};
};

class Protection {
 public:
  // Null without a psk_file. Errors: no crypto module, or a file that must not be used, each with the fix.
  static Result<std::unique_ptr<Protection>> create(const Config& config);
  static Result<std::unique_ptr<Protection>> create(std::unique_ptr<crypto::Crypto> crypto, crypto::Secret secret,
                                                    PskMode mode);

  PskMode mode() const { return mode_; }
  std::string library() const { return crypto_->version(); }
  const crypto::Crypto& crypto() const { return *crypto_; }

  // `speech`: one of the four below. `said`: the messages so far, in order.
  static constexpr std::string_view kHello = "hello";
  static constexpr std::string_view kWelcome = "welcome";
  static constexpr std::string_view kConfirm = "confirm";
  static constexpr std::string_view kReady = "ready";
  Result<Proof> prove(std::string_view speech, std::initializer_list<std::span<const std::byte>> said) const;
  // False, too, if nothing can be computed.
  bool proves(const Proof& proof, std::string_view speech,
              std::initializer_list<std::span<const std::byte>> said) const;

  Result<Session> session(const Hello& hello, const Welcome& welcome) const;

 private:
  Protection(std::unique_ptr<crypto::Crypto> crypto, crypto::Secret secret, PskMode mode)
      : crypto_(std::move(crypto)), secret_(std::move(secret)), mode_(mode) {}

  const std::unique_ptr<crypto::Crypto> crypto_;
  const crypto::Secret secret_;
  const PskMode mode_;
  crypto::Key proof_key_{};
};

}  // namespace clustar::mlt::driver
