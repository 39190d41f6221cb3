#include "tests/wireshark/samples.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "transport/base/bytes.h"

namespace clustar::mlt {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", std::to_integer<unsigned>(byte));
    text += digits.data();
  }
  return text;
}

Sample sample(const char* name, const Packet& packet, std::size_t payload) {
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
  out.expect("open.forgotten_below", open.forgotten_below);
  out.expect("open.stage", open.stage);
  const Identity& identity = open.identity;
  out.expect("open.flags",
             open.tolerant | identity.known << 1 | identity.local_number << 2 | open.exchange << 3 | open.level << 4);
  out.expect("open.level", open.level);
  out.expect("open.tolerant", open.tolerant);
  out.expect("open.identified", identity.known);
  out.expect("open.local_number", identity.local_number);
  out.expect("open.exchange", open.exchange);
  out.expect("open.channel", identity.channel);
  out.expect64("open.communicator", open.communicator);
  out.expect("open.collective", open.collective);
  out.expect("open.ranks", open.ranks);
  out.expect("open.edges", open.edges);
  out.expect64("open.collective_bytes", open.collective_bytes);
  out.expect("open.tolerance_ppm", open.tolerance_ppm);
  out.expect("open.important", open.important);
  const auto shown = [&](int value, int unknown) { return identity.known ? std::min(value, unknown) : 0; };
  out.expect64("open.number", identity.number);
  out.expect("open.sender", shown(identity.sender, 65535));
  out.expect("open.transfer", identity.transfer);
  out.expect("open.function", shown(identity.function, 255));
  out.expect("open.datatype", shown(identity.datatype, 255));
  out.expect("open.algorithm", shown(identity.algorithm, 15));
  out.expect("open.protocol", shown(identity.protocol, 15));
}

void expect_size(Sample& out, std::uint32_t bytes, std::uint16_t segment) {
  out.expect("message_bytes", bytes);
  out.expect("segment", segment);
  out.expect("packets", packet_count(bytes, segment));
}

Sample data_sample(const char* name, const DataHeader& data) {
  Sample out = sample(name, data, payload_bytes(data));
  out.expect("lane", lane_of(data.path, data.traffic_class));
  out.expect("lane.class", data.traffic_class);
  out.expect("lane.path", data.path);
  out.expect("flags", data.retransmission | data.important << 1 | data.ack_now << 2 | data.open.has_value() << 3 |
                          data.quiet << 4 | data.parity << 5);
  out.expect("data.retransmission", data.retransmission);
  out.expect("data.important", data.important);
  out.expect("data.ack_now", data.ack_now);
  out.expect("data.has_open", data.open.has_value());
  out.expect("data.quiet", data.quiet);
  out.expect("data.parity", data.parity);
  out.expect("message", data.message);
  out.expect("data.index", data.index);
  out.expect("data.path_seq", data.path_seq);
  expect_size(out, data.message_bytes, data.segment);
  out.expect("data.passed", data.passed);
  if (data.parity) out.expect("data.parity_block", data.index / kMaxParity);
  if (data.parity) out.expect("data.parity_row", data.index % kMaxParity);
  out.expect("sent_units", data.sent_units);
  out.expect("data.trip", data.trip);
  if (out.payload > 0) out.add("data.payload", std::string(2 * out.payload, '0'));
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
    out.expect("ack.waited_us", block.waited_us);
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
          .forgotten_below = 0xfffffff0,
          .stage = 3,
          .tolerant = true,
          .exchange = true,
          .communicator = 0xfedcba9876543210,
          .collective = 77,
          .ranks = 8,
          .edges = 4,
          .collective_bytes = 0x8000000000000001,
          .tolerance_ppm = 1'000'000,
          .important = 2,
          .identity = {}};
}

OpenRecord identified_record() {
  OpenRecord open = open_record();
  open.identity = {.known = true,
                   .local_number = true,
                   .number = 0x800000000002,
                   .transfer = 0xfffffffd,
                   .channel = 63,
                   .function = 4,
                   .datatype = Identity::kUnknown,
                   .algorithm = 1,
                   .protocol = Identity::kUnknown,
                   .sender = 0xfffe};
  return open;
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
          .passed = 0xfffe,
          .sent_units = 17,
          .open = {}};
}

Sample sealed(const char* name, Sample sample, std::uint64_t counter, bool encrypted) {
  sample.name = name;
  std::array<std::byte, kSealBytes> seal;
  WireWriter(std::span(seal)).store<0>(counter);
  for (std::size_t i = sizeof counter; i < kSealBytes; ++i) seal[i] = static_cast<std::byte>(0xa0 + i + counter);
  sample.header.insert(sample.header.end(), seal.begin(), seal.end());
  sample.expect64("seal.counter", counter);
  sample.add("seal.tag", hex(std::span(seal).subspan<sizeof counter>()));
  if (encrypted && sample.payload > 0) {
    sample.fill = std::byte{0x5c};
    std::erase_if(sample.fields, [](const std::string& field) { return field.starts_with("data.payload "); });
    sample.add("data.payload", hex(std::vector(sample.payload, sample.fill)));
  }
  return sample;
}

}  // namespace clustar::mlt
