// Packets for the test of docs/wireshark/clustar-mlt.lua: writes them as PcapIo does to a file, and to stdout what the
// dissector must find in them. Lines: "packet <name> <valid> <UDP payload in hex>", then "<field> <value>" each.
// "@info" is the text of the info column. Values are decimal, fields of 64 bits and bytes hexadecimal, flags 0 or 1.
#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "mlt/core/wire.h"
#include "tests/unit/recording_io.h"
#include "transport/io/decorators/pcap_io.h"

namespace clustar::mlt {
namespace {

namespace io = transport::io;

struct Sample {
  std::string name;
  std::vector<std::byte> header;
  std::size_t payload = 0;
  std::vector<std::string> fields;

  void expect(const char* field, std::int64_t value) { add(field, std::to_string(value)); }
  void expect64(const char* field, std::uint64_t value) {
    std::array<char, 20> text{};
    std::snprintf(text.data(), text.size(), "%016" PRIx64, value);
    add(field, text.data());
  }
  void add(const char* field, const std::string& value) { fields.push_back(std::string(field) + " " + value); }
};

Sample sample(const char* name, const Packet& packet, std::size_t payload = 0) {
  Sample out{.name = name, .header = std::vector<std::byte>(kMaxHeader), .payload = payload, .fields = {}};
  out.header.resize(serialize(packet, out.header));
  out.expect("version", kWireVersion);
  out.expect("type", static_cast<int>(packet.index()) + 1);
  out.expect64("secret", std::visit([](const auto& known) { return known.secret; }, packet));
  return out;
}

void expect_open(Sample& out, const OpenRecord& open) {
  out.expect("tag", open.tag);
  out.expect("tag_seq", open.tag_seq);
  out.expect("open.settled_below", open.settled_below);
  out.expect("open.stage", open.stage);
  out.expect("open.flags", open.tolerant);
  out.expect("open.tolerant", open.tolerant);
  out.expect64("open.communicator", open.communicator);
  out.expect("open.collective", open.collective);
  out.expect("open.ranks", open.ranks);
  out.expect("open.edges", open.edges);
  out.expect64("open.collective_bytes", open.collective_bytes);
  out.expect("open.tolerance_ppm", open.tolerance_ppm);
  out.expect("open.important", open.important);
}

void expect_size(Sample& out, std::uint32_t bytes, std::uint16_t segment) {
  out.expect("message_bytes", bytes);
  out.expect("segment", segment);
  out.expect("packets", packet_count(bytes, segment));
}

Sample data_sample(const char* name, const DataHeader& data) {
  Sample out = sample(name, data, packet_bytes(data.index, data.message_bytes, data.segment));
  out.expect("lane", lane_of(data.path, data.traffic_class));
  out.expect("lane.class", data.traffic_class);
  out.expect("lane.path", data.path);
  out.expect("flags", data.retransmission | data.important << 1 | data.ack_now << 2 | data.open.has_value() << 3);
  out.expect("data.retransmission", data.retransmission);
  out.expect("data.important", data.important);
  out.expect("data.ack_now", data.ack_now);
  out.expect("data.has_open", data.open.has_value());
  out.expect("message", data.message);
  out.expect("data.index", data.index);
  out.expect("data.path_seq", data.path_seq);
  expect_size(out, data.message_bytes, data.segment);
  out.expect("data.tx_us", data.tx_us);
  out.expect("sent_units", data.sent_units);
  if (data.open) expect_open(out, *data.open);
  return out;
}

Sample ack_sample(const char* name, const Ack& ack, const std::vector<int>& missing) {
  Sample out = sample(name, ack);
  out.expect("credit_units", ack.credit_units);
  out.expect("finished_below", ack.finished_below);
  out.expect("ack.count", ack.count);
  for (std::size_t i = 0; i < ack.count; ++i) {
    const AckBlock& block = ack.blocks[i];
    out.expect("lane", lane_of(block.path, block.traffic_class));
    out.expect("lane.class", block.traffic_class);
    out.expect("lane.path", block.path);
    out.expect("ack.marked", block.marked);
    out.expect("ack.largest", block.largest);
    out.expect64("ack.before", block.before);
    out.expect("ack.missing", missing[i]);
    out.expect("ack.delay_us", block.delay_us);
  }
  return out;
}

Sample state_sample(const char* name, const State& state, int missing, const char* ranges) {
  Sample out = sample(name, state);
  out.expect("flags", state.stop | state.complete << 1 | state.matched << 2 | state.asks << 3);
  out.expect("state.stop", state.stop);
  out.expect("state.complete", state.complete);
  out.expect("state.matched", state.matched);
  out.expect("state.asks", state.asks);
  out.expect("message", state.message);
  out.expect("credit_units", state.credit_units);
  out.expect("state.base", state.base);
  out.expect("state.count", state.count);
  out.expect("state.want", state.want);
  out.expect("finished_below", state.finished_below);
  out.expect("state.missing", missing);
  out.add("state.ranges", ranges);
  return out;
}

OpenRecord open_record() {
  return {.tag = -5,
          .tag_seq = 6,
          .settled_below = 0xfffffff0,
          .stage = 3,
          .tolerant = true,
          .communicator = 0xfedcba9876543210,
          .collective = 77,
          .ranks = 8,
          .edges = 4,
          .collective_bytes = 0x8000000000000001,
          .tolerance_ppm = 1'000'000,
          .important = 2};
}

DataHeader data_header() {
  return {.secret = 0x8123456789abcdef,
          .path = 31,
          .traffic_class = 5,
          .important = true,
          .message = 0xfffffffe,
          .index = 2,
          .path_seq = 0x80000001,
          .message_bytes = 250,
          .segment = 100,
          .tx_us = 0xdeadbeef,
          .sent_units = 17,
          .open = {}};
}

// Under a pre-shared key: mlt/driver/seal.h.
constexpr std::size_t kSealBytes = 24;
Sample sealed(const char* name, Sample sample, std::uint64_t counter) {
  sample.name = name;
  for (std::size_t i = 0; i < kSealBytes; ++i) {
    const auto byte = i < 8 ? static_cast<std::byte>(counter >> (56 - 8 * i)) : static_cast<std::byte>(0xa0 + i);
    sample.header.push_back(byte);
  }
  sample.expect64("seal.counter", counter);
  return sample;
}

bool is_packet(const std::vector<std::byte>& header) {
  return parse(header) || (header.size() > kSealBytes && parse(std::span(header).first(header.size() - kSealBytes)));
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
  data = {.secret = 1, .segment = kMinSegment, .open = {}};
  all.push_back(data_sample("data_empty_message", data));
  data = {.index = 1, .message_bytes = 1000, .segment = 200, .open = OpenRecord{}};
  all.push_back(data_sample("data_full_segment", data));
  all.push_back(sealed("data_sealed", data_sample("", data), 0x0102030405060708));

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
  state = {.stop = true, .count = State::kWindow, .finished_below = 3};
  state.missing.fill(std::byte{0xff});
  all.push_back(state_sample("state_all", state, 512, "0-511"));
  state.missing.fill(std::byte{0xaa});
  all.push_back(
      state_sample("state_every_other", state, 256, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, ..."));

  const Probe probe{.secret = 2,
                    .settled = true,
                    .message = 6,
                    .sent = 3,
                    .message_bytes = 250,
                    .segment = 100,
                    .sent_units = 9,
                    .open = open_record()};
  out = sample("probe", probe);
  out.expect("flags", 1);
  out.expect("probe.settled", 1);
  out.expect("message", 6);
  out.expect("probe.sent", 3);
  expect_size(out, 250, 100);
  out.expect("sent_units", 9);
  expect_open(out, probe.open);
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
      case 1: mutant.header.resize(std::min(mutant.header.size() + 1 + rng.below(40), kMaxHeader)); break;
      case 2: mutant.header[rng.below(4)] = static_cast<std::byte>(rng.below(20)); break;
      case 3: mutant.header[at] = std::byte{0xff}; break;
      case 4: mutant.header[at] = std::byte{0}; break;
      default: mutant.header[at] ^= std::byte{1} << rng.below(8); break;
    }
    all.push_back(mutant);
  }
  return all;
}

void print(const Sample& sample) {
  std::printf("packet %s %d %02x", sample.name.c_str(), is_packet(sample.header),
              static_cast<unsigned>(sample.header.size()));
  for (const std::byte byte : sample.header) std::printf("%02x", std::to_integer<unsigned>(byte));
  for (std::size_t i = 0; i < sample.payload; ++i) std::printf("00");
  std::printf("\n");
  for (const std::string& field : sample.fields) std::printf("%s\n", field.c_str());
}

int run(const char* file) {
  std::vector<Sample> samples = valid_samples();
  std::vector<Sample> others = mutants(samples);
  for (Sample& one : near_misses()) others.push_back(std::move(one));
  for (Sample& one : others) samples.push_back(std::move(one));
  std::vector<std::byte> zeroes(1024);
  const io::Mr mr(gdr::MemoryRef::host(zeroes.data(), zeroes.size()));
  io::PcapIoOptions options;
  options.file.path = file;
  io::PcapIo pcap(std::make_unique<io::RecordingIo>(), options);
  for (const Sample& sample : samples) {
    print(sample);
    io::TxPacket packet;
    packet.header = io::Header(sample.header.size());
    std::ranges::copy(sample.header, packet.header.bytes().begin());
    packet.payload = {&mr, 0, sample.payload};
    if (!pcap.send(std::span(&packet, 1))) return 1;
  }
  pcap.flush();
  return pcap.file().skipped() == 0 && std::fflush(stdout) == 0 ? 0 : 1;
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
