// Random operations against an oracle of standard containers: values, sums, lists and maps; through commits, deltas
// taken and spilled in the middle of batches, bases that move on, evictions, aborts, restores and followers.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

struct Oracle {
  std::map<int64_t, std::string> values;
  std::map<int64_t, int64_t> sums;
  std::map<int64_t, StringList> lists;
  std::map<int64_t, std::map<std::string, std::optional<int64_t>>> maps;
  std::set<Timer> timers;
};

// A Store with its states declared.
struct Opened {
  explicit Opened(bool complete) : store(MakeStore(complete, /*delta_bytes_max=*/500)) {
    values = Value(store->ValueState(0, String()));
    sums = Value(store->ReducingState(1, Int64(), "sum"));
    lists = Value(store->ListState(2, String()));
    maps = Value(store->MapState(3, String(), Int64()));
    timers = Value(store->Timers(0x8000));
  }
  std::unique_ptr<Store> store;
  ValueTable* values;
  FoldTable* sums;
  ListTable* lists;
  MapTable* maps;
  TimerTable* timers;
};

// One committed version: what the state is, and the pieces of the delta that led to it.
struct Version {
  Oracle oracle;
  Entries entries;
  std::vector<OwnedArray> delta;
};

class Model {
 public:
  Model(uint64_t seed, bool complete) : random_(seed), complete_(complete), live_(complete) {
    versions_.emplace_back();
  }

  void Run(int batches) {
    for (int i = 0; i < batches && !::testing::Test::HasFailure(); ++i) {
      Batch();
      switch (Pick(6)) {
        case 0:
          MoveBase();
          break;
        case 1:
          ExpectOk(live_.store->EvictClean());
          break;
        case 2:
          Restore();
          break;
        case 3:
          MoveBase();
          ExpectOk(live_.store->EvictClean());
          break;
        default:
          break;
      }
      CheckAll(live_);
    }
  }

 private:
  int64_t Pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  std::vector<int64_t> PickKeys() {
    std::vector<int64_t> keys(static_cast<size_t>(Pick(Pick(10) == 0 ? 600 : 12)));
    for (int64_t& key : keys) key = Pick(40);
    return keys;
  }
  std::optional<std::string> PickText(int64_t null_every) {
    if (Pick(null_every) == 0) return std::nullopt;
    return std::string(static_cast<size_t>(Pick(Pick(8) == 0 ? 300 : 20)), static_cast<char>('a' + Pick(26)));
  }
  std::vector<std::optional<std::string>> PickMapKeys(size_t count) {
    std::vector<std::optional<std::string>> map_keys;
    for (size_t i = 0; i < count; ++i) map_keys.emplace_back(std::string(static_cast<size_t>(Pick(4)), 'k'));
    return map_keys;
  }
  int64_t sequence() const { return static_cast<int64_t>(versions_.size()) - 1; }

  void Batch() {
    const int64_t batch = sequence() + 1;
    ExpectOk(live_.store->Begin(batch));
    Version next{versions_.back().oracle, versions_.back().entries, {}};
    bool spilled = false;
    for (int64_t i = Pick(12); i >= 0; --i) {
      Operate(&next.oracle);
      if (Pick(8) == 0) TakeDelta(&next, /*pieces_max=*/Pick(3));
      if (Pick(8) == 0) ExpectOk(live_.store->EvictClean());
      if (!complete_ && Pick(12) == 0) {
        TakeDelta(&next);
        ExpectOk(live_.store->Reset());
        ExpectOk(live_.store->SetBase(std::make_shared<MapBase>(next.entries), batch));
        base_sequence_ = batch;
        spilled = true;
      }
    }
    if (Pick(10) == 0) {  // abort
      live_ = Open(Pick(sequence() + 1));
      return;
    }
    TakeDelta(&next);
    ExpectOk(live_.store->Commit());
    versions_.push_back(std::move(next));
    if (spilled) return;
    if (follower_ != nullptr && Pick(3) != 0) Follow();
  }

  // What is left after that many pieces waits for the next time.
  void TakeDelta(Version* version, int64_t pieces_max = INT64_MAX) {
    do {
      version->delta.push_back(Value(live_.store->TakeDelta()));
      FoldInto(version->delta.back(), &version->entries);
    } while (--pieces_max > 0 && live_.store->dirty_bytes() > 0);
  }

  void Operate(Oracle* oracle) {
    const std::vector<int64_t> keys = PickKeys();
    const OwnedArray array = Keys(keys);
    switch (Pick(5)) {
      case 4:
        return OperateTimers(keys, array, oracle);
      case 0:
        return OperateValues(keys, array, oracle);
      case 1:
        return OperateSums(keys, array, oracle);
      case 2:
        return OperateLists(keys, array, oracle);
      default:
        return OperateMaps(keys, array, oracle);
    }
  }

  void OperateValues(const std::vector<int64_t>& keys, const OwnedArray& array, Oracle* oracle) {
    if (Pick(5) == 0) {
      ExpectOk(live_.values->Clear(array));
      for (const int64_t key : keys) oracle->values.erase(key);
      return;
    }
    if (Pick(2) == 0) return CheckValues(live_, keys, *oracle);
    StringList values;
    for (const int64_t key : keys) {
      values.push_back(PickText(4));
      if (values.back().has_value()) {
        oracle->values[key] = *values.back();
      } else {
        oracle->values.erase(key);
      }
    }
    ExpectOk(live_.values->Put(array, Strings(values)));
  }

  void OperateSums(const std::vector<int64_t>& keys, const OwnedArray& array, Oracle* oracle) {
    if (Pick(5) == 0) {
      ExpectOk(live_.sums->Clear(array));
      for (const int64_t key : keys) oracle->sums.erase(key);
      return;
    }
    std::vector<std::optional<int64_t>> values;
    std::vector<std::optional<int64_t>> expected;
    for (const int64_t key : keys) {
      values.push_back(Pick(5) == 0 ? std::nullopt : std::optional<int64_t>(Pick(1000)));
      if (values.back().has_value()) oracle->sums[key] += *values.back();
      const auto found = oracle->sums.find(key);
      expected.push_back(found == oracle->sums.end() ? std::nullopt : std::optional<int64_t>(found->second));
    }
    if (Pick(2) == 0) {
      ExpectOk(live_.sums->AddOnly(array, Ints(values)));
    } else {
      EXPECT_EQ(IntsOf(live_.sums->Add(array, Ints(values))), expected);
    }
  }

  void OperateLists(const std::vector<int64_t>& keys, const OwnedArray& array, Oracle* oracle) {
    if (Pick(4) == 0) {
      ExpectOk(live_.lists->Clear(array));
      for (const int64_t key : keys) oracle->lists.erase(key);
      return;
    }
    if (Pick(2) == 0) return CheckLists(live_, keys, *oracle);
    StringList values;
    for (const int64_t key : keys) {
      values.push_back(PickText(6));
      oracle->lists[key].push_back(values.back());
    }
    ExpectOk(live_.lists->Append(array, Strings(values)));
  }

  void OperateMaps(const std::vector<int64_t>& keys, const OwnedArray& array, Oracle* oracle) {
    const auto map_keys = PickMapKeys(keys.size());
    switch (Pick(6)) {
      case 0:
        ExpectOk(live_.maps->Clear(array));
        for (const int64_t key : keys) oracle->maps.erase(key);
        return;
      case 1:
        ExpectOk(live_.maps->Remove(array, Strings(map_keys)));
        for (size_t i = 0; i < keys.size(); ++i) oracle->maps[keys[i]].erase(*map_keys[i]);
        return;
      case 2:
        return CheckMaps(live_, keys, *oracle);
      case 3:
        return CheckMapPoints(keys, map_keys, *oracle);
      default:
        break;
    }
    std::vector<std::optional<int64_t>> values;
    for (size_t i = 0; i < keys.size(); ++i) {
      values.push_back(Pick(6) == 0 ? std::nullopt : std::optional<int64_t>(Pick(1000)));
      oracle->maps[keys[i]][*map_keys[i]] = values.back();
    }
    ExpectOk(live_.maps->Put(array, Strings(map_keys), Ints(values)));
  }

  void OperateTimers(const std::vector<int64_t>& keys, const OwnedArray& array, Oracle* oracle) {
    if (Pick(3) == 0) return TakeDue(Pick(60) - 5, 1 + Pick(Pick(2) == 0 ? 4 : 100), oracle);
    if (Pick(4) == 0) return CheckTimers(live_, keys, *oracle);
    std::vector<std::optional<int64_t>> times;
    std::vector<std::optional<std::string>> names;
    for (size_t i = 0; i < keys.size(); ++i) {
      times.emplace_back(Pick(20) == 0 ? std::numeric_limits<int64_t>::max() - Pick(2) : Pick(50) - 5);
      names.emplace_back(std::string(static_cast<size_t>(Pick(3)), 'n'));
    }
    const bool registers = Pick(3) != 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (registers) {
        oracle->timers.emplace(*times[i], keys[i], *names[i]);
      } else {
        oracle->timers.erase({*times[i], keys[i], *names[i]});
      }
    }
    ExpectOk(registers ? live_.timers->Register(array, Ints(times), Strings(names))
                       : live_.timers->Delete(array, Ints(times), Strings(names)));
  }

  void TakeDue(int64_t until, int64_t limit, Oracle* oracle) {
    if (Pick(20) == 0) until = std::numeric_limits<int64_t>::max();
    std::vector<Timer> expected;
    while (!oracle->timers.empty() && static_cast<int64_t>(expected.size()) < limit) {
      if (std::get<0>(*oracle->timers.begin()) > until) break;
      expected.push_back(*oracle->timers.begin());
      oracle->timers.erase(oracle->timers.begin());
    }
    EXPECT_EQ(TimersOf(live_.timers->TakeDue(until, limit)), expected);
    if (Pick(2) == 0) CheckNextDue(live_, *oracle);
  }

  static void CheckNextDue(const Opened& opened, const Oracle& oracle) {
    std::optional<int64_t> expected;
    if (!oracle.timers.empty()) expected = std::get<0>(*oracle.timers.begin());
    EXPECT_EQ(Value(opened.timers->NextDue()), expected);
  }

  static void CheckTimers(const Opened& opened, const std::vector<int64_t>& keys, const Oracle& oracle) {
    std::vector<std::vector<Timer>> expected;
    for (const int64_t key : keys) {
      expected.emplace_back();
      for (const Timer& timer : oracle.timers) {
        if (std::get<1>(timer) == key) expected.back().push_back(timer);
      }
    }
    EXPECT_EQ(TimersByKey(opened.timers->List(Keys(keys)), keys), expected);
    CheckNextDue(opened, oracle);
  }

  static void CheckValues(const Opened& opened, const std::vector<int64_t>& keys, const Oracle& oracle) {
    StringList expected;
    std::vector<bool> present;
    for (const int64_t key : keys) {
      const auto found = oracle.values.find(key);
      present.push_back(found != oracle.values.end());
      expected.push_back(present.back() ? std::optional<std::string>(found->second) : std::nullopt);
    }
    EXPECT_EQ(BoolsOf(opened.values->Contains(Keys(keys))), present);
    EXPECT_EQ(StringsOf(opened.values->Get(Keys(keys))), expected);
  }

  static void CheckSums(const Opened& opened, const std::vector<int64_t>& keys, const Oracle& oracle) {
    std::vector<std::optional<int64_t>> expected;
    for (const int64_t key : keys) {
      const auto found = oracle.sums.find(key);
      expected.push_back(found == oracle.sums.end() ? std::nullopt : std::optional<int64_t>(found->second));
    }
    EXPECT_EQ(IntsOf(opened.sums->Get(Keys(keys))), expected);
  }

  static void CheckLists(const Opened& opened, const std::vector<int64_t>& keys, const Oracle& oracle) {
    std::vector<StringList> expected;
    for (const int64_t key : keys) {
      const auto found = oracle.lists.find(key);
      expected.push_back(found == oracle.lists.end() ? StringList() : found->second);
    }
    EXPECT_EQ(ListsOf(opened.lists->Get(Keys(keys))), expected);
  }

  static void CheckMaps(const Opened& opened, const std::vector<int64_t>& keys, const Oracle& oracle) {
    std::vector<StringMap> expected;
    std::vector<std::optional<int64_t>> counts;
    for (const int64_t key : keys) {
      const auto found = oracle.maps.find(key);
      StringMap map;
      if (found != oracle.maps.end()) map.assign(found->second.begin(), found->second.end());
      counts.push_back(static_cast<int64_t>(map.size()));
      expected.push_back(std::move(map));
    }
    EXPECT_EQ(IntsOf(opened.maps->Count(Keys(keys))), counts);
    EXPECT_EQ(MapsOf(opened.maps->Entries(Keys(keys))), expected);
  }

  void CheckMapPoints(const std::vector<int64_t>& keys, const std::vector<std::optional<std::string>>& map_keys,
                      const Oracle& oracle) {
    std::vector<std::optional<int64_t>> expected;
    std::vector<bool> present;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto map = oracle.maps.find(keys[i]);
      present.push_back(map != oracle.maps.end() && map->second.contains(*map_keys[i]));
      expected.push_back(present.back() ? map->second.at(*map_keys[i]) : std::nullopt);
    }
    EXPECT_EQ(BoolsOf(live_.maps->Contains(Keys(keys), Strings(map_keys))), present);
    EXPECT_EQ(IntsOf(live_.maps->Get(Keys(keys), Strings(map_keys))), expected);
  }

  void CheckAll(const Opened& opened) const {
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 41; ++key) keys.push_back(key);
    const Oracle& oracle = versions_.back().oracle;
    CheckValues(opened, keys, oracle);
    CheckSums(opened, keys, oracle);
    CheckLists(opened, keys, oracle);
    CheckMaps(opened, keys, oracle);
    CheckTimers(opened, keys, oracle);
  }

  // A Store at the last version: a base of version `base_sequence`, and the deltas since.
  Opened Open(int64_t base_sequence) {
    Opened opened(complete_);
    const auto base = std::make_shared<MapBase>(versions_[static_cast<size_t>(base_sequence)].entries);
    ExpectOk(opened.store->SetBase(base, base_sequence));
    if (complete_) ExpectOk(opened.store->Load(base));
    for (int64_t i = base_sequence + 1; i <= sequence(); ++i) Apply(&opened, i);
    base_sequence_ = base_sequence;
    return opened;
  }

  void Apply(Opened* opened, int64_t sequence) {
    for (const OwnedArray& piece : versions_[static_cast<size_t>(sequence)].delta) {
      ExpectOk(opened->store->ApplyDelta(piece, sequence));
    }
    EXPECT_EQ(opened->store->sequence(), sequence);
  }

  void MoveBase() {
    base_sequence_ += Pick(sequence() - base_sequence_ + 1);
    const Entries& entries = versions_[static_cast<size_t>(base_sequence_)].entries;
    ExpectOk(live_.store->SetBase(complete_ ? nullptr : std::make_shared<MapBase>(entries), base_sequence_));
    if (base_sequence_ == sequence()) {
      EXPECT_EQ(live_.store->pending_bytes(), 0);
    }
  }

  void Restore() {
    const int64_t base_sequence = Pick(sequence() + 1);
    live_ = Open(base_sequence);
    const int64_t kept = base_sequence_;
    follower_ = std::make_unique<Opened>(Open(base_sequence));
    base_sequence_ = kept;
    CheckAll(*follower_);
  }

  // The other worker's Store catches up.
  void Follow() {
    for (int64_t i = follower_->store->sequence() + 1; i <= sequence(); ++i) Apply(follower_.get(), i);
    CheckAll(*follower_);
  }

  std::mt19937_64 random_;
  bool complete_;
  Opened live_;
  std::unique_ptr<Opened> follower_;
  int64_t base_sequence_ = 0;
  std::vector<Version> versions_;
};

class StoreModel : public ::testing::TestWithParam<bool> {};

TEST_P(StoreModel, RandomOperations) {
  for (uint64_t seed = 0; seed < 30 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model(seed, GetParam()).Run(20);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StoreModel, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "hashmap" : "rocksdb"; });

}  // namespace
}  // namespace holdfast::testing
