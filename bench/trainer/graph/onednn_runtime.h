// What oneDNN's kernels share. For their .cc files only: oneDNN's header is slow to compile.
#pragma once

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "bench/trainer/graph/shape.h"

namespace clustar::bench::trainer::graph {

struct OneDnnRuntime {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  mutable dnnl::stream stream{engine};

  dnnl::memory memory(const dnnl::memory::desc& desc, const float* values) const {
    // One type of memory for what is read and what is written.
    return {desc, engine, const_cast<float*>(values)};
  }
  void run(const dnnl::primitive& primitive, const std::unordered_map<int, dnnl::memory>& arguments) const {
    primitive.execute(stream, arguments);
    stream.wait();
  }
};

inline dnnl::memory::dim dim(std::size_t value) { return static_cast<dnnl::memory::dim>(value); }

// A batch of images as they lie in our memory.
inline dnnl::memory::desc images(std::size_t batch, const Shape& shape) {
  return {{dim(batch), dim(shape.channels), dim(shape.rows), dim(shape.columns)},
          dnnl::memory::data_type::f32,
          dnnl::memory::format_tag::nhwc};
}

inline dnnl::memory::desc vector_of(std::size_t floats) {
  return {{dim(floats)}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x};
}

}  // namespace clustar::bench::trainer::graph
