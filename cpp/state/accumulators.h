// The accumulators of aggregating states as stored rows. Format: docs/formats/value.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "codec/value_header.h"

namespace holdfast {

// int64
struct CountAccumulator {
  static constexpr size_t kStoredBytes = 1 + 8;
  using Output = int64_t;
  int64_t count = 0;

  void Add(double /*value*/) { ++count; }
  bool HasOutput() const { return true; }
  Output Result() const { return count; }
  bool Load(const char* stored) {
    std::memcpy(&count, stored + 1, sizeof(count));
    return true;
  }
  void Save(char* stored) const {
    stored[0] = value_header::kRow;
    std::memcpy(stored + 1, &count, sizeof(count));
  }
};

// struct<sum: double not null, count: int64 not null>: a null bitmap of one byte comes first
struct MeanAccumulator {
  static constexpr size_t kStoredBytes = 1 + 1 + 8 + 8;
  using Output = double;
  double sum = 0;
  int64_t count = 0;

  void Add(double value) {
    sum += value;
    ++count;
  }
  bool HasOutput() const { return count > 0; }
  Output Result() const { return sum / static_cast<double>(count); }
  bool Load(const char* stored) {
    std::memcpy(&sum, stored + 2, sizeof(sum));
    std::memcpy(&count, stored + 10, sizeof(count));
    return stored[1] == 0;
  }
  void Save(char* stored) const {
    stored[0] = value_header::kRow;
    stored[1] = 0;
    std::memcpy(stored + 2, &sum, sizeof(sum));
    std::memcpy(stored + 10, &count, sizeof(count));
  }
};

// struct<count: int64 not null, mean: double not null, m2: double not null>, by Welford's algorithm (Technometrics 4,
// 1962)
struct VarianceAccumulator {
  static constexpr size_t kStoredBytes = 1 + 1 + 8 + 8 + 8;
  using Output = double;
  int64_t count = 0;
  double mean = 0;
  double m2 = 0;  // sum of squared distances from the mean

  void Add(double value) {
    ++count;
    const double before = value - mean;
    mean += before / static_cast<double>(count);
    m2 += before * (value - mean);
  }
  bool HasOutput() const { return count > 1; }
  Output Result() const { return m2 / static_cast<double>(count - 1); }
  bool Load(const char* stored) {
    std::memcpy(&count, stored + 2, sizeof(count));
    std::memcpy(&mean, stored + 10, sizeof(mean));
    std::memcpy(&m2, stored + 18, sizeof(m2));
    return stored[1] == 0;
  }
  void Save(char* stored) const {
    stored[0] = value_header::kRow;
    stored[1] = 0;
    std::memcpy(stored + 2, &count, sizeof(count));
    std::memcpy(stored + 10, &mean, sizeof(mean));
    std::memcpy(stored + 18, &m2, sizeof(m2));
  }
};

struct DeviationAccumulator : VarianceAccumulator {
  Output Result() const { return std::sqrt(VarianceAccumulator::Result()); }
};

}  // namespace holdfast
