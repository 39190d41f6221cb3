// Known answers of the crypto module, and what happens where it is not.
#include "transport/crypto/crypto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/temp_path.h"
#include "transport/base/constant_time.h"

// A process may export functions of OpenSSL's names, from a library of its own: nobody may call them for us.
extern "C" __attribute__((visibility("default"))) int EVP_EncryptUpdate() { std::abort(); }
extern "C" __attribute__((visibility("default"))) int EVP_DecryptFinal_ex() { std::abort(); }
extern "C" __attribute__((visibility("default"))) void* EVP_CIPHER_fetch() { std::abort(); }

namespace clustar::transport::crypto {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::byte> unhex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}
std::vector<std::byte> counted(int from, int to) {
  std::vector<std::byte> bytes;
  for (int i = from; i <= to; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}
std::span<const std::byte> text(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }
template <std::size_t Size>
std::array<std::byte, Size> exactly(const std::string& hex) {
  std::array<std::byte, Size> out;
  std::ranges::copy(unhex(hex), out.begin());
  return out;
}

class CryptoModule : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Crypto::open();
    if (!opened) {
      if (CLUSTAR_HAS_CRYPTO) FAIL() << opened.error().message;
      GTEST_SKIP() << opened.error().message;
    }
    crypto_ = std::move(*opened);
  }
  std::unique_ptr<Crypto> crypto_;
};

TEST_F(CryptoModule, HmacOfRfc4231) {
  EXPECT_EQ(*crypto_->hmac(std::vector(20, std::byte{0x0b}), text("Hi There")),
            exactly<32>("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  EXPECT_EQ(*crypto_->hmac(text("Jefe"), text("what do ya want for nothing?")),
            exactly<32>("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
}

TEST_F(CryptoModule, HkdfOfRfc5869) {
  const std::vector<std::byte> secret(22, std::byte{0x0b});
  EXPECT_EQ(*crypto_->hkdf(secret, counted(0, 12), counted(0xf0, 0xf9)),
            exactly<32>("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"))
      << "A.1";
  EXPECT_EQ(*crypto_->hkdf(counted(0, 0x4f), counted(0x60, 0xaf), counted(0xb0, 0xff)),
            exactly<32>("b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"))
      << "A.2";
  EXPECT_EQ(*crypto_->hkdf(secret, {}, {}),
            exactly<32>("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"))
      << "A.3";
}

struct Vector {
  const char* key;
  const char* nonce;
  const char* authentic;
  const char* plain;
  const char* cipher;
  const char* tag;
};
// McGrew and Viega, "The Galois/Counter Mode of Operation (GCM)", test cases 13, 14 and 16.
const std::string kFeffe = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
const std::vector<Vector>& vectors() {
  static const std::string zero(64, '0');
  static const std::vector<Vector> all{
      {zero.c_str(), "000000000000000000000000", "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
      {zero.c_str(), "000000000000000000000000", "", "00000000000000000000000000000000",
       "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
      {kFeffe.c_str(), "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
       "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de6"
       "57ba637b39",
       "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a"
       "0abcc9f662",
       "76fc6ece0f4e1768cddf8853bb2d551b"},
  };
  return all;
}

TEST_F(CryptoModule, GcmOfItsAuthorsWhereverTheHeaderIsSplit) {
  for (const Vector& known : vectors()) {
    const auto authentic = unhex(known.authentic);
    const auto plain = unhex(known.plain);
    auto seal = std::move(*Aead::create(*crypto_, exactly<32>(known.key), Aead::Use::kSeal));
    auto open = std::move(*Aead::create(*crypto_, exactly<32>(known.key), Aead::Use::kOpen));
    const auto nonce = exactly<12>(known.nonce);
    for (std::size_t cut = 0; cut <= authentic.size(); ++cut) {
      const auto header = std::span(authentic).first(cut);
      const auto clear = std::span(authentic).subspan(cut);
      std::vector<std::byte> cipher(plain.size());
      Tag tag;
      ASSERT_TRUE(seal.seal(nonce, header, clear, plain, cipher.data(), tag));
      EXPECT_EQ(cipher, unhex(known.cipher));
      EXPECT_EQ(tag, exactly<16>(known.tag));
      std::vector<std::byte> back(plain.size());
      ASSERT_TRUE(open.open(nonce, header, clear, cipher, back.data(), tag));
      EXPECT_EQ(back, plain);
      tag[5] ^= std::byte{1};
      EXPECT_FALSE(open.open(nonce, header, clear, cipher, back.data(), tag));
    }
  }
}

TEST_F(CryptoModule, NamesItsOpenSsl) { EXPECT_THAT(crypto_->version(), HasSubstr("OpenSSL 3")); }

TEST_F(CryptoModule, CanBeOpenedAndClosedOftenAndTwiceAtOnce) {
  for (int i = 0; i < 20; ++i) {
    auto one = Crypto::open();
    ASSERT_TRUE(one) << one.error().message;
    const auto key = (*crypto_).hkdf(text("secret"), {}, {});
    EXPECT_EQ(*(*one)->hkdf(text("secret"), {}, {}), *key);
  }
}

std::string error_in(const fs::path& folder) {
  const auto opened = Crypto::open({folder.string()});
  return opened ? "no error" : opened.error().message;
}

TEST(CryptoLoader, WhatIsMissingOrForeignIsAReasonWithItsFix) {
  const fs::path folder = tests::temp_path("crypto");
  fs::create_directories(folder);
  EXPECT_THAT(error_in(folder), AllOf(HasSubstr("libclustar-crypto.so is not beside"), HasSubstr("libssl-dev")));
  std::ofstream(folder / "libclustar-crypto.so") << "not an object file";
  EXPECT_THAT(error_in(folder), HasSubstr("libclustar-crypto.so"));
  fs::copy_file(CLUSTAR_NO_MODULE, folder / "libclustar-crypto.so", fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_in(folder), HasSubstr("not clustar's crypto module"));
  fs::remove_all(folder);
}

TEST(ConstantTime, EqualIsEqual) {
  EXPECT_TRUE(equal_in_constant_time(counted(1, 9), counted(1, 9)));
  EXPECT_FALSE(equal_in_constant_time(counted(1, 9), counted(1, 8)));
  EXPECT_FALSE(equal_in_constant_time(counted(1, 9), counted(2, 10)));
  EXPECT_TRUE(equal_in_constant_time({}, {}));
}

}  // namespace
}  // namespace clustar::transport::crypto
