// Runs the ranks of one communicator as threads of the test.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/proxy/bootstrap.h"

namespace clustar::bench::proxy {

inline void run_ranks(int size, const std::function<void(Bootstrap&)>& body) {
  const auto root = Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root) << root.error().message;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Bootstrap::Options options;
      options.rank = rank;
      options.size = size;
      options.root = *root;
      options.call_timeout = std::chrono::seconds(30);
      auto bootstrap = Bootstrap::join(options);
      ASSERT_TRUE(bootstrap) << bootstrap.error().message;
      body(**bootstrap);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace clustar::bench::proxy
