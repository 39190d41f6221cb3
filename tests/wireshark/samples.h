// Packets and what the dissector must show of them.
#pragma once

#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "mlt/core/wire.h"
#include "mlt/driver/seal.h"

namespace clustar::mlt {

inline constexpr std::size_t kSealBytes = driver::kSealBytes;

std::string hex(std::span<const std::byte> bytes);

struct Sample {
  std::string name;
  std::vector<std::byte> header;
  std::size_t payload = 0;
  std::byte fill{};  // of the payload
  std::vector<std::string> fields;

  void expect(const char* field, std::int64_t value) { add(field, std::to_string(value)); }
  void expect64(const char* field, std::uint64_t value) {
    std::array<char, 20> text{};
    std::snprintf(text.data(), text.size(), "%016" PRIx64, value);
    add(field, text.data());
  }
  void add(const char* field, const std::string& value) { fields.push_back(std::string(field) + " " + value); }
};

Sample sample(const char* name, const Packet& packet, std::size_t payload = 0);
Sample data_sample(const char* name, const DataHeader& data);
Sample ack_sample(const char* name, const Ack& ack, const std::vector<int>& missing);
Sample state_sample(const char* name, const State& state, int missing, const char* ranges);
// Under a pre-shared key: a counter and a tag behind the core's header, the payload as it was or encrypted.
Sample sealed(const char* name, Sample sample, std::uint64_t counter, bool encrypted = false);

void expect_open(Sample& out, const OpenRecord& open);
void expect_size(Sample& out, std::uint32_t bytes, std::uint16_t segment);

OpenRecord open_record();
OpenRecord identified_record();
DataHeader data_header();

}  // namespace clustar::mlt
