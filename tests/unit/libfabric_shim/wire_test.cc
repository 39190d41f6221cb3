#include "libfabric_shim/rdm/wire.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace clustar::transport::ofi {
namespace {

Contact contact_of(const std::string& provider, std::size_t bytes) {
  Contact contact{provider, std::vector<std::byte>(bytes)};
  for (std::size_t i = 0; i < bytes; ++i) contact.address[i] = static_cast<std::byte>(i);
  return contact;
}

TEST(OfiWire, GreetingsComeBackAsTheyWent) {
  Hello hello{.rank = 7, .contact = contact_of("tcp;ofi_rxm", Contact::kAddress)};
  hello.token.fill(std::byte{0x5a});
  std::array<std::byte, Hello::kSize> bytes;
  hello.serialize_to(bytes);
  const auto back = Hello::parse(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->rank, 7);
  EXPECT_EQ(back->token, hello.token);
  EXPECT_EQ(back->contact.provider, "tcp;ofi_rxm");
  EXPECT_EQ(back->contact.address, hello.contact.address);

  const Welcome welcome{{ChannelName::kMost, 0x123456789abcdef0}, {8192, 262144}, contact_of("efa", 32)};
  std::array<std::byte, Welcome::kSize> answer;
  welcome.serialize_to(answer);
  const auto heard = Welcome::parse(answer);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->channel.number, ChannelName::kMost);
  EXPECT_EQ(heard->channel.key, welcome.channel.key);
  EXPECT_EQ(heard->settings, welcome.settings);
  EXPECT_EQ(heard->contact.address.size(), 32u);
}

TEST(OfiWire, AddressesOutOfRangeAreRefused) {
  for (const std::size_t bytes : {std::size_t{0}, Contact::kAddress + 1}) {
    std::array<std::byte, Contact::kSize> words;
    contact_of("tcp", bytes).serialize_to(words);
    EXPECT_FALSE(Contact::parse(words)) << bytes;
  }
  std::array<std::byte, Contact::kSize> words;
  contact_of("tcp", 16).serialize_to(words);
  words[4 + Contact::kProvider - 1] = std::byte{'x'};
  EXPECT_FALSE(Contact::parse(words)) << "a name without an end";
  std::array<std::byte, Welcome::kSize> welcome;
  for (const std::uint32_t number : {0u, ChannelName::kMost + 1}) {
    Welcome{{number, 1}, {}, contact_of("tcp", 16)}.serialize_to(welcome);
    EXPECT_FALSE(Welcome::parse(welcome)) << number;
  }
}

TEST(OfiWire, NotesAndClearToSendsAreToldApart) {
  std::array<std::byte, Note::kSize> bytes;
  Note{Note::Kind::kFarewell, 1ull << 40}.serialize_to(bytes);
  EXPECT_FALSE(ClearToSend::parse(bytes));
  const auto note = Note::parse(bytes);
  ASSERT_TRUE(note);
  EXPECT_EQ(note->kind, Note::Kind::kFarewell);
  EXPECT_EQ(note->count, 1ull << 40);
  ClearToSend{1, 2, 3, 4}.serialize_to(bytes);
  EXPECT_FALSE(Note::parse(bytes));
  EXPECT_TRUE(ClearToSend::parse(bytes));
}

TEST(OfiWire, FramesComeBackAndGarbageDoesNot) {
  std::array<std::byte, FrameHead::kSize> bytes;
  FrameHead{FrameHead::Kind::kAnnounced, {5, 6}, 7}.serialize_to(bytes);
  const auto head = FrameHead::parse(bytes);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->kind, FrameHead::Kind::kAnnounced);
  EXPECT_EQ(head->channel.number, 5u);
  EXPECT_EQ(head->channel.key, 6u);
  EXPECT_EQ(head->number, 7u);
  bytes[2] = std::byte{4};
  EXPECT_FALSE(FrameHead::parse(bytes));
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    bytes[0] = std::byte{0};
    EXPECT_FALSE(FrameHead::parse(bytes));
  }
}

TEST(OfiWire, TagsOfPayloadsHave48BitsAndAreNoFrames) {
  std::set<std::uint64_t> seen;
  for (const std::uint32_t channel : {1u, 2u, ChannelName::kMost}) {
    for (const std::uint32_t number : {0u, 1u, 0x7fffffu}) {
      const std::uint64_t tag = payload_tag(channel, number);
      EXPECT_EQ(tag & ~kTagBits, 0u);
      EXPECT_NE(tag, kFrameTag);
      EXPECT_TRUE(seen.insert(tag).second);
    }
  }
}

}  // namespace
}  // namespace clustar::transport::ofi
