// GPU memory, emulated, over transports that move host memory; and host memory through the same.
#include <algorithm>
#include <utility>
#include <vector>

#include "tests/conformance/staged_bed.h"
#include "tests/conformance/transport_under_test.h"

namespace clustar::transport::conformance {
namespace {

TransportUnderTest staged_over(const TransportUnderTest& inner, const std::string& name, gdr::MemoryKind memory,
                               const std::function<void(staged::Options&)>& change = {}) {
  TransportUnderTest one = inner;
  one.name = "staged_" + inner.name + name;
  one.memory = memory;
  one.cycles = 50;
  one.create = [create = inner.create, change](Log log) -> Result<std::unique_ptr<Transport>> {
    auto made = create(log);
    if (!made) return made;
    return emulated_stage(std::move(*made), std::move(log), change);
  };
  return one;
}

class ProbedBuffer final : public gdr::HostBuffer {
 public:
  ProbedBuffer(CopyProbe& probe, std::unique_ptr<gdr::HostBuffer> inner) : probe_(probe), inner_(std::move(inner)) {
    ++probe_.made;
    const std::size_t now = probe_.host_bytes += inner_->bytes().size();
    probe_.most_host_bytes = std::max(probe_.most_host_bytes.load(), now);
  }
  ~ProbedBuffer() override { probe_.host_bytes -= inner_->bytes().size(); }
  std::span<std::byte> bytes() const override { return inner_->bytes(); }

 private:
  CopyProbe& probe_;
  const std::unique_ptr<gdr::HostBuffer> inner_;
};

class ProbedCopy final : public gdr::DeviceCopy {
 public:
  ProbedCopy(CopyProbe& probe, const gdr::EmulatedCopy::Options& options) : probe_(probe), inner_(options) {
    ++probe_.objects;
  }
  ~ProbedCopy() override {
    probe_.left_under_way += under_way_;
    probe_.under_way -= under_way_;
    --probe_.objects;
  }
  const char* name() const override { return "probed"; }
  Result<std::unique_ptr<gdr::HostBuffer>> host_buffer(std::size_t bytes) override {
    if (probe_.refuses_more) return fail(ErrorCode::kSystem, "no more host memory can be pinned");
    auto buffer = inner_.host_buffer(bytes);
    if (!buffer) return buffer;
    return std::make_unique<ProbedBuffer>(probe_, std::move(*buffer));
  }
  Result<std::optional<Ticket>> to_device(std::byte* device, const std::byte* host, std::size_t bytes) override {
    return count(inner_.to_device(device, host, bytes));
  }
  Result<std::optional<Ticket>> to_host(std::byte* host, const std::byte* device, std::size_t bytes) override {
    return count(inner_.to_host(host, device, bytes));
  }
  Result<bool> done(Ticket ticket) override {
    if (probe_.stuck) return false;
    if (probe_.fails.exchange(false) || probe_.dead) return fail(ErrorCode::kSystem, "the GPU has fallen off the bus");
    const auto ended = inner_.done(ticket);
    if (ended && *ended) {
      --under_way_;
      --probe_.under_way;
      ++probe_.ended;
    }
    return ended;
  }

 private:
  Result<std::optional<Ticket>> count(Result<std::optional<Ticket>> begun) {
    if (begun && *begun) {
      ++under_way_;
      ++probe_.under_way;
    }
    return begun;
  }

  CopyProbe& probe_;
  gdr::EmulatedCopy inner_;
  std::size_t under_way_ = 0;
};

}  // namespace

std::vector<TransportUnderTest> staged_under_test() {
  const TransportUnderTest tcp = tcp_under_test().front();
  const TransportUnderTest mlt = mlt_under_test().front();
  return {
      staged_over(tcp, "_host", gdr::MemoryKind::kHost),
      staged_over(tcp, "_cuda", gdr::MemoryKind::kCuda),
      staged_over(tcp, "_cuda_small_arena", gdr::MemoryKind::kCuda,
                  [](staged::Options& options) {
                    options.slice_bytes = 4096;
                    options.slices = 3;
                    options.max_copies = 2;
                  }),
      staged_over(mlt, "_host", gdr::MemoryKind::kHost),
      staged_over(mlt, "_cuda", gdr::MemoryKind::kCuda),
  };
}

std::unique_ptr<Transport> emulated_stage(std::unique_ptr<Transport> inner, Log log,
                                          const std::function<void(staged::Options&)>& change, const Clock* clock) {
  static const SystemClock system;
  staged::Options options;
  options.gdr = "emulated: host memory plays GPU memory";
  options.emulated = true;
  options.make_copy = [](const gdr::MemoryRef&) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
    return std::make_unique<gdr::EmulatedCopy>(gdr::EmulatedCopy::Options{});
  };
  if (change) change(options);
  return std::make_unique<staged::StagedTransport>(std::move(inner), std::move(options),
                                                   clock == nullptr ? system : *clock, std::move(log));
}

gdr::MakeCopy probed_copies(CopyProbe& probe, const gdr::EmulatedCopy::Options& options) {
  return [&probe, options](const gdr::MemoryRef&) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
    return std::make_unique<ProbedCopy>(probe, options);
  };
}

}  // namespace clustar::transport::conformance
