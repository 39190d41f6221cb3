// GPU memory, emulated, over transports that move host memory; and host memory through the same.
#include "gdr/emulated_copy.h"
#include "tests/conformance/staged_bed.h"
#include "tests/conformance/transport_under_test.h"

namespace clustar::transport::conformance {

std::vector<TransportUnderTest> staged_under_test() {
  std::vector<TransportUnderTest> all;
  std::vector<TransportUnderTest> inners = tcp_under_test();
  inners.resize(1);
  inners.push_back(mlt_under_test().front());
  for (const TransportUnderTest& inner : inners) {
    for (const gdr::MemoryKind memory : {gdr::MemoryKind::kHost, gdr::MemoryKind::kCuda}) {
      TransportUnderTest one;
      one.name = "staged_" + inner.name + "_" + gdr::to_string(memory);
      one.memory = memory;
      one.create = [create = inner.create](Log log) -> Result<std::unique_ptr<Transport>> {
        auto made = create(log);
        if (!made) return made;
        return emulated_stage(std::move(*made), std::move(log));
      };
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::unique_ptr<Transport> emulated_stage(std::unique_ptr<Transport> inner, Log log,
                                          const std::function<void(staged::Options&)>& change) {
  static const SystemClock clock;
  staged::Options options;
  options.gdr = "emulated: host memory plays GPU memory";
  options.emulated = true;
  options.make_copy = [](const gdr::MemoryRef&) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
    return std::make_unique<gdr::EmulatedCopy>(gdr::EmulatedCopy::Options{});
  };
  if (change) change(options);
  return std::make_unique<staged::StagedTransport>(std::move(inner), std::move(options), clock, std::move(log));
}

}  // namespace clustar::transport::conformance
