#include "libfabric_shim/rdm/wire.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace clustar::transport::ofi {
namespace {

Contact contact_of(const std::string& provider, std::size_t bytes, std::size_t rails = 1) {
  Contact contact{provider, {rails, std::vector<std::byte>(bytes)}};
  for (std::size_t i = 0; i < rails * bytes; ++i) contact.addresses[i / bytes][i % bytes] = static_cast<std::byte>(i);
  return contact;
}

TEST(OfiWire, GreetingsComeBackAsTheyWent) {
  Hello hello{.rank = 7, .contact = contact_of("tcp;ofi_rxm", Contact::kAddress, Contact::kMostRails)};
  hello.token.fill(std::byte{0x5a});
  std::array<std::byte, Hello::kSize> bytes;
  hello.serialize_to(bytes);
  const auto back = Hello::parse(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->rank, 7);
  EXPECT_EQ(back->token, hello.token);
  EXPECT_EQ(back->contact.provider, "tcp;ofi_rxm");
  EXPECT_EQ(back->contact.addresses, hello.contact.addresses);

  const Welcome welcome{{{ChannelName::kMost, 0x123456789abcdef0}, {1, 2}}, {8192, 262144}, contact_of("efa", 32, 2)};
  std::array<std::byte, Welcome::kSize> answer;
  welcome.serialize_to(answer);
  const auto heard = Welcome::parse(answer);
  ASSERT_TRUE(heard);
  ASSERT_EQ(heard->channels.size(), 2u);
  for (std::size_t rail = 0; rail < 2; ++rail) {
    EXPECT_EQ(heard->channels[rail].number, welcome.channels[rail].number);
    EXPECT_EQ(heard->channels[rail].key, welcome.channels[rail].key);
  }
  EXPECT_EQ(heard->settings, welcome.settings);
  EXPECT_EQ(heard->contact.addresses, welcome.contact.addresses);
}

TEST(OfiWire, AddressesOutOfRangeAreRefused) {
  for (const std::size_t bytes : {std::size_t{0}, Contact::kAddress + 1}) {
    std::array<std::byte, Contact::kSize> words;
    contact_of("tcp", bytes).serialize_to(words);
    EXPECT_FALSE(Contact::parse(words)) << bytes;
  }
  std::array<std::byte, Contact::kSize> words;
  for (const std::size_t rails : {std::size_t{0}, Contact::kMostRails + 1}) {
    contact_of("tcp", 16, rails).serialize_to(words);
    EXPECT_FALSE(Contact::parse(words)) << rails << " rails";
  }
  contact_of("tcp", 16, 2).serialize_to(words);
  ASSERT_TRUE(Contact::parse(words));
  words[4 + Contact::kProvider + Contact::kRail + 1] = std::byte{0};
  EXPECT_FALSE(Contact::parse(words)) << "a second rail without an address";
  contact_of("tcp", 16).serialize_to(words);
  words[4 + Contact::kProvider - 1] = std::byte{'x'};
  EXPECT_FALSE(Contact::parse(words)) << "a name without an end";
  std::array<std::byte, Welcome::kSize> welcome;
  for (const std::uint32_t number : {0u, ChannelName::kMost + 1}) {
    Welcome{{{1, 1}, {number, 1}}, {}, contact_of("tcp", 16, 2)}.serialize_to(welcome);
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
  for (const int kind : {0, 6, 255}) {
    bytes[2] = static_cast<std::byte>(kind);
    EXPECT_FALSE(FrameHead::parse(bytes)) << kind;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    bytes[0] = std::byte{0};
    EXPECT_FALSE(FrameHead::parse(bytes));
  }
}

// As the sender puts it together and the receiver takes it apart; nullopt: it is none.
struct Sent {
  std::size_t front = 0;
  FrameHead head{};
  std::vector<std::byte> bytes;  // behind the head
  std::optional<ChunkFrame> frame() const { return ChunkFrame::parse(head, bytes); }
};
Sent send(const ChunkHeader& header, std::optional<std::uint32_t> number) {
  std::array<std::byte, ChunkFrame::kMost> front;
  Sent sent;
  sent.front = serialize_front({5, 6}, header, number, front);
  const auto head = FrameHead::parse(std::span<const std::byte>(front).first<FrameHead::kSize>());
  EXPECT_TRUE(head);
  sent.head = head.value_or(FrameHead{});
  sent.bytes.assign(front.begin() + FrameHead::kSize, front.begin() + static_cast<std::ptrdiff_t>(sent.front));
  if (!number) sent.bytes.resize(sent.bytes.size() + header.length, std::byte{0x5a});
  return sent;
}

TEST(OfiWire, EachFormOfAFrameBringsItsChunk) {
  MessageIdentity known;
  known.known = true;
  known.number = 9;
  struct Case {
    FrameHead::Kind kind;
    ChunkHeader header;
    std::optional<std::uint32_t> number{};
  };
  using Kind = FrameHead::Kind;
  for (const Case& each : {
           Case{Kind::kAhead, {.tag = -3, .seq = 4, .total = 8, .length = 8}},
           Case{Kind::kAhead, {.tag = 3, .seq = 0xffffffff}},
           Case{Kind::kWhole, {.has_slot = true, .tag = 3, .seq = 4, .slot = 0x7fff0012, .total = 8, .length = 8}},
           Case{Kind::kInline, {.has_slot = true, .tag = 3, .total = 9, .offset = 1, .length = 8}},
           Case{Kind::kInline, {.tag = 3, .total = 8, .length = 8, .identity = known}},
           Case{Kind::kAnnounced, {.has_slot = true, .tag = 3, .slot = 1, .total = 8, .length = 8}, 77},
           Case{Kind::kAnnounced, {.has_slot = true, .total = 1 << 20, .length = 8, .identity = known}, 0},
       }) {
    const Sent sent = send(each.header, each.number);
    SCOPED_TRACE(each.header.to_string());
    EXPECT_EQ(sent.head.kind, each.kind);
    EXPECT_EQ(sent.head.channel.number, 5u);
    EXPECT_EQ(sent.head.channel.key, 6u);
    if (each.number) {
      EXPECT_EQ(sent.head.number, *each.number);
    }
    const auto frame = sent.frame();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->header.to_string(), each.header.to_string());
    EXPECT_EQ(frame->header.slot, each.header.slot);
    EXPECT_EQ(frame->header.identity.known, each.header.identity.known);
    EXPECT_EQ(frame->header.identity.number, each.header.identity.number);
    EXPECT_EQ(frame->payload.size(), each.number ? 0 : each.header.length);
  }
}

// What tcp;ofi_rxm copies at once.
TEST(OfiWire, AFrameOfASmallMessageFits64Bytes) {
  for (const bool has_slot : {false, true}) {
    const Sent sent = send({.has_slot = has_slot, .tag = 1, .seq = 2, .total = 36, .length = 36}, std::nullopt);
    EXPECT_EQ(FrameHead::kSize + sent.bytes.size(), 64u);
  }
}

TEST(OfiWire, FramesOfAnotherLengthThanTheySayAreRefused) {
  using Kind = FrameHead::Kind;
  const ChunkHeader piece{.has_slot = true, .total = 9, .offset = 1, .length = 8};
  for (Sent sent : {send(piece, std::nullopt), send(piece, 1)}) {
    sent.bytes.push_back({});
    EXPECT_FALSE(sent.frame());
    sent.bytes.resize(ChunkHeader::kSize - 1);
    EXPECT_FALSE(sent.frame());
  }
  Sent sent = send({.tag = 1}, std::nullopt);
  EXPECT_TRUE(sent.frame());
  sent.bytes.pop_back();
  EXPECT_FALSE(sent.frame());
  // A payload that is asked for without a receive for it, or of no bytes.
  EXPECT_FALSE(send({.total = 8, .length = 8}, 1).frame());
  EXPECT_FALSE(send({.has_slot = true}, 1).frame());
  sent.head.kind = Kind::kHello;
  EXPECT_FALSE(sent.frame());
}

TEST(OfiWire, AnyBytesBehindAHeadAreAFrameWithinBoundsOrNone) {
  std::mt19937 random(2);
  std::size_t frames = 0;
  for (int i = 0; i < 20000; ++i) {
    Sent sent = send({.has_slot = true, .total = 64, .length = 64}, std::nullopt);
    if (i % 2 == 0) sent = send({.has_slot = true, .total = 65, .offset = 1, .length = 64}, std::nullopt);
    sent.head.kind = static_cast<FrameHead::Kind>(1 + random() % 5);
    sent.bytes[random() % sent.bytes.size()] = static_cast<std::byte>(random());
    sent.bytes.resize(random() % (sent.bytes.size() + 1));
    const auto frame = sent.frame();
    if (!frame) continue;
    ++frames;
    EXPECT_LE(frame->header.length, frame->header.total - frame->header.offset);
    EXPECT_LE(frame->payload.size(), sent.bytes.size());
    if (sent.head.kind != FrameHead::Kind::kAnnounced) {
      EXPECT_EQ(frame->payload.size(), frame->header.length);
    }
  }
  EXPECT_GT(frames, 1000u);
}

TEST(OfiWire, AnotherVersionIsRefused) {
  std::array<std::byte, Hello::kSize> hello;
  Hello{.contact = contact_of("tcp", 16)}.serialize_to(hello);
  ASSERT_TRUE(Hello::parse(hello));
  hello[5] = std::byte{kWireVersion - 1};
  EXPECT_FALSE(Hello::parse(hello));
  // So the listener can say which version it is.
  EXPECT_EQ(Hello::kFormat.judge(std::span(hello).first<handshake::HelloFormat::kFrontSize>(), {}),
            handshake::Front::kOtherVersion);
  std::array<std::byte, Welcome::kSize> welcome;
  Welcome{{{1, 1}}, {}, contact_of("tcp", 16)}.serialize_to(welcome);
  ASSERT_TRUE(Welcome::parse(welcome));
  welcome[5] = std::byte{kWireVersion - 1};
  EXPECT_FALSE(Welcome::parse(welcome));
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
