// The operators of all kernels, on values of whatever a kernel computes with. Of internal linkage: each file is
// compiled for its own instructions.
#pragma once

namespace clustar::paraexpress {
namespace {

struct Add {
  template <class V>
  static typename V::Value apply(typename V::Value so_far, typename V::Value next) {
    return V::add(so_far, next);
  }
};
struct Max {
  template <class V>
  static typename V::Value apply(typename V::Value so_far, typename V::Value next) {
    return V::max(so_far, next);
  }
};

}  // namespace
}  // namespace clustar::paraexpress
