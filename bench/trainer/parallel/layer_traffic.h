// The all-to-alls of layers that are spread over the ranks (layer_terms.h), where such layers wait for them: in the
// middle of forward and of backward. As traffic: the bytes are real and checked, and nothing is computed with them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "bench/trainer/collective.h"
#include "bench/trainer/parallel/layer_terms.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::parallel {

inline constexpr std::size_t kMostLayers = 2;

// Of one layer on one rank. Plain data: it travels over the bootstrap as it is.
struct LayerCounts {
  std::uint64_t exchanges = 0;
  std::uint64_t bytes_sent = 0;      // to other ranks
  std::uint64_t bytes_received = 0;  // from other ranks, each compared with what was to come
  double exposed_s = 0;              // computing stood still for it
};
using AllLayerCounts = std::array<LayerCounts, kMostLayers>;

class LayerTraffic {
 public:
  // Of a network with so many tensors, the same on all ranks. Collectives by layer, for them alone; they and this
  // object's memory outlive each other's use: close() the collectives before it goes.
  LayerTraffic(const std::vector<LayerExchanges>& layers, const std::vector<Collective*>& collectives, int rank,
               std::size_t tensors);

  // Before a forward pass reads these tensors, and after backward has made the gradient of this one. Blocks where the
  // layers are.
  void forward(std::size_t first_tensor, std::size_t count);
  void backward(std::size_t tensor);
  // The first that failed, or brought other bytes than it should. After it nothing is exchanged any more.
  Result<void> check() const;
  const AllLayerCounts& counts() const { return counts_; }

 private:
  struct Layer {
    LayerExchanges exchanges;
    Collective* collective = nullptr;
    std::vector<std::byte> out{}, in{};
    Buffer mapped_out{}, mapped_in{};
    std::uint64_t number = 0;  // of exchanges so far, the same on all ranks
  };
  void exchange(std::size_t index, const Collective::BlockSizes& bytes);

  std::size_t rank_;
  std::size_t place_;  // the tensor that the layers are before
  std::vector<Layer> layers_;
  AllLayerCounts counts_{};
  std::optional<Error> error_;
};

}  // namespace clustar::bench::trainer::parallel
