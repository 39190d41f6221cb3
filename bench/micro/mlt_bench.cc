// The parts of MLT's core, each by itself: what they cost a packet, an acknowledgement or a message.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "mlt/core/bitmap.h"
#include "mlt/core/classes.h"
#include "mlt/core/importance.h"
#include "mlt/core/ledger.h"
#include "mlt/core/send/congestion.h"
#include "mlt/core/send/pacer.h"
#include "mlt/core/send/paths.h"
#include "mlt/core/send/rtt.h"
#include "mlt/core/wire.h"
#include "transport/base/rng.h"

namespace clustar::bench::micro {
namespace {

using namespace mlt;

constexpr std::uint64_t kSecret = 0x0123456789abcdef;
constexpr std::uint16_t kSegment = 1408;
constexpr TimePoint kBegin{std::chrono::seconds(1)};

// ---- wire

OpenRecord open_record() {
  OpenRecord open;
  open.tag = 7;
  open.tolerant = true;
  open.communicator = 1;
  open.collective = 5;
  open.ranks = open.edges = 16;
  open.collective_bytes = 256 << 20;
  open.identity.known = true;
  open.tolerance_ppm = 10'000;
  return open;
}

Packet data_header(bool with_open) {
  DataHeader header;
  header.secret = kSecret;
  header.message = 3;
  header.index = 700;
  header.path_seq = 12'345;
  header.message_bytes = 1 << 20;
  header.segment = kSegment;
  if (with_open) header.open = open_record();
  return header;
}

Packet ack() {
  Ack ack;
  ack.secret = kSecret;
  ack.count = Ack::kMaxBlocks;
  for (std::size_t i = 0; i < Ack::kMaxBlocks; ++i) {
    ack.blocks[i].path = static_cast<std::uint8_t>(i);
    ack.blocks[i].largest = 12'345;
    ack.blocks[i].before = ~std::uint64_t{0};
    ack.blocks[i].delay_us = 10;
  }
  return ack;
}

Packet posted() {
  Posted posted;
  posted.secret = kSecret;
  posted.tag = 7;
  posted.tag_seq = 3;
  posted.length = 1 << 20;
  posted.credit_units = 1000;
  return posted;
}

Packet state_of_a_window() {
  State state;
  state.secret = kSecret;
  state.count = State::kWindow;
  state.missing[3] = std::byte{1};
  state.want = 1;
  return state;
}

Packet probe() {
  Probe probe;
  probe.secret = kSecret;
  probe.message = 3;
  probe.sent = 700;
  probe.message_bytes = 1 << 20;
  probe.segment = kSegment;
  probe.sent_units = 5000;
  probe.open = open_record();
  return probe;
}

void wire_serialize(benchmark::State& state, Packet packet) {
  std::array<std::byte, kMaxHeader> bytes{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(packet);
    benchmark::DoNotOptimize(serialize(packet, bytes));
    benchmark::ClobberMemory();
  }
}

void wire_parse(benchmark::State& state, Packet packet) {
  std::array<std::byte, kMaxHeader> bytes{};
  const std::size_t size = serialize(packet, bytes);
  if (parse(std::span(bytes).first(size)) != packet) state.SkipWithError("the packet does not parse");
  for (auto _ : state) {
    benchmark::DoNotOptimize(bytes);
    benchmark::DoNotOptimize(parse(std::span(bytes).first(size)));
  }
}

void wire_peek_secret(benchmark::State& state) {
  std::array<std::byte, kMaxHeader> bytes{};
  const std::size_t size = serialize(data_header(false), bytes);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bytes);
    benchmark::DoNotOptimize(peek_secret(std::span(bytes).first(size)));
  }
}

BENCHMARK_CAPTURE(wire_serialize, data, data_header(false))->Name("mlt/wire/serialize/data");
BENCHMARK_CAPTURE(wire_serialize, data_open, data_header(true))->Name("mlt/wire/serialize/data_with_open");
BENCHMARK_CAPTURE(wire_serialize, ack, ack())->Name("mlt/wire/serialize/ack");
BENCHMARK_CAPTURE(wire_serialize, posted, posted())->Name("mlt/wire/serialize/posted");
BENCHMARK_CAPTURE(wire_serialize, state, state_of_a_window())->Name("mlt/wire/serialize/state");
BENCHMARK_CAPTURE(wire_serialize, probe, probe())->Name("mlt/wire/serialize/probe");
BENCHMARK_CAPTURE(wire_parse, data, data_header(false))->Name("mlt/wire/parse/data");
BENCHMARK_CAPTURE(wire_parse, data_open, data_header(true))->Name("mlt/wire/parse/data_with_open");
BENCHMARK_CAPTURE(wire_parse, ack, ack())->Name("mlt/wire/parse/ack");
BENCHMARK_CAPTURE(wire_parse, posted, posted())->Name("mlt/wire/parse/posted");
BENCHMARK_CAPTURE(wire_parse, state, state_of_a_window())->Name("mlt/wire/parse/state");
BENCHMARK_CAPTURE(wire_parse, probe, probe())->Name("mlt/wire/parse/probe");
BENCHMARK(wire_peek_secret)->Name("mlt/wire/peek_secret");

// ---- ledger

// So wide that no number of iterations comes to its end.
constexpr Terms kTerms{std::uint64_t{1} << 52, 16, 16, 1'000'000};
constexpr std::uint64_t kEligible = std::uint64_t{1} << 50;

Ledger open_ledger() {
  Ledger ledger(kTerms);
  ledger.add_eligible(kEligible);
  return ledger;
}

void ledger_allows(benchmark::State& state) {
  Ledger ledger = open_ledger();
  for (auto _ : state) {
    benchmark::DoNotOptimize(ledger);
    benchmark::DoNotOptimize(ledger.allows(3, kSegment));
  }
}
BENCHMARK(ledger_allows)->Name("mlt/ledger/allows");

void ledger_headroom(benchmark::State& state) {
  Ledger ledger = open_ledger();
  for (auto _ : state) {
    benchmark::DoNotOptimize(ledger);
    benchmark::DoNotOptimize(ledger.headroom(3));
  }
}
BENCHMARK(ledger_headroom)->Name("mlt/ledger/headroom");

void ledger_charge(benchmark::State& state) {
  Ledger ledger = open_ledger();
  bool allowed = true;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ledger);
    allowed = ledger.charge(3, kSegment) && allowed;
  }
  if (!allowed) state.SkipWithError("the budget is spent");
}
BENCHMARK(ledger_charge)->Name("mlt/ledger/charge");

// range(0) collectives are open and asked for in turn.
template <class Call>
void each_collective(benchmark::State& state, Call call) {
  LedgerBook book(LedgerBook::Options{});
  const auto open = static_cast<std::uint32_t>(state.range(0));
  for (std::uint32_t i = 0; i < open; ++i) {
    book.open({1, i}, kTerms);
    book.add_eligible({1, i}, kEligible);
  }
  std::uint32_t sequence = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(call(book, CollectiveId{1, sequence}));
    if (++sequence == open) sequence = 0;
  }
  if (book.totals().refused > 0) state.SkipWithError("the budget is spent");
}

void book_open(benchmark::State& state) {
  each_collective(state, [](LedgerBook& book, const CollectiveId& id) { return book.open(id, kTerms); });
}
void book_allows(benchmark::State& state) {
  each_collective(state, [](LedgerBook& book, const CollectiveId& id) { return book.allows(id, 3, kSegment); });
}
void book_headroom(benchmark::State& state) {
  each_collective(state, [](LedgerBook& book, const CollectiveId& id) { return book.headroom(id, 3); });
}
void book_charge(benchmark::State& state) {
  each_collective(state, [](LedgerBook& book, const CollectiveId& id) { return book.charge(id, 3, kSegment); });
}
BENCHMARK(book_open)->Name("mlt/ledger_book/open_known")->ArgName("collectives")->Arg(1)->Arg(64);
BENCHMARK(book_allows)->Name("mlt/ledger_book/allows")->ArgName("collectives")->Arg(1)->Arg(64);
BENCHMARK(book_headroom)->Name("mlt/ledger_book/headroom")->ArgName("collectives")->Arg(1)->Arg(64);
BENCHMARK(book_charge)->Name("mlt/ledger_book/charge")->ArgName("collectives")->Arg(1)->Arg(64);

// ---- bitmap: 1 MiB in segments of 1408, and 22 MiB

PacketBitmap bitmap_of(benchmark::State& state) {
  PacketBitmap bitmap;
  if (!bitmap.reset(static_cast<std::uint32_t>(state.range(0)))) state.SkipWithError("too many packets");
  return bitmap;
}

// All packets of a message, one by one, and the reset for the next.
void bitmap_set(benchmark::State& state) {
  PacketBitmap bitmap = bitmap_of(state);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < bitmap.size(); ++i) benchmark::DoNotOptimize(bitmap.set(i));
    benchmark::DoNotOptimize(bitmap.reset(bitmap.size()));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(bitmap_set)->Name("mlt/bitmap/set_all")->ArgName("packets")->Arg(745)->Arg(16'384);

// Past all packets to the last one: the longest search.
void bitmap_first_clear(benchmark::State& state) {
  PacketBitmap bitmap = bitmap_of(state);
  bitmap.set_range(0, bitmap.size() - 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bitmap);
    benchmark::DoNotOptimize(bitmap.first_clear(0));
  }
}
BENCHMARK(bitmap_first_clear)->Name("mlt/bitmap/first_clear_at_the_end")->ArgName("packets")->Arg(745)->Arg(16'384);

void bitmap_first_set(benchmark::State& state) {
  PacketBitmap bitmap = bitmap_of(state);
  bitmap.set(bitmap.size() - 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bitmap);
    benchmark::DoNotOptimize(bitmap.first_set(0));
  }
}
BENCHMARK(bitmap_first_set)->Name("mlt/bitmap/first_set_at_the_end")->ArgName("packets")->Arg(745)->Arg(16'384);

// Every hole of a message that lost 1 %.
void bitmap_holes(benchmark::State& state) {
  PacketBitmap bitmap = bitmap_of(state);
  bitmap.set_range(0, bitmap.size());
  for (std::uint32_t i = 50; i < bitmap.size(); i += 100) bitmap.clear(i);
  for (auto _ : state) {
    for (std::uint32_t i = bitmap.first_clear(0); i < bitmap.size(); i = bitmap.first_clear(i + 1)) {
      benchmark::DoNotOptimize(i);
    }
  }
  state.SetItemsProcessed(state.iterations() * bitmap.missing());
}
BENCHMARK(bitmap_holes)->Name("mlt/bitmap/every_hole_of_1%")->ArgName("packets")->Arg(745)->Arg(16'384);

// The window of one state packet: 512 packets in the wire's bit order.
void bitmap_extract(benchmark::State& state) {
  PacketBitmap bitmap = bitmap_of(state);
  for (std::uint32_t i = 50; i < bitmap.size(); i += 100) bitmap.set(i);
  std::array<std::byte, State::kWindow / 8> window{};
  for (auto _ : state) {
    bitmap.extract(0, window);
    benchmark::DoNotOptimize(window);
  }
}
BENCHMARK(bitmap_extract)->Name("mlt/bitmap/window_extract")->ArgName("packets")->Arg(745)->Arg(16'384);

// ---- timing and congestion

void pacer_packet(benchmark::State& state) {
  TimePoint now = kBegin;
  Pacer pacer(12'500'000'000, 16 * 1024, now);
  for (auto _ : state) {
    now = pacer.next_send(now);
    pacer.on_sent(kSegment, now);
    benchmark::DoNotOptimize(pacer);
  }
}
BENCHMARK(pacer_packet)->Name("mlt/pacer/packet");

void rtt_sample(benchmark::State& state) {
  Rng rng(1);
  std::array<Duration, 1024> samples;
  for (Duration& sample : samples) sample = Duration(20'000 + static_cast<Duration::rep>(rng.below(10'000)));
  RttEstimator rtt;
  TimePoint now = kBegin;
  std::size_t next = 0;
  for (auto _ : state) {
    now += Duration(2000);
    rtt.sample(samples[next++ % samples.size()], now);
    benchmark::DoNotOptimize(rtt.probe_timeout());
  }
}
BENCHMARK(rtt_sample)->Name("mlt/rtt/sample");

// Acknowledgements of 16 packets at line rate, a tenth of them marked.
void congestion_on_ack(benchmark::State& state, Congestion congestion) {
  TimePoint now = kBegin;
  std::uint32_t count = 0;
  for (auto _ : state) {
    now += Duration(1800);
    const std::uint64_t marked = ++count % 10 == 0 ? 16 * kSegment : 0;
    congestion.on_ack(std::uint64_t{16} * kSegment, marked, Duration(40'000), Duration(20'000), now);
    benchmark::DoNotOptimize(congestion.window_bytes());
  }
}
BENCHMARK_CAPTURE(congestion_on_ack, dctcp_swift, Congestion(DctcpSwift()))->Name("mlt/congestion/on_ack/dctcp_swift");
BENCHMARK_CAPTURE(congestion_on_ack, dctcp, Congestion(Dctcp()))->Name("mlt/congestion/on_ack/dctcp");
BENCHMARK_CAPTURE(congestion_on_ack, fixed_rate, Congestion(FixedRate()))->Name("mlt/congestion/on_ack/fixed_rate");

void paths_choose(benchmark::State& state) {
  Rng rng(1);
  const auto paths = static_cast<std::uint32_t>(state.range(0));
  PathSelector selector(paths, PathOptions{});
  TimePoint now = kBegin;
  for (std::uint32_t path = 0; path < paths; ++path) selector.on_ack(path, Duration(20'000 + path), false, now);
  for (auto _ : state) {
    now += Duration(1400);
    benchmark::DoNotOptimize(selector.choose(rng, now));
  }
}
BENCHMARK(paths_choose)->Name("mlt/paths/choose")->ArgName("paths")->Arg(1)->Arg(8)->Arg(32);

void paths_on_ack(benchmark::State& state) {
  const auto paths = static_cast<std::uint32_t>(state.range(0));
  PathSelector selector(paths, PathOptions{});
  TimePoint now = kBegin;
  std::uint32_t path = 0;
  for (auto _ : state) {
    now += Duration(120);
    selector.on_ack(path, Duration(20'000), false, now);
    if (++path == paths) path = 0;
  }
  benchmark::DoNotOptimize(selector);
}
BENCHMARK(paths_on_ack)->Name("mlt/paths/on_ack")->ArgName("paths")->Arg(1)->Arg(8)->Arg(32);

// ---- importance

// The first two bytes of a float are its bf16, and as f16 they are a finite number too.
void sampler_packet(benchmark::State& state, FloatType type) {
  Rng rng(1);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> payload(bytes);
  for (std::size_t at = 0; at + 2 <= bytes; at += 2) {
    const auto value = static_cast<std::uint16_t>(0x3000 + rng.below(0x0800));
    std::memcpy(payload.data() + at, &value, sizeof(value));
  }
  MagnitudeSampler sampler;
  for (auto _ : state) {
    benchmark::DoNotOptimize(payload.data());
    benchmark::ClobberMemory();
    benchmark::DoNotOptimize(sampler.important(payload, type));
  }
}
BENCHMARK_CAPTURE(sampler_packet, f32, FloatType::kF32)
    ->Name("mlt/sampler/f32")
    ->ArgName("bytes")
    ->Arg(1408)
    ->Arg(8900);
BENCHMARK_CAPTURE(sampler_packet, f16, FloatType::kF16)
    ->Name("mlt/sampler/f16")
    ->ArgName("bytes")
    ->Arg(1408)
    ->Arg(8900);
BENCHMARK_CAPTURE(sampler_packet, bf16, FloatType::kBf16)
    ->Name("mlt/sampler/bf16")
    ->ArgName("bytes")
    ->Arg(1408)
    ->Arg(8900);

void classes_of_a_message(benchmark::State& state) {
  Classes classes;
  std::uint32_t index = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(classes);
    benchmark::DoNotOptimize(classes.dscp(classes.bulk(index, 100)));
    if (++index == 100) index = 0;
  }
}
BENCHMARK(classes_of_a_message)->Name("mlt/classes/bulk_and_dscp");

}  // namespace
}  // namespace clustar::bench::micro
