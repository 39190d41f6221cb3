// The matching protocol without a socket: what one message pays at each end.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>

#include "transport/tcp/core/recv_matcher.h"
#include "transport/tcp/core/send_matcher.h"

namespace clustar::bench::micro {
namespace {

using namespace transport::tcp;

constexpr SharedSettings kSettings{65536, 1 << 20};

// A message that leaves ahead of its receive, and the clear-to-send that arrives for it afterwards.
void send_eager(benchmark::State& state) {
  SendMatcher matcher(kSettings);
  std::uint32_t seq = 0;
  for (auto _ : state) {
    auto departure = matcher.submit(0, 1, 4096);
    benchmark::DoNotOptimize(departure);
    auto cleared = matcher.on_clear_to_send({.tag = 1, .seq = seq++, .slot = 0, .length = 4096});
    benchmark::DoNotOptimize(cleared);
  }
}
BENCHMARK(send_eager)->Name("send_matcher/eager_4KiB");

void send_cleared(benchmark::State& state) {
  SendMatcher matcher(kSettings);
  std::uint32_t seq = 0;
  for (auto _ : state) {
    matcher.on_clear_to_send({.tag = 1, .seq = seq++, .slot = 0, .length = 4 << 20});
    auto departure = matcher.submit(0, 1, 4 << 20);
    benchmark::DoNotOptimize(departure);
  }
}
BENCHMARK(send_cleared)->Name("send_matcher/cleared_4MiB");

// A receive is posted, its message's header and payload arrive, the request ends; `outstanding` older ones stay.
void receive(benchmark::State& state) {
  RecvMatcher matcher(kSettings);
  const std::array<RecvMatcher::Part, 1> older{{{2, 4096}}};
  for (std::int64_t i = 0; i < state.range(0); ++i) matcher.post(older);
  const std::array<RecvMatcher::Part, 1> part{{{1, 4096}}};
  ChunkHeader header;
  header.tag = 1;
  header.total = header.length = 4096;
  for (auto _ : state) {
    const auto posted = matcher.post(part);
    const auto placement = matcher.on_header(header);
    if (!posted || placement.kind != RecvMatcher::Placement::Kind::kPart) {
      state.SkipWithError("the message found no receive");
      break;
    }
    matcher.on_payload(placement, header);
    matcher.release(posted->group);
    ++header.seq;
  }
}
BENCHMARK(receive)->Name("recv_matcher/receive_4KiB")->ArgName("outstanding")->Arg(0)->Arg(7)->Arg(31);

}  // namespace
}  // namespace clustar::bench::micro
