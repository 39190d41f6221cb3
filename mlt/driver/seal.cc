#include "mlt/driver/seal.h"

#include <string_view>

#include "transport/base/bytes.h"

namespace clustar::mlt::driver {
namespace {

crypto::Nonce nonce_of(std::uint8_t path, std::uint64_t counter) {
  crypto::Nonce nonce;
  WireWriter writer{std::span<std::byte, 12>(nonce)};
  writer.store<0>(path);
  writer.store<4>(counter);
  return nonce;
}

}  // namespace

Seal::Seal(const crypto::Crypto& crypto, const Session& session, Side here, std::uint8_t paths, std::uint64_t first,
           unsigned key_bits)
    : crypto_(crypto),
      session_(session),
      here_(here),
      paths_(paths),
      key_bits_(key_bits),
      outbound_(paths + 1u),
      inbound_(paths + 1u) {
  for (Outbound& out : outbound_) out.counter = first;
  for (Inbound& in : inbound_) in.epoch = first >> key_bits;
}

bool Seal::make_key(PacketKey& key, Side from, std::uint8_t path, std::uint64_t epoch, crypto::Aead::Use use) const {
  constexpr std::string_view kLabel = "clustar mlt packets";
  std::array<std::byte, 10> names;
  WireWriter writer{std::span<std::byte, 10>(names)};
  writer.store<0>(static_cast<std::uint8_t>(from));
  writer.store<1>(path);
  writer.store<2>(epoch);
  std::array<std::byte, kLabel.size() + names.size()> info;
  std::memcpy(info.data(), kLabel.data(), kLabel.size());
  std::memcpy(info.data() + kLabel.size(), names.data(), names.size());
  const auto derived = crypto_.hkdf(session_.key, {}, info);
  if (!derived) return false;
  auto aead = crypto::Aead::create(crypto_, *derived, use);
  if (!aead) return false;
  key.aead = std::move(*aead);
  key.epoch = epoch;
  return true;
}

bool Seal::seal(std::uint8_t path, std::span<std::byte> header, std::span<const std::byte> payload, std::byte* cipher) {
  if (!has(path) || header.size() < kSealBytes) return false;
  Outbound& out = outbound_[index(path)];
  if (out.counter >= kMaxCounter) return false;
  const std::uint64_t epoch = out.counter >> key_bits_;
  if (out.key.epoch != epoch && !make_key(out.key, here_, path, epoch, crypto::Aead::Use::kSeal)) return false;
  const std::uint64_t counter = out.counter++;
  const auto trailer = header.last<kSealBytes>();
  WireWriter(trailer).store<0>(counter);
  const auto authentic = header.first(header.size() - crypto::kTagBytes);
  const auto clear = cipher == nullptr ? payload : std::span<const std::byte>();
  const auto plain = cipher == nullptr ? std::span<const std::byte>() : payload;
  return out.key.aead.seal(nonce_of(path, counter), authentic, clear, plain, cipher, trailer.last<crypto::kTagBytes>());
}

Seal::Opened Seal::open(std::uint8_t path, std::span<const std::byte> header, std::span<const std::byte> payload,
                        std::byte* plain) {
  if (!has(path) || header.size() <= kSealBytes) return Opened::kForged;
  Inbound& in = inbound_[index(path)];
  const auto trailer = header.last<kSealBytes>();
  const auto counter = WireReader(trailer).load<std::uint64_t, 0>();
  if (counter >= kMaxCounter) return Opened::kForged;
  if (in.window.seen(counter)) return Opened::kReplayed;
  const std::uint64_t epoch = counter >> key_bits_;
  // Three epochs, three places: an attacker who forges counters makes us derive each key once at most.
  if (epoch > in.epoch + 1) return Opened::kForged;
  if (epoch + 1 < in.epoch) return Opened::kReplayed;  // too old to tell
  PacketKey& key = in.keys[epoch % in.keys.size()];
  if (key.epoch != epoch) {
    const Side from = here_ == Side::kSender ? Side::kReceiver : Side::kSender;
    if (!make_key(key, from, path, epoch, crypto::Aead::Use::kOpen)) return Opened::kForged;
  }
  const auto authentic = header.first(header.size() - crypto::kTagBytes);
  const auto clear = plain == nullptr ? payload : std::span<const std::byte>();
  const auto cipher = plain == nullptr ? std::span<const std::byte>() : payload;
  if (!key.aead.open(nonce_of(path, counter), authentic, clear, cipher, plain, trailer.last<crypto::kTagBytes>())) {
    return Opened::kForged;
  }
  in.window.mark(counter);
  if (epoch > in.epoch) in.epoch = epoch;
  return Opened::kGenuine;
}

}  // namespace clustar::mlt::driver
