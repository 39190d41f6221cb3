// The ranks of an engine, each in a thread, over a transport under test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "paraexpress/engine/engine.h"
#include "tests/conformance/transport_under_test.h"

namespace clustar::paraexpress {

inline AllGather through(bench::proxy::Bootstrap& bootstrap) {
  return [&bootstrap](std::span<const std::byte> mine) { return bootstrap.all_gather(mine); };
}

// One rank, with all that it needs.
struct Rank {
  std::unique_ptr<bench::proxy::Bootstrap> bootstrap;
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<Engine> engine;

  static Result<Rank> join(const transport::conformance::TransportUnderTest& which, const std::string& root,
                           EngineOptions options) {
    Rank rank;
    auto bootstrap = bench::proxy::Bootstrap::join({.rank = static_cast<int>(options.rank),
                                                    .size = static_cast<int>(options.ranks + options.helpers),
                                                    .root = root,
                                                    .required = static_cast<int>(options.ranks)});
    if (!bootstrap) return tl::unexpected(bootstrap.error());
    rank.bootstrap = std::move(*bootstrap);
    auto transport = which.create({});
    if (!transport) return tl::unexpected(transport.error());
    rank.transport = std::move(*transport);
    auto engine = Engine::create(*rank.transport, through(*rank.bootstrap), options);
    if (!engine) return tl::unexpected(engine.error());
    rank.engine = std::move(*engine);
    return rank;
  }
};

// Each rank in a thread; `body` gets it and its number. They meet at `root`, with the helpers of `common`.
inline void with_ranks_at(const std::string& root, const transport::conformance::TransportUnderTest& which,
                          std::uint32_t n, const EngineOptions& common,
                          const std::function<void(Engine&, Member)>& body) {
  std::vector<std::thread> threads;
  for (Member rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      EngineOptions options = common;
      options.rank = rank;
      options.ranks = n;
      auto one = Rank::join(which, root, options);
      ASSERT_TRUE(one) << one.error().message;
      body(*one->engine, rank);
      one->engine->close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}
inline void with_ranks(const transport::conformance::TransportUnderTest& which, std::uint32_t n,
                       const EngineOptions& common, const std::function<void(Engine&, Member)>& body) {
  const auto root = bench::proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  with_ranks_at(*root, which, n, common, body);
}

// Each plan that makes sense for so many ranks, five of them in two regions; chunks are the shortest.
inline void for_each_plan(std::initializer_list<std::uint32_t> sizes,
                          const std::function<void(std::uint32_t n, const EngineOptions&, const Forest&)>& body) {
  for (const std::uint32_t n : sizes) {
    EngineOptions options;
    options.chunk_bytes = kLeastChunk;
    options.regions = n == 5 ? "a ranks=0,2,4 oversubscription=4\nb ranks=1,3\n" : "";
    const Group group = make_group(n, 0, n == 5 ? *parse_region_map(options.regions, n, 0) : one_region(n));
    for (const Plan plan : kPlans) {
      if (!makes_sense(plan, group)) continue;
      options.plan = plan;
      SCOPED_TRACE(testing::Message() << to_string(plan) << " n=" << n);
      body(n, options, build(plan, group));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace clustar::paraexpress
