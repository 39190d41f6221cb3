// What a connection knows of each lane (wire.h): room for one class at a time, when its first packet comes or goes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace clustar::mlt {

// `Lane` is made by `make(path)`. Classes are 0 .. 7, paths 0 .. paths - 1.
template <class Lane>
class Lanes {
 public:
  explicit Lanes(std::uint8_t paths) : paths_(paths) { first_.fill(kNone); }

  std::uint8_t paths() const { return paths_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(lanes_.size()); }
  Lane& operator[](std::uint32_t number) { return lanes_[number]; }
  const Lane& operator[](std::uint32_t number) const { return lanes_[number]; }
  auto begin() { return lanes_.begin(); }
  auto end() { return lanes_.end(); }
  auto begin() const { return lanes_.begin(); }
  auto end() const { return lanes_.end(); }

  bool has(std::uint8_t traffic_class) const { return first_[traffic_class & 7] != kNone; }
  // Only when has(traffic_class).
  std::uint32_t number(std::uint8_t path, std::uint8_t traffic_class) const {
    return std::uint32_t{first_[traffic_class & 7]} + path;
  }
  template <class Make>
  std::uint32_t number_or_make(std::uint8_t path, std::uint8_t traffic_class, Make make) {
    if (!has(traffic_class)) {
      first_[traffic_class & 7] = static_cast<std::uint16_t>(lanes_.size());
      for (std::uint8_t i = 0; i < paths_; ++i) lanes_.push_back(make(i));
    }
    return number(path, traffic_class);
  }

 private:
  static constexpr std::uint16_t kNone = 0xffff;
  std::uint8_t paths_;
  std::array<std::uint16_t, 8> first_;  // lane of path 0
  std::vector<Lane> lanes_;
};

}  // namespace clustar::mlt
