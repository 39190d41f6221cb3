#include "tests/gpu/lossy_replica.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "bench/trainer/digest.h"

namespace clustar::nccl_check {
namespace {

// Half a step of the rounded gradient never oversteps the target, and shrinks p - t by a quarter to a half.
constexpr float kRate = 0.5f;
constexpr float kSmallestUnit = 0x1p-24f;

// Neighbours differ in magnitude and sign, so that a sum in the wrong place is seldom one in its own.
float target(std::size_t i) {
  const auto magnitude = static_cast<float>((i * 7 + 3) % 2039 + 1);
  return i % 3 == 0 ? -magnitude : magnitude;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// A float that differs from every sum of contributions, NaN among them, is no mask.
bool is_mask(float value, unsigned full) {
  return value >= 0 && value <= static_cast<float>(full) && std::floor(value) == value;
}

nlohmann::json to_json(const StepRecord& record) {
  nlohmann::json out = {{"sums", hex(record.sums_digest)},
                        {"parameters", hex(record.parameters_digest)},
                        {"lacking", record.lacking},
                        {"lacking_elements", record.lacking_elements},
                        {"empty_elements", record.empty_elements},
                        {"unreadable_elements", record.unreadable_elements}};
  if (!record.first_unreadable.empty()) out["first_unreadable"] = record.first_unreadable;
  return out;
}

}  // namespace

LossyReplica::LossyReplica(std::size_t elements, int rank, int size) : rank_(rank), size_(size), parameters_(elements) {
  if (rank < 0 || rank >= size || size > kMostRanks) {
    throw std::invalid_argument("training steps need 0 <= rank < size <= " + std::to_string(kMostRanks));
  }
}

float LossyReplica::unit(std::size_t i) const {
  const float distance = parameters_[i] - target(i);
  if (!(std::fabs(distance) >= kSmallestUnit)) return kSmallestUnit;
  int exponent = 0;
  const float mantissa = std::frexp(distance, &exponent);
  return std::copysign(std::ldexp(1.0f, exponent - 1), mantissa);
}

void LossyReplica::gradient(std::span<float> out) const {
  const auto contribution = static_cast<float>(1u << rank_);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = unit(i) * contribution;
}

StepRecord LossyReplica::apply(std::span<const float> sums) {
  StepRecord record;
  record.lacking.resize(static_cast<std::size_t>(size_));
  record.sums_digest = bench::trainer::digest(std::as_bytes(sums));
  const unsigned full = (1u << size_) - 1;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float mask = sums[i] / unit(i);
    if (!is_mask(mask, full)) {
      if (record.unreadable_elements++ == 0) {
        char text[96];
        std::snprintf(text, sizeof text, "element %zu is %a, no sum of contributions 2^rank * %a", i, double{sums[i]},
                      double{unit(i)});
        record.first_unreadable = text;
      }
    } else if (const unsigned absent = full & ~static_cast<unsigned>(mask); absent != 0) {
      ++record.lacking_elements;
      if (absent == full) ++record.empty_elements;
      for (std::size_t r = 0; r < record.lacking.size(); ++r) record.lacking[r] += absent >> r & 1u;
    }
    parameters_[i] -= kRate * (sums[i] / static_cast<float>(full));
  }
  record.parameters_digest = bench::trainer::digest(std::as_bytes(std::span<const float>(parameters_)));
  return record;
}

double LossyReplica::distance() const {
  double sum = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const double difference = double{parameters_[i]} - double{target(i)};
    sum += difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(parameters_.size()));
}

nlohmann::json train(LossyReplica& replica, int steps, const SumGradients& sum_gradients) {
  std::vector<float> gradient(replica.elements());
  std::vector<float> sums(replica.elements());
  nlohmann::json records = nlohmann::json::array();
  const double before = replica.distance();
  for (int step = 0; step < steps; ++step) {
    replica.gradient(gradient);
    std::fill(sums.begin(), sums.end(), std::nanf(""));
    sum_gradients(gradient, sums);
    records.push_back(to_json(replica.apply(sums)));
  }
  return {{"steps", std::move(records)}, {"distance", {before, replica.distance()}}};
}

nlohmann::json training_row(const nlohmann::json& training, std::size_t bytes, int size) {
  std::uint64_t wrong = 0;
  nlohmann::json row = {
      {"collective", "all_reduce"}, {"type", "float32"}, {"bytes", bytes},
      {"communicator", "world"},    {"ranks", size},     {"iterations", training.at("steps").size() - 1},
      {"training", training}};
  for (const auto& step : training.at("steps")) {
    wrong += step.at("unreadable_elements").get<std::uint64_t>();
    if (step.contains("first_unreadable") && !row.contains("first_wrong"))
      row["first_wrong"] = step["first_unreadable"];
  }
  row["wrong_elements"] = wrong;
  row["correct"] = wrong == 0;
  return row;
}

}  // namespace clustar::nccl_check
