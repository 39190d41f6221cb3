// Datagrams for the test of docs/wireshark/clustar-mlt.lua: writes them to a file, and to stdout what the dissector
// must find in them. Lines: "packet <name> <valid> <UDP payload in hex> <its bytes before the capture was cut>", then
// "<field> <value>" each.
// "@info" is the text of the info column. Values are decimal, fields of 64 bits and bytes hexadecimal, flags 0 or 1.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "mlt/core/wire.h"
#include "tests/packet_io/pcapng_writer.h"
#include "tests/wireshark/samples.h"
#include "transport/base/bytes.h"
#include "transport/base/rng.h"
#include "transport/io/udp/frame.h"

namespace clustar::mlt {
namespace {

namespace io = transport::io;

// As the core takes it, with a seal or without: whether the seal is genuine cannot be seen.
bool is_packet(std::span<const std::byte> header) {
  return parse(header) || (header.size() > kSealBytes && parse(header.first(header.size() - kSealBytes)));
}

std::vector<Sample> valid_samples() {
  std::vector<Sample> all;
  DataHeader data = data_header();
  all.push_back(data_sample("data", data));
  all.back().add("@info", "DATA message 4294967294 packet 2/3 path 31 class 5 seq 2147483649 [important]");
  data.retransmission = data.ack_now = true;
  data.path = 1;
  data.open = open_record();
  all.push_back(data_sample("data_open", data));
  data.open = identified_record();
  all.push_back(data_sample("data_identified", data));
  all.back().add("@info",
                 "DATA message 4294967294 packet 2/3 path 1 class 5 seq 2147483649 tag -5 function 4 transfer "
                 "4294967293 tolerant [retransmission] [important]");
  data = {.secret = 1, .segment = kMinSegment, .open = {}};
  all.push_back(data_sample("data_empty_message", data));
  data = {.index = 1, .message_bytes = 1000, .segment = 200, .open = OpenRecord{}};
  all.push_back(data_sample("data_full_segment", data));
  all.push_back(sealed("data_sealed", data_sample("", data), 0x0102030405060708));
  all.push_back(sealed("data_encrypted", data_sample("", data), 0x7fffffffffffffff, true));
  data.open = {};
  all.push_back(sealed("data_without_open_encrypted", data_sample("", data), 0, true));

  data = {.secret = 1,
          .parity = true,
          .message = 7,
          .index = 1 * kMaxParity + 3,
          .message_bytes = 6500,
          .segment = 100,
          .open = {}};
  all.push_back(data_sample("data_parity", data));
  all.back().add("@info", "DATA message 7 parity 1.3 path 0 class 0 seq 0");
  all.push_back(sealed("data_parity_encrypted", data_sample("", data), 3, true));

  Ack ack{.secret = 9, .credit_units = 0xffffffff, .finished_below = 12, .count = 0, .blocks = {}};
  all.push_back(ack_sample("ack_empty", ack, {}));
  ack.count = 3;
  ack.blocks[0] = {3, 7, 65535, 0xffffffff, ~std::uint64_t{0}, 123};
  ack.blocks[1] = {31, 0, 1, 100, 0xf0f0f0f0f0f0f0f5, 0};
  ack.blocks[2] = {0, 2, 0, 3, 0b101, 65535};
  all.push_back(ack_sample("ack_three", ack, {0, 30, 1}));
  all.push_back(sealed("ack_sealed", ack_sample("", ack, {0, 30, 1}), 77));

  const Posted posted{.secret = 3, .tag = -1, .tag_seq = 4, .length = kMaxMessageBytes, .credit_units = 5};
  Sample out = sample("posted", posted);
  out.expect("tag", -1);
  out.expect("tag_seq", 4);
  out.expect("posted.length", kMaxMessageBytes);
  out.expect("credit_units", 5);
  all.push_back(out);

  State state{.secret = 8, .stop = true, .complete = true, .matched = true, .message = 4};
  all.push_back(state_sample("state_complete", state, 0, ""));
  state = {.secret = 8, .matched = true, .asks = true, .message = 5, .base = 512, .count = 100, .want = 3};
  state.missing[0] = std::byte{0x9c};   // 512, 515-517
  state.missing[12] = std::byte{0x30};  // 610-611
  all.push_back(state_sample("state_ranges", state, 6, "512, 515-517, 610-611"));
  all.push_back(sealed("state_sealed", state_sample("", state, 6, "512, 515-517, 610-611"), 5));
  state = {.stop = true, .count = State::kWindow, .finished_below = 3};
  state.missing.fill(std::byte{0xff});
  all.push_back(state_sample("state_all", state, 512, "0-511"));
  state.missing.fill(std::byte{0xaa});
  all.push_back(
      state_sample("state_every_other", state, 256, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, ..."));

  const Probe probe{.secret = 2,
                    .quiet = true,
                    .message = 6,
                    .sent = 514,
                    .message_bytes = 51350,
                    .segment = 100,
                    .window = 1,
                    .sent_units = 9,
                    .open = open_record()};
  out = sample("probe", probe);
  out.expect("flags", 1);
  out.expect("probe.quiet", 1);
  out.expect("message", 6);
  out.expect("probe.sent", 514);
  out.expect("probe.window", 1);
  expect_size(out, 51350, 100);
  out.expect("sent_units", 9);
  expect_open(out, probe.open);
  all.push_back(out);
  const Probe identified{.secret = 2, .message_bytes = 250, .segment = 100, .open = identified_record()};
  out = sample("probe_identified", identified);
  expect_open(out, identified.open);
  all.push_back(out);
  return all;
}

// What a mutant rarely is.
std::vector<Sample> near_misses() {
  State state{.stop = true, .count = 4, .want = 5};
  std::vector<Sample> all{sample("near_miss", state)};
  state = {.stop = true, .base = kMaxPackets - 3, .count = 4};
  all.push_back(sample("near_miss", state));
  Posted posted{.secret = 3, .length = kMaxMessageBytes + 1};
  all.push_back(sample("near_miss", posted));
  DataHeader data{.message_bytes = kMaxPackets * kMinSegment + 1, .segment = kMinSegment, .open = {}};
  all.push_back(sample("near_miss", data));
  data.message_bytes = 100;
  data.segment = kMinSegment - 1;
  all.push_back(sample("near_miss", data));
  data = {.parity = true, .index = 2 * kMaxParity, .message_bytes = 6500, .segment = 100, .open = {}};
  all.push_back(sample("near_miss", data));
  data.index = 0;
  data.passed = 1;
  all.push_back(sample("near_miss", data));
  data = {.parity = true, .message_bytes = 100, .segment = 100, .open = {}};
  all.push_back(sample("near_miss", data));
  data = {.message_bytes = 100, .segment = 100, .open = {}};
  data.open = identified_record();
  Sample unknown = sample("near_miss", data);
  unknown.header[DataHeader::kSize + 14] = std::byte{OpenRecord::kTolerant};  // and an identity all the same
  all.push_back(unknown);
  for (Sample& one : all) one.fields.clear();
  return all;
}

// Valid packets with one field made extreme, or cut, or longer: about half of them are packets no more.
std::vector<Sample> mutants(const std::vector<Sample>& valid) {
  Rng rng(11);
  std::vector<Sample> all;
  for (int i = 0; i < 3000; ++i) {
    const Sample& from = valid[rng.below(valid.size())];
    Sample mutant{.name = "mutant", .header = from.header, .payload = 0, .fields = {}};
    const std::size_t at = rng.below(mutant.header.size());
    switch (rng.below(8)) {
      case 0: mutant.header.resize(std::max<std::size_t>(at, 2)); break;
      case 1: mutant.header.resize(std::min(mutant.header.size() + 1 + rng.below(40), io::Header::kMax)); break;
      case 2: mutant.header[rng.below(4)] = static_cast<std::byte>(rng.below(20)); break;
      case 3: mutant.header[at] = std::byte{0xff}; break;
      case 4: mutant.header[at] = std::byte{0}; break;
      default: mutant.header[at] ^= std::byte{1} << rng.below(8); break;
    }
    all.push_back(mutant);
  }
  return all;
}

// What one UDP datagram carries.
struct Datagram {
  static constexpr std::uint16_t kPort = 61074, kOtherPort = 9;  // the dissector's own, and one that it has to look at
  std::string name;
  std::vector<std::byte> bytes;
  std::vector<std::string> fields;
  bool valid = true;
  std::size_t length = 0;  // more than `bytes` where the capture was cut
  std::uint16_t port = kPort;
};

// With what follows in the same datagram, or as its last packet.
void append(std::vector<std::byte>& bytes, const Sample& packet, bool packed) {
  if (packed) {
    bytes.push_back(std::byte{0});
    bytes.push_back(static_cast<std::byte>(packet.header.size()));
    bytes.push_back(static_cast<std::byte>(packet.payload >> 8));
    bytes.push_back(static_cast<std::byte>(packet.payload & 0xff));
  } else {
    bytes.push_back(static_cast<std::byte>(packet.header.size()));
  }
  bytes.insert(bytes.end(), packet.header.begin(), packet.header.end());
  bytes.resize(bytes.size() + packet.payload, packet.fill);
}

Datagram alone(const Sample& packet) {
  Datagram out{.name = packet.name, .bytes = {}, .fields = packet.fields, .valid = is_packet(packet.header)};
  append(out.bytes, packet, false);
  return out;
}

enum class Verdict { kGood, kWrongPacket, kWrongFraming };

// Whether a receiver takes all of it: what UdpIo does with a datagram, and the core with its packets.
Verdict judge(std::span<const std::byte> rest) {
  Verdict verdict = Verdict::kGood;
  for (bool first = true; !rest.empty(); first = false) {
    if (!first && rest[0] == io::udp::kPadding) return verdict;
    const auto frame = io::udp::parse_frame(rest);
    if (!frame) return Verdict::kWrongFraming;
    if (!is_packet(frame->header)) verdict = Verdict::kWrongPacket;
    rest = rest.subspan(frame->length);
  }
  return verdict;
}

// `plain_last`: the last packet has the short framing, which is that of all others alone.
Datagram packed(const char* name, const std::vector<Sample>& packets, bool plain_last, std::size_t padding = 0) {
  Datagram out{.name = name, .bytes = {}, .fields = {}};
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const bool plain = plain_last && i + 1 == packets.size();
    append(out.bytes, packets[i], !plain);
    out.fields.push_back("header_length " + std::to_string(packets[i].header.size()));
    if (!plain) out.fields.push_back("payload_length " + std::to_string(packets[i].payload));
    std::ranges::copy_if(packets[i].fields, std::back_inserter(out.fields),
                         [](const std::string& field) { return !field.starts_with("@info"); });
  }
  out.bytes.insert(out.bytes.end(), padding, io::udp::kPadding);
  if (padding > 0) out.fields.push_back("padding " + hex(std::vector(padding, io::udp::kPadding)));
  return out;
}

std::vector<Datagram> packed_datagrams() {
  const Ack ack{.secret = 9, .finished_below = 12, .count = 1, .blocks = {{{2, 1, 0, 1, 1, 3}}}};
  const Sample acks = ack_sample("ack", ack, {0});
  Sample posted = sample("posted", Posted{.secret = 3, .tag = 1, .tag_seq = 4, .length = 5});
  posted.fields.insert(posted.fields.end(), {"tag 1", "tag_seq 4", "posted.length 5", "credit_units 0"});
  DataHeader header = data_header();
  const Sample data = data_sample("data", header);
  header.index = 1;
  header.open = open_record();
  const Sample opening = data_sample("data", header);
  std::vector<Datagram> all;
  all.push_back(packed("ack_posted", {acks, posted}, true));
  all.back().fields.push_back(
      "@info ACK finished below 12 | path 2 class 1 largest 1 missing 0; POSTED tag 1 seq 4 length 5");
  all.push_back(packed("posted_data", {posted, data}, true));
  all.push_back(packed("data_data", {opening, data}, true));
  all.push_back(packed("three", {data, acks, opening}, true));
  all.push_back(packed("all_in_the_longer_framing", {data, posted}, false));
  all.push_back(packed("data_padding", {data}, false, 9));
  all.push_back(packed("posted_data_padding", {posted, data}, false, 1));
  const Sample sealed_ack = sealed("ack", acks, 1), sealed_posted = sealed("posted", posted, 2);
  const Sample sealed_data = sealed("data", data, 3), encrypted = sealed("opening", opening, 4, true);
  all.push_back(packed("sealed_ack_posted", {sealed_ack, sealed_posted}, true));
  all.back().fields.push_back(
      "@info ACK finished below 12 | path 2 class 1 largest 1 missing 0; POSTED tag 1 seq 4 length 5");
  all.push_back(packed("sealed_and_encrypted", {sealed_posted, sealed_data, encrypted}, true));
  all.push_back(packed("encrypted_padding", {encrypted, sealed_ack}, false, 9));
  all.push_back(packed("sealed_behind_clear", {acks, sealed_posted, data}, true));
  return all;
}

// What a sender does not make: each with something wrong behind a good packet, and alone.
std::vector<Datagram> wrong_framings() {
  const Sample data = data_sample("data", data_header());
  const auto of = [](std::initializer_list<unsigned> bytes, std::size_t more) {
    std::vector<std::byte> out(bytes.size() + more, std::byte{1});
    std::ranges::transform(bytes, out.begin(), [](unsigned one) { return static_cast<std::byte>(one); });
    return out;
  };
  constexpr unsigned kTooLong = io::Header::kMax + 1;
  const std::vector<std::vector<std::byte>> tails = {of({0}, 0),
                                                     of({0, 40, 0}, 0),
                                                     of({0, 40, 0, 0}, 0),
                                                     of({0, 0, 0, 4}, 4),
                                                     of({0, kTooLong, 0, 0}, kTooLong),
                                                     of({0, 40, 0, 0}, 9),
                                                     of({0, 40, 0, 10}, 49),
                                                     of({kTooLong}, kTooLong),
                                                     of({254}, 300),
                                                     of({40}, 39),
                                                     of({0, 1, 0, 0}, 1),
                                                     of({1}, 1),
                                                     of({0, 10, 0, 0}, 40)};
  std::vector<Datagram> all;
  for (const auto& tail : tails) {
    all.push_back({.name = "wrong_framing", .bytes = tail, .fields = {}});
    Datagram behind = packed("wrong_framing", {data}, false);
    behind.bytes.insert(behind.bytes.end(), tail.begin(), tail.end());
    all.push_back(behind);
  }
  all.push_back({.name = "wrong_framing", .bytes = of({255, 255, 255}, 0), .fields = {}});  // padding, and no packet
  Sample posted = sample("posted", Posted{.secret = 3});
  posted.payload = 5;  // what only data has
  all.push_back(alone(posted));
  for (Datagram& one : all) {
    one.valid = false;
    one.name = judge(one.bytes) == Verdict::kWrongFraming ? "wrong_framing" : "wrong_packet";
    one.fields.clear();
  }
  return all;
}

std::vector<Datagram> all_datagrams() {
  std::vector<Datagram> all;
  const std::vector<Sample> valid = valid_samples();
  for (const auto& packets : {valid, mutants(valid), near_misses()}) {
    for (const Sample& one : packets) all.push_back(alone(one));
  }
  for (const Datagram& whole : packed_datagrams()) {
    all.push_back(whole);
    all.push_back(whole);
    all.back().port = Datagram::kOtherPort;
    for (std::size_t i = 1; i < whole.bytes.size(); ++i) {
      Datagram prefix{.name = "prefix", .bytes = {whole.bytes.begin(), whole.bytes.begin() + i}, .fields = {}};
      prefix.valid = judge(prefix.bytes) == Verdict::kGood;
      all.push_back(prefix);
      all.push_back({.name = "cut", .bytes = prefix.bytes, .fields = {}, .length = whole.bytes.size()});
    }
  }
  for (const Datagram& one : wrong_framings()) all.push_back(one);
  for (Datagram& one : all) one.length = std::max(one.length, one.bytes.size());
  return all;
}

void print(const Datagram& one) {
  std::printf("packet %s %d %s %zu\n", one.name.c_str(), one.valid, hex(one.bytes).c_str(), one.length);
  for (const std::string& field : one.fields) std::printf("%s\n", field.c_str());
}

// IPv4 from 192.0.2.1 to 10.0.0.0 and UDP, without checksums.
std::vector<std::byte> envelope(const Datagram& one) {
  constexpr std::size_t kIp = 20, kUdp = 8;
  std::vector<std::byte> out(kIp + kUdp);
  WireWriter ip{std::span(out).first<kIp>()};
  ip.store<0>(std::uint8_t{0x45});
  ip.store<2>(static_cast<std::uint16_t>(kIp + kUdp + one.length));
  ip.store<8>(std::uint8_t{64});
  ip.store<9>(std::uint8_t{17});
  ip.store<12>(std::uint32_t{0xc0000201});
  ip.store<16>(std::uint32_t{0x0a000000});
  WireWriter udp{std::span(out).subspan<kIp, kUdp>()};
  udp.store<0>(std::uint16_t{49152});
  udp.store<2>(one.port);
  udp.store<4>(static_cast<std::uint16_t>(kUdp + one.length));
  return out;
}

int run(const char* file) {
  io::PcapngOptions options;
  options.path = file;
  io::PcapngWriter writer(options);
  for (const Datagram& one : all_datagrams()) {
    print(one);
    const auto front = envelope(one);
    writer.write(Duration(0), io::PcapngWriter::Direction::kOutbound, front, one.bytes, front.size() + one.length);
  }
  writer.flush();
  return writer.skipped() == 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace clustar::mlt

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: mlt_samples FILE.pcapng\n");
    return 2;
  }
  return clustar::mlt::run(argv[1]);
}
