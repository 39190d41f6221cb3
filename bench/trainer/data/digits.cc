#include "bench/trainer/data/digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kSide = 28;
constexpr std::size_t kClasses = 10;
constexpr std::uint64_t kFirstDigitStream = 1ull << 40;

struct Point {
  double x, y;
};
using Stroke = std::vector<Point>;  // a line through its points, in a box of x, y from -1 to 1, y downwards
using Glyph = std::vector<Stroke>;

// A quarter turn at a time, by the rational form of the circle: sines of libm may differ between machines.
Stroke arc(Point centre, double rx, double ry, int first_quarter, int quarters) {
  constexpr std::array<Point, 5> kQuarter{
      {{1, 0}, {0.92388, 0.382683}, {0.707107, 0.707107}, {0.382683, 0.92388}, {0, 1}}};
  Stroke stroke;
  for (int q = first_quarter; q < first_quarter + quarters; ++q) {
    for (std::size_t i = (q == first_quarter ? 0 : 1); i < kQuarter.size(); ++i) {
      Point p = kQuarter[i];
      for (int turn = 0; turn < (q & 3); ++turn) p = {-p.y, p.x};
      stroke.push_back({centre.x + rx * p.x, centre.y + ry * p.y});
    }
  }
  return stroke;
}

// Quarters start at the right and turn clockwise on the screen: 0 lower right, 1 lower left, 2 upper left, 3 upper
// right.
const std::array<Glyph, kClasses>& glyphs() {
  static const std::array<Glyph, kClasses> all{{
      {arc({0, 0}, 0.6, 0.95, 0, 4)},
      {{{-0.35, -0.6}, {0.05, -0.95}, {0.05, 0.95}}},
      {arc({0, -0.42}, 0.55, 0.52, 2, 2), {{0.55, -0.42}, {0.35, 0.1}, {-0.6, 0.95}, {0.65, 0.95}}},
      {arc({0, -0.47}, 0.5, 0.48, 2, 3), arc({0, 0.47}, 0.58, 0.48, 3, 3)},
      {{{0.25, 0.95}, {0.25, -0.95}, {-0.65, 0.35}, {0.65, 0.35}}},
      {{{0.55, -0.95}, {-0.45, -0.95}, {-0.5, -0.1}, {0, -0.2}}, arc({0, 0.38}, 0.58, 0.57, 3, 3)},
      {arc({0, 0.42}, 0.55, 0.53, 0, 4), {{0.4, -0.95}, {-0.25, -0.45}, {-0.55, 0.42}}},
      {{{-0.6, -0.95}, {0.6, -0.95}, {-0.15, 0.95}}},
      {arc({0, -0.48}, 0.46, 0.47, 0, 4), arc({0, 0.47}, 0.56, 0.48, 0, 4)},
      {arc({0, -0.42}, 0.55, 0.53, 0, 4), {{0.55, -0.42}, {0.45, 0.3}, {0.1, 0.95}}},
  }};
  return all;
}

// x' = a x + b y + dx, y' = c x + d y + dy: from the glyph's box to pixels.
struct Affine {
  double a, b, c, d, dx, dy;
  Point operator()(Point p) const { return {a * p.x + b * p.y + dx, c * p.x + d * p.y + dy}; }
};

Affine random_affine(Rng& rng) {
  const double half_angle = rng.uniform(-0.17, 0.17);  // tangent of half the rotation: +-19 degrees
  const double cosine = (1 - half_angle * half_angle) / (1 + half_angle * half_angle);
  const double sine = 2 * half_angle / (1 + half_angle * half_angle);
  const double sx = rng.uniform(6.0, 9.5);
  const double sy = rng.uniform(7.0, 10.0);
  const double shear = rng.uniform(-0.35, 0.35);
  const double dx = 13.5 + rng.uniform(-3.0, 3.0);
  const double dy = 13.5 + rng.uniform(-2.5, 2.5);
  // Rotation * shear * scale.
  return {cosine * sx, (cosine * shear - sine) * sy, sine * sx, (sine * shear + cosine) * sy, dx, dy};
}

double distance(Point p, Point from, Point to) {
  const double vx = to.x - from.x;
  const double vy = to.y - from.y;
  const double length2 = vx * vx + vy * vy;
  const double along = length2 > 0 ? std::clamp(((p.x - from.x) * vx + (p.y - from.y) * vy) / length2, 0.0, 1.0) : 0.0;
  const double dx = p.x - (from.x + along * vx);
  const double dy = p.y - (from.y + along * vy);
  return std::sqrt(dx * dx + dy * dy);
}

using Canvas = std::array<double, kSide * kSide>;  // ink, 0 to 1

// A round pen of `radius` pixels with an edge one pixel soft.
void draw_line(Canvas& canvas, Point from, Point to, double radius, double ink) {
  const auto pixel = [](double value) { return static_cast<int>(std::clamp(value, 0.0, double{kSide - 1})); };
  const double reach = radius + 1;
  for (int y = pixel(std::min(from.y, to.y) - reach); y <= pixel(std::max(from.y, to.y) + reach); ++y) {
    for (int x = pixel(std::min(from.x, to.x) - reach); x <= pixel(std::max(from.x, to.x) + reach); ++x) {
      const double gap = distance({double(x), double(y)}, from, to) - radius;
      double& dot = canvas[static_cast<std::size_t>(y) * kSide + static_cast<std::size_t>(x)];
      dot = std::max(dot, ink * std::clamp(0.5 - gap, 0.0, 1.0));
    }
  }
}

void draw_digit(std::size_t digit, Rng& rng, std::uint8_t* pixels) {
  Canvas canvas{};
  const Affine to_pixels = random_affine(rng);
  const double radius = rng.uniform(0.7, 1.5);
  const double ink = rng.uniform(0.7, 1.0);
  for (const Stroke& stroke : glyphs()[digit]) {
    Point previous{};
    for (std::size_t i = 0; i < stroke.size(); ++i) {
      const double wobble_x = rng.uniform(-0.09, 0.09);
      const double wobble_y = rng.uniform(-0.09, 0.09);
      const Point next = to_pixels({stroke[i].x + wobble_x, stroke[i].y + wobble_y});
      if (i > 0) draw_line(canvas, previous, next, radius, ink);
      previous = next;
    }
  }
  if (rng.below(3) == 0) {
    const Point at{rng.uniform(3, 25), rng.uniform(3, 25)};
    draw_line(canvas, at, {at.x + rng.uniform(-4, 4), at.y + rng.uniform(-4, 4)}, 0.6, 0.8);
  }
  for (std::size_t i = 0; i < canvas.size(); ++i) {
    const double noise = rng.uniform(-0.12, 0.12) + rng.uniform(-0.12, 0.12);
    pixels[i] = static_cast<std::uint8_t>(std::clamp(canvas[i] + noise, 0.0, 1.0) * 255.0 + 0.5);
  }
}

}  // namespace

Dataset generate_digits(std::size_t count, std::uint64_t seed) {
  Dataset dataset;
  dataset.source = fmt::format("generated digits (seed {})", seed);
  dataset.rows = kSide;
  dataset.columns = kSide;
  dataset.classes = kClasses;
  dataset.pixels.resize(count * kSide * kSide);
  dataset.labels.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    Rng rng(seed, kFirstDigitStream + i);
    dataset.labels[i] = static_cast<std::uint16_t>(i % kClasses);
    draw_digit(dataset.labels[i], rng, dataset.pixels.data() + i * kSide * kSide);
  }
  return dataset;
}

}  // namespace clustar::bench::trainer
