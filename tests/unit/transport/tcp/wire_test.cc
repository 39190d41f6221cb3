#include "transport/tcp/core/wire.h"

#include <gtest/gtest.h>

#include <random>

namespace clustar::transport::tcp {
namespace {

HandleInfo sample_handle() {
  HandleInfo info;
  for (std::size_t i = 0; i < info.invitation.token.size(); ++i)
    info.invitation.token[i] = static_cast<std::byte>(i * 17);
  info.settings = {65536, 1 << 20};
  net::Endpoint v4;
  v4.port = 4711;
  v4.address[0] = std::byte{10};
  net::Endpoint v6;
  v6.ipv6 = true;
  v6.port = 9;
  v6.address[15] = std::byte{1};
  info.invitation.endpoints = {v4, v6};
  info.invitation.config = {{9, 8, 7, 6, 5, 4, 3, 0xffffffff}, 1023};
  return info;
}

TEST(HandleInfo, SurvivesTheRoundTrip) {
  const HandleInfo info = sample_handle();
  const auto parsed = HandleInfo::parse(info.serialize());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->invitation.token, info.invitation.token);
  EXPECT_EQ(parsed->settings, info.settings);
  EXPECT_EQ(parsed->invitation.config, info.invitation.config);
  ASSERT_EQ(parsed->invitation.endpoints.size(), 2u);
  EXPECT_EQ(parsed->invitation.endpoints[0].port, 4711);
  EXPECT_FALSE(parsed->invitation.endpoints[0].ipv6);
  EXPECT_TRUE(parsed->invitation.endpoints[1].ipv6);
  EXPECT_EQ(parsed->invitation.endpoints[1].address, info.invitation.endpoints[1].address);
}

TEST(HandleInfo, RefusesWhatIsNotOne) {
  EXPECT_FALSE(HandleInfo::parse(Handle{}));
  const Handle good = sample_handle().serialize();
  for (const std::size_t byte : {0u, 7u, 8u, 9u}) {  // magic and version
    Handle bad = good;
    bad[byte] ^= std::byte{1};
    EXPECT_FALSE(HandleInfo::parse(bad)) << byte;
  }
  for (const unsigned count : {0u, 5u, 255u}) {
    Handle bad = good;
    bad[10] = static_cast<std::byte>(count);
    EXPECT_FALSE(HandleInfo::parse(bad)) << count;
  }
  Handle bad_family = good;
  bad_family[72] = std::byte{5};
  EXPECT_FALSE(HandleInfo::parse(bad_family));
  Handle no_port = good;
  no_port[74] = no_port[75] = std::byte{0};
  EXPECT_FALSE(HandleInfo::parse(no_port));
  Handle no_rank = good;
  no_rank[68] = std::byte{0x80};
  EXPECT_FALSE(HandleInfo::parse(no_rank));
  Handle beyond = good;
  beyond[10] = std::byte{3};
  beyond[100] = std::byte{6};
  beyond[102] = std::byte{1};
  EXPECT_TRUE(HandleInfo::parse(beyond));
  beyond[72] = std::byte{6};  // and so the others are further behind
  EXPECT_FALSE(HandleInfo::parse(beyond));
}

TEST(HandleInfo, TakesAsManyEndpointsAsItHasRoomFor) {
  net::Endpoint v4, v6;
  v4.port = v6.port = 1;
  v6.ipv6 = true;
  const auto fits = [](const std::vector<net::Endpoint>& offered) {
    HandleInfo info;
    for (const net::Endpoint& one : offered) {
      if (info.invitation.has_room(one, HandleInfo::kFormat.room())) info.invitation.endpoints.push_back(one);
    }
    const auto parsed = HandleInfo::parse(info.serialize());
    EXPECT_TRUE(parsed && parsed->invitation.endpoints.size() == info.invitation.endpoints.size());
    return info.invitation.endpoints.size();
  };
  EXPECT_EQ(fits({v4, v4, v4, v4, v4}), 4u);
  EXPECT_EQ(fits({v4, v4, v4, v6}), 4u);
  EXPECT_EQ(fits({v4, v6, v6}), 3u);
  EXPECT_EQ(fits({v6, v6, v6}), 2u);
}

TEST(Hello, RoundTripAndRanges) {
  Hello hello;
  hello.token[3] = std::byte{9};
  hello.connection_id = 0x1122334455667788;
  hello.role = 2;
  hello.data_sockets = 4;
  hello.settings = {1, 2};
  std::array<std::byte, Hello::kSize> bytes;
  hello.serialize_to(bytes);
  const auto parsed = Hello::parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->connection_id, hello.connection_id);
  EXPECT_EQ(parsed->role, 2);
  EXPECT_EQ(parsed->token, hello.token);
  EXPECT_EQ(parsed->settings, hello.settings);
  hello.role = 5;
  hello.serialize_to(bytes);
  EXPECT_FALSE(Hello::parse(bytes)) << "a role beyond the sockets";
  hello.role = 0;
  hello.data_sockets = 0;
  hello.serialize_to(bytes);
  EXPECT_FALSE(Hello::parse(bytes));
  hello.data_sockets = kMaxDataSockets + 1;
  hello.serialize_to(bytes);
  EXPECT_FALSE(Hello::parse(bytes));
}

TEST(ChunkHeader, RoundTripOfBothForms) {
  ChunkHeader header;
  header.has_slot = true;
  header.tag = -7;
  header.seq = 0xfffffffe;
  header.slot = 0x00120034;
  header.total = 1ull << 40;
  header.offset = (1ull << 40) - 5;
  header.length = 5;
  std::array<std::byte, ChunkHeader::kSize> bytes;
  header.serialize_to(bytes);
  const auto parsed = ChunkHeader::parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->tag, -7);
  EXPECT_EQ(parsed->seq, header.seq);
  EXPECT_EQ(parsed->slot, header.slot);
  EXPECT_EQ(parsed->offset, header.offset);
  EXPECT_EQ(parsed->to_string(), header.to_string());
}

TEST(ChunkHeader, CarriesTheIdentityOfTheMessageWithItsFirstBytes) {
  ChunkHeader header;
  header.total = header.length = 5;
  header.identity = {true, true, ~0ull, MessageIdentity::kNumbers - 1, ~0ull - 2, ~0u, 0xffff, 0xfffe,
                     1,    2,    3,     MessageIdentity::kUnknown};
  std::array<std::byte, ChunkHeader::kMaxSize> bytes;
  const auto fixed = std::span(bytes).first<ChunkHeader::kSize>();
  const auto rest = std::span(bytes).subspan<ChunkHeader::kSize>();
  header.serialize_to(fixed);
  header.serialize_identity_to(rest);
  auto parsed = ChunkHeader::parse(fixed);
  ASSERT_TRUE(parsed && parsed->identity.known);
  EXPECT_EQ(parsed->size(), ChunkHeader::kMaxSize);
  ASSERT_TRUE(parsed->parse_identity(rest));
  EXPECT_EQ(parsed->identity, header.identity);
  bytes.back() = std::byte{2};
  EXPECT_FALSE(parsed->parse_identity(rest)) << "an unknown flag";
  header.has_slot = true;
  header.offset = 1;
  header.length = 4;
  header.serialize_to(fixed);
  EXPECT_FALSE(ChunkHeader::parse(fixed)) << "only with the first bytes";
}

TEST(ChunkHeader, RefusesRangesThatContradict) {
  const auto parses = [](ChunkHeader header) {
    std::array<std::byte, ChunkHeader::kSize> bytes;
    header.serialize_to(bytes);
    return ChunkHeader::parse(bytes).has_value();
  };
  ChunkHeader good;
  good.has_slot = true;
  good.total = 100;
  good.offset = 40;
  good.length = 60;
  EXPECT_TRUE(parses(good));
  ChunkHeader bad = good;
  bad.length = 61;
  EXPECT_FALSE(parses(bad)) << "past the end";
  bad = good;
  bad.offset = ~0ull - 10;
  EXPECT_FALSE(parses(bad)) << "offset + length would wrap";
  bad = good;
  bad.total = (1ull << 40) + 1;
  EXPECT_FALSE(parses(bad)) << "over NCCL's limit";
  bad = good;
  bad.length = 0;
  EXPECT_FALSE(parses(bad)) << "an empty chunk of a message that is not empty";
  bad = good;
  bad.has_slot = false;
  EXPECT_FALSE(parses(bad)) << "an eager message in pieces";
  ChunkHeader empty;
  EXPECT_TRUE(parses(empty));
}

// A parser that accepts bytes must give them back: no accepted value may change on the way through.
TEST(Wire, WhateverParsesSerializesToTheSameMeaning) {
  std::mt19937 random(7);
  ChunkHeader seed_header;
  seed_header.has_slot = true;
  seed_header.total = 1000;
  seed_header.length = 1000;
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::array<std::byte, ChunkHeader::kSize> bytes;
    seed_header.serialize_to(bytes);
    for (unsigned flips = random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto parsed = ChunkHeader::parse(bytes);
    if (!parsed) continue;
    ++accepted;
    std::array<std::byte, ChunkHeader::kSize> again;
    parsed->serialize_to(again);
    const auto reparsed = ChunkHeader::parse(again);
    ASSERT_TRUE(reparsed);
    ASSERT_EQ(parsed->to_string(), reparsed->to_string());
    ASSERT_LE(parsed->offset + parsed->length, parsed->total);
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace clustar::transport::tcp
