// The wire formats of the TCP transport: what each message and each connection pays for them.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <span>

#include "transport/tcp/core/wire.h"

namespace clustar::bench::micro {
namespace {

using namespace transport::tcp;

HandleInfo two_endpoints() {
  HandleInfo info;
  info.settings = {65536, 1 << 20};
  info.invitation.endpoints.resize(2);
  info.invitation.endpoints[0].port = info.invitation.endpoints[1].port = 4791;
  return info;
}

void handle_serialize(benchmark::State& state) {
  const HandleInfo info = two_endpoints();
  for (auto _ : state) benchmark::DoNotOptimize(info.serialize());
}
BENCHMARK(handle_serialize)->Name("handle/serialize");

void handle_parse(benchmark::State& state) {
  const transport::Handle handle = two_endpoints().serialize();
  for (auto _ : state) benchmark::DoNotOptimize(HandleInfo::parse(handle));
}
BENCHMARK(handle_parse)->Name("handle/parse");

// One fixed-size record, written and read back.
template <class Record>
void record_serialize(benchmark::State& state, Record record) {
  std::array<std::byte, Record::kSize> bytes{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(record);
    record.serialize_to(bytes);
    benchmark::ClobberMemory();
  }
}

template <class Record>
void record_parse(benchmark::State& state, Record record) {
  std::array<std::byte, Record::kSize> bytes{};
  record.serialize_to(bytes);
  if (!Record::parse(bytes)) state.SkipWithError("the record does not parse");
  for (auto _ : state) {
    benchmark::DoNotOptimize(bytes);
    benchmark::DoNotOptimize(Record::parse(bytes));
  }
}

ChunkHeader eager_chunk() {
  ChunkHeader header;
  header.tag = 7;
  header.seq = 12345;
  header.total = 4096;
  header.length = 4096;
  return header;
}

ClearToSend clear_to_send() { return {.tag = 7, .seq = 12345, .slot = 3, .length = 4 << 20}; }

Hello hello() {
  Hello hello;
  hello.connection_id = 42;
  hello.data_sockets = 2;
  hello.settings = {65536, 1 << 20};
  return hello;
}

BENCHMARK_CAPTURE(record_serialize, chunk_header, eager_chunk())->Name("chunk_header/serialize");
BENCHMARK_CAPTURE(record_parse, chunk_header, eager_chunk())->Name("chunk_header/parse");
BENCHMARK_CAPTURE(record_serialize, clear_to_send, clear_to_send())->Name("clear_to_send/serialize");
BENCHMARK_CAPTURE(record_parse, clear_to_send, clear_to_send())->Name("clear_to_send/parse");
BENCHMARK_CAPTURE(record_serialize, hello, hello())->Name("hello/serialize");
BENCHMARK_CAPTURE(record_parse, hello, hello())->Name("hello/parse");

}  // namespace
}  // namespace clustar::bench::micro
