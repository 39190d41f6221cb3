#include "mlt/driver/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mlt/driver/siphash.h"
#include "transport/base/rng.h"

namespace clustar::mlt::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Token counted() {
  Token token;
  for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(i);
  return token;
}

transport::io::AddressBlob some_address(std::size_t size = 20) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i + 1);
  return transport::io::AddressBlob::of(bytes).value();
}

TEST(SipHash, ThePapersVectorOfEightBytes) { EXPECT_EQ(siphash(counted(), 0x0706050403020100), 0x93f5f5799a932462u); }

TEST(MltHandshake, WhatIsWrittenIsRead) {
  HandleInfo info;
  info.token = counted();
  info.settings = {8896, 8, 256, 64, 16384, 2, 10'000, "verbs_ud"};
  info.endpoint.ipv6 = true;
  info.endpoint.port = 77;
  info.endpoint.address[15] = std::byte{1};
  info.config = {{1, 2, 3, 4, 5, 6, 7, 0xffffffff}, 1023};
  const auto handle = HandleInfo::parse(info.serialize());
  ASSERT_TRUE(handle);
  EXPECT_EQ(handle->token, info.token);
  EXPECT_EQ(handle->settings, info.settings);
  EXPECT_EQ(handle->endpoint.address, info.endpoint.address);
  EXPECT_EQ(handle->endpoint.port, 77);
  EXPECT_EQ(handle->config, info.config);

  const Hello hello{counted(), 0x123456789abcdef0, info.settings, some_address(), 77, {}};
  std::array<std::byte, Hello::kSize> bytes;
  hello.serialize_to(bytes);
  const auto heard = Hello::parse(bytes);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->token, hello.token);
  EXPECT_EQ(heard->connection_id, hello.connection_id);
  EXPECT_EQ(heard->settings, hello.settings);
  EXPECT_EQ(heard->address, hello.address);
  EXPECT_EQ(heard->rank, 77);

  std::array<std::byte, Welcome::kSize> answer;
  Welcome{some_address(), Verdict::kFine, {}}.serialize_to(answer);
  ASSERT_TRUE(Welcome::parse(answer));
  EXPECT_EQ(Welcome::parse(answer)->address, some_address());
}

TEST(MltHandshake, APreSharedKeysPartIsReadAsWritten) {
  Psk psk{PskMode::kEncrypt, {}, {}};
  psk.nonce.fill(std::byte{3});
  psk.nonce[31] = std::byte{4};
  psk.proof.fill(std::byte{5});
  psk.proof[31] = std::byte{6};
  const auto same = [&](const Psk& read) {
    return read.mode == psk.mode && read.nonce == psk.nonce && read.proof == psk.proof;
  };
  std::array<std::byte, Hello::kSize> bytes;
  Hello{counted(), 1, {}, some_address(), -1, psk}.serialize_to(bytes);
  ASSERT_TRUE(Hello::parse(bytes));
  EXPECT_TRUE(same(Hello::parse(bytes)->psk));
  EXPECT_TRUE(std::equal(psk.proof.begin(), psk.proof.end(), bytes.begin() + Hello::kProofAt));
  bytes[140] = std::byte{3};
  EXPECT_FALSE(Hello::parse(bytes)) << "no such mode";
  bytes[140] = std::byte{2};
  bytes[35] = std::byte{3};
  ASSERT_TRUE(Hello::parse(bytes));
  EXPECT_EQ(Hello::parse(bytes)->settings.recovery, 3) << "whose name only its module knows: the settings are compared";
  bytes[35] = std::byte{0};
  for (const char damaged : {'\0', 'U', '/', '\x80'}) {
    bytes[148] = static_cast<std::byte>(damaged);
    EXPECT_FALSE(Hello::parse(bytes)) << "no name of packets";
  }
  bytes[148] = std::byte{'u'};
  ASSERT_TRUE(Hello::parse(bytes));
  bytes[148 + 15] = std::byte{'x'};
  EXPECT_FALSE(Hello::parse(bytes)) << "something behind the name";
  std::fill_n(bytes.begin() + 148, 16, std::byte{'x'});
  EXPECT_FALSE(Hello::parse(bytes)) << "a name without an end";

  std::array<std::byte, Welcome::kSize> answer;
  Welcome{some_address(), Verdict::kPskMode, psk}.serialize_to(answer);
  ASSERT_TRUE(Welcome::parse(answer));
  EXPECT_EQ(Welcome::parse(answer)->verdict, Verdict::kPskMode);
  EXPECT_TRUE(same(Welcome::parse(answer)->psk));
  EXPECT_TRUE(std::equal(psk.proof.begin(), psk.proof.end(), answer.begin() + Welcome::kProofAt));
  answer[104] = std::byte{4};
  EXPECT_FALSE(Welcome::parse(answer)) << "no such verdict";

  HandleInfo info;
  info.endpoint.port = 1;
  info.psk_mode = PskMode::kAuthenticate;
  EXPECT_EQ(HandleInfo::parse(info.serialize())->psk_mode, PskMode::kAuthenticate);
}

TEST(MltHandshake, AVerdictNamesTheSettingAndBothEnds) {
  EXPECT_EQ(compare(PskMode::kNone, PskMode::kNone), Verdict::kFine);
  EXPECT_EQ(compare(PskMode::kNone, PskMode::kEncrypt), Verdict::kPskFile);
  EXPECT_EQ(compare(PskMode::kAuthenticate, PskMode::kEncrypt), Verdict::kPskMode);
  EXPECT_THAT(explain(Verdict::kPskFile, PskMode::kNone, PskMode::kEncrypt),
              AllOf(HasSubstr("psk_file is not set here and set at the peer"), HasSubstr("CLUSTAR_PSK_FILE")));
  EXPECT_THAT(explain(Verdict::kPskSecret, PskMode::kEncrypt, PskMode::kEncrypt), HasSubstr("psk_file"));
  EXPECT_THAT(explain(Verdict::kPskMode, PskMode::kAuthenticate, PskMode::kEncrypt),
              AllOf(HasSubstr("psk_mode is authenticate here and encrypt"), HasSubstr("CLUSTAR_PSK_MODE")));
}

TEST(MltHandshake, GarbageIsRefused) {
  Rng random(1);
  for (int i = 0; i < 10000; ++i) {
    std::array<std::byte, Hello::kSize> bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    EXPECT_FALSE(Hello::parse(bytes));
    EXPECT_FALSE(Welcome::parse(std::span(bytes).first<Welcome::kSize>()));
  }
  std::array<std::byte, Hello::kSize> bytes;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, transport::io::AddressBlob::kMax}) {
    Hello{counted(), 1, {}, some_address(size), -1, {}}.serialize_to(bytes);
    ASSERT_TRUE(Hello::parse(bytes)) << size;
    EXPECT_EQ(Hello::parse(bytes)->address, some_address(size));
  }
  bytes[7] = std::byte{transport::io::AddressBlob::kMax + 1};
  EXPECT_FALSE(Hello::parse(bytes)) << "more bytes than there is room for";
  bytes[7] = std::byte{19};
  EXPECT_FALSE(Hello::parse(bytes)) << "bytes behind the address";
  std::array<std::byte, Welcome::kSize> answer;
  Welcome{some_address(), Verdict::kFine, {}}.serialize_to(answer);
  ASSERT_TRUE(Welcome::parse(answer));
  answer[7] = std::byte{19};
  EXPECT_FALSE(Welcome::parse(answer)) << "bytes behind the address";
  answer[6] = answer[7] = std::byte{0xff};
  EXPECT_FALSE(Welcome::parse(answer)) << "more bytes than there is room for";
}

TEST(MltHandshake, ADifferenceNamesTheSettingAndBothValues) {
  const SharedSettings here{8896, 8, 256, 64, 16384, 0, 10'000};
  EXPECT_FALSE(difference(here, here));
  SharedSettings there = here;
  there.segment = 1344;
  EXPECT_THAT(*difference(here, there), AllOf(HasSubstr("segment"), HasSubstr("8896 here"), HasSubstr("1344")));
  there = here;
  there.unscheduled_bytes = 4096;
  EXPECT_THAT(*difference(here, there), AllOf(HasSubstr("unscheduled_bytes"), HasSubstr("16384"), HasSubstr("4096")));
  there = here;
  there.recovery = 1;
  EXPECT_THAT(*difference(here, there), AllOf(HasSubstr("recovery"), HasSubstr("is 0 here and 1 at the peer")));
  there = here;
  there.paths = 1;
  EXPECT_THAT(*difference(here, there), HasSubstr("paths is 8 here and 1 at the peer"));
  there = here;
  there.max_tolerance_ppm = 0;
  EXPECT_THAT(*difference(here, there), AllOf(HasSubstr("max_tolerance_ppm"), HasSubstr("is 10000 here and 0 at")));
  Options options;
  options.max_tolerance_ppm = 1;
  EXPECT_EQ(SharedSettings::of(options, 5, "udp").max_tolerance_ppm, 5u) << "the channel's";
  there = here;
  there.segment = 904;  // follows from the kind of packets, which is what to name
  there.io = "verbs_ud";
  EXPECT_THAT(*difference(here, there),
              AllOf(HasSubstr("io is udp here and verbs_ud at the peer"), HasSubstr("CLUSTAR_IO")));
}

TEST(MltHandshake, AHandleOfAnotherVersionIsRefused) {
  HandleInfo info;
  info.endpoint.port = 1;
  transport::Handle handle = info.serialize();
  EXPECT_EQ(HandleInfo::parse(handle)->config, transport::SharedConfig{});
  handle[9] = std::byte{kHandshakeVersion - 1};
  EXPECT_FALSE(HandleInfo::parse(handle));
}

TEST(MltHandshake, TheSecretNeedsTheToken) {
  Token other = counted();
  other[0] = std::byte{1};
  EXPECT_NE(secret_of(counted(), 5), secret_of(other, 5));
  EXPECT_NE(secret_of(counted(), 5), secret_of(counted(), 6));
}

}  // namespace
}  // namespace clustar::mlt::driver
