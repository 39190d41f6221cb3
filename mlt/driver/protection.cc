#include "mlt/driver/protection.h"

#include <utility>

#include "mlt/driver/settings.h"
#include "transport/base/constant_time.h"

namespace clustar::mlt::driver {
namespace {

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}
std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

Result<std::unique_ptr<Protection>> Protection::create(const Config& config) {
  const auto settings = config.get<MltSettings>();
  if (settings.psk_file.empty()) return nullptr;
  auto secret = crypto::read_psk(settings.psk_file);
  if (!secret) return tl::unexpected(secret.error());
  auto crypto = crypto::Crypto::open();
  if (!crypto) return tl::unexpected(crypto.error());
  return create(std::move(*crypto), std::move(*secret),
                settings.psk_mode == "encrypt" ? PskMode::kEncrypt : PskMode::kAuthenticate);
}

Result<std::unique_ptr<Protection>> Protection::create(std::unique_ptr<crypto::Crypto> crypto, crypto::Secret secret,
                                                       PskMode mode) {
  std::unique_ptr<Protection> made(new Protection(std::move(crypto), std::move(secret), mode));
  const auto key = made->crypto_->hkdf(made->secret_.bytes(), {}, as_bytes("clustar mlt proof"));
  if (!key) return tl::unexpected(key.error());
  made->proof_key_ = *key;
  return made;
}

Result<Proof> Protection::prove(std::string_view speech, std::initializer_list<std::span<const std::byte>> said) const {
  std::vector<std::byte> all;
  append(all, as_bytes(speech));
  all.push_back(std::byte{0});
  for (const auto part : said) append(all, part);
  return crypto_->hmac(proof_key_, all);
}

bool Protection::proves(const Proof& proof, std::string_view speech,
                        std::initializer_list<std::span<const std::byte>> said) const {
  const auto expected = prove(speech, said);
  return expected && equal_in_constant_time(*expected, proof);
}

Result<Session> Protection::session(const Hello& hello, const Welcome& welcome) const {
  std::vector<std::byte> salt;
  append(salt, hello.psk.nonce);
  append(salt, welcome.psk.nonce);
  std::vector<std::byte> info;
  append(info, as_bytes("clustar mlt session"));
  append(info, hello.token);
  for (int shift = 56; shift >= 0; shift -= 8) info.push_back(static_cast<std::byte>(hello.connection_id >> shift));
  info.push_back(static_cast<std::byte>(mode_));
  const auto key = crypto_->hkdf(secret_.bytes(), salt, info);
  if (!key) return tl::unexpected(key.error());
  return Session{*key};
}

}  // namespace clustar::mlt::driver
