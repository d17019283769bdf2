// The accumulators of aggregating states as stored rows. Format: docs/formats/value.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace holdfast {

// int64
struct CountAccumulator {
  static constexpr size_t kRowBytes = 8;
  using Output = int64_t;
  int64_t count = 0;

  void Add(double /*value*/) { ++count; }
  bool HasOutput() const { return true; }
  Output Result() const { return count; }
  bool Load(const char* row) {
    std::memcpy(&count, row, sizeof(count));
    return true;
  }
  void Save(char* row) const { std::memcpy(row, &count, sizeof(count)); }
};

// struct<sum: double not null, count: int64 not null>: a null bitmap of one byte comes first
struct MeanAccumulator {
  static constexpr size_t kRowBytes = 1 + 8 + 8;
  using Output = double;
  double sum = 0;
  int64_t count = 0;

  void Add(double value) {
    sum += value;
    ++count;
  }
  bool HasOutput() const { return count > 0; }
  Output Result() const { return sum / static_cast<double>(count); }
  bool Load(const char* row) {
    std::memcpy(&sum, row + 1, sizeof(sum));
    std::memcpy(&count, row + 9, sizeof(count));
    return row[0] == 0;
  }
  void Save(char* row) const {
    row[0] = 0;
    std::memcpy(row + 1, &sum, sizeof(sum));
    std::memcpy(row + 9, &count, sizeof(count));
  }
};

// struct<count: int64 not null, mean: double not null, m2: double not null>, by Welford's algorithm (Technometrics 4,
// 1962)
struct VarianceAccumulator {
  static constexpr size_t kRowBytes = 1 + 8 + 8 + 8;
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
  bool Load(const char* row) {
    std::memcpy(&count, row + 1, sizeof(count));
    std::memcpy(&mean, row + 9, sizeof(mean));
    std::memcpy(&m2, row + 17, sizeof(m2));
    return row[0] == 0;
  }
  void Save(char* row) const {
    row[0] = 0;
    std::memcpy(row + 1, &count, sizeof(count));
    std::memcpy(row + 9, &mean, sizeof(mean));
    std::memcpy(row + 17, &m2, sizeof(m2));
  }
};

struct DeviationAccumulator : VarianceAccumulator {
  Output Result() const { return std::sqrt(VarianceAccumulator::Result()); }
};

}  // namespace holdfast
