// The engine by itself, as a client uses it whose bytes are its own.
#include <gtest/gtest.h>

#include <random>

#include "overlay/ordered_cursor.h"
#include "overlay/slot_engine.h"
#include "state/arrays.h"
#include "state/map_base.h"

namespace holdfast::testing {
namespace {

constexpr uint16_t kUnordered = 7;
constexpr uint16_t kOrdered = 0x8000;

struct Raw {
  explicit Raw(bool complete = false) : engine({{8, 2, 6}, complete, 200, nullptr}) {}

  Status Put(uint16_t state_id, uint16_t key_group, const std::string& key, const std::string& value) {
    Table* const table = engine.TableOf(state_id);
    return engine.Run({"put", table, Access::kWrite}, [&] {
      table->Put(table->Intern(RawKey(key, key_group)), "\x01" + value);
      return Status::Ok();
    });
  }
  Status Remove(uint16_t state_id, uint16_t key_group, const std::string& key) {
    Table* const table = engine.TableOf(state_id);
    return engine.Run({"remove", table, Access::kWrite}, [&] {
      table->Remove(table->Intern(RawKey(key, key_group)));
      return Status::Ok();
    });
  }
  Result<std::string> Get(uint16_t state_id, uint16_t key_group, const std::string& key) {
    Table* const table = engine.TableOf(state_id);
    return engine.Run({"get", table, Access::kRead}, [&]() -> Result<std::string> {
      std::vector<Entry*> entries = {table->Intern(RawKey(key, key_group))};
      Entry* const entry = entries[0];
      if (!entry->known()) {
        HOLDFAST_RETURN_IF_ERROR(ReadEntries(engine.base(), table, &entries, engine.read_counters()));
      }
      return entry->present() ? std::string(entry->value().substr(1)) : std::string("none");
    });
  }
  // "key group, key=value" of all that lies in the range, in order.
  std::vector<std::string> Scan(uint16_t state_id, const ScanRange& range) {
    std::vector<std::string> found;
    Table* const table = engine.TableOf(state_id);
    ExpectOk(engine.Run({"scan", table, Access::kRead}, [&]() -> Status {
      HOLDFAST_ASSIGN_OR_RETURN(OrderedCursor cursor, OrderedCursor::Make(table, engine.base(), range));
      while (cursor.Valid()) {
        found.push_back(std::to_string(cursor.key_group()) + std::string(cursor.key()) + "=" +
                        std::string(cursor.row()));
        HOLDFAST_RETURN_IF_ERROR(cursor.Next());
      }
      return Status::Ok();
    }));
    return found;
  }
  DeltaPiece TakePiece() {
    return Value(engine.Run({"take_delta", nullptr, Access::kVersion}, [&] { return engine.TakeDelta(); }));
  }
  Status Apply(const DeltaPiece& piece, int64_t sequence) {
    return engine.Run({"apply_delta", nullptr, Access::kVersion}, [&] {
      return engine.ApplyEntries(sequence, piece.rows(), [&piece](int64_t i) {
        const auto at = static_cast<size_t>(i);
        return StoredEntry{piece.key_groups[at], piece.states[at], piece.keys[i], piece.values[i], piece.has_value(i)};
      });
    });
  }

  SlotEngine engine;
};

void FoldInto(const DeltaPiece& piece, Entries* entries) {
  for (int64_t i = 0; i < piece.rows(); ++i) {
    const auto at = static_cast<size_t>(i);
    std::string key = store_key::Make(piece.key_groups[at], piece.states[at], piece.keys[i]);
    if (piece.has_value(i)) {
      (*entries)[std::move(key)] = piece.values[i];
    } else {
      entries->erase(key);
    }
  }
}

TEST(Engine, RawKeysAreWhatTheClientSays) {
  Raw raw;
  ExpectError(raw.Put(kUnordered, 3, "k", "v"), Code::kInvalidRequest, "within a batch only");
  Raw next;
  ExpectOk(next.engine.Begin(1));
  ExpectOk(next.Put(kUnordered, 3, "no encoded key at all", "v"));
  ExpectOk(next.Put(kUnordered, 5, "", "of the empty key"));
  const DeltaPiece piece = next.TakePiece();
  ExpectOk(next.engine.Commit());
  Raw follower;
  ExpectOk(follower.Apply(piece, 1));
  EXPECT_EQ(Value(follower.Get(kUnordered, 3, "no encoded key at all")), "v");
  EXPECT_EQ(Value(follower.Get(kUnordered, 5, "")), "of the empty key");
  EXPECT_EQ(Value(follower.Get(kUnordered, 3, "another")), "none");
  Raw other;
  DeltaPiece foreign = piece;
  foreign.key_groups[0] = 6;
  ExpectError(other.Apply(foreign, 1), Code::kCorrupt, "its key group is not of this slot");
  ExpectError(other.engine.Begin(2), Code::kCorrupt, "the batch must be aborted");
}

TEST(Engine, EqualRawKeysOfTwoKeyGroupsAreTwoKeys) {
  for (const uint16_t state_id : {kUnordered, kOrdered}) {
    const std::string key = "8 bytes, or more";
    Raw raw;
    Entries folded;
    ExpectOk(raw.engine.Begin(1));
    ExpectOk(raw.Put(state_id, 3, key, "of 3"));
    ExpectOk(raw.Put(state_id, 5, key, "of 5"));
    EXPECT_EQ(raw.Scan(state_id, {2, 6, {}, {}}), (std::vector<std::string>{"3" + key + "=of 3", "5" + key + "=of 5"}));
    const DeltaPiece first = raw.TakePiece();
    FoldInto(first, &folded);
    ExpectOk(raw.engine.Commit());
    ExpectOk(raw.engine.Begin(2));
    ExpectOk(raw.Remove(state_id, 3, key));
    const DeltaPiece second = raw.TakePiece();
    ExpectOk(raw.engine.Commit());
    EXPECT_EQ(Value(raw.Get(state_id, 3, key)), "none");
    EXPECT_EQ(Value(raw.Get(state_id, 5, key)), "of 5");

    Raw follower;  // once over new entries, then over those that the guess finds
    ExpectOk(follower.Apply(first, 1));
    EXPECT_EQ(Value(follower.Get(state_id, 3, key)), "of 3");
    ExpectOk(follower.Apply(second, 2));
    EXPECT_EQ(Value(follower.Get(state_id, 3, key)), "none");
    EXPECT_EQ(Value(follower.Get(state_id, 5, key)), "of 5");

    Raw reader;
    ExpectOk(reader.engine.SetBase(std::make_shared<MapBase>(folded), 1));
    EXPECT_EQ(Value(reader.Get(state_id, 5, key)), "of 5");
    EXPECT_EQ(Value(reader.Get(state_id, 3, key)), "of 3");
    EXPECT_EQ(Value(reader.Get(state_id, 4, key)), "none");
  }
}

// Thousands of key groups may have the same few keys: a hash of the bytes alone would put them all in one run.
TEST(Engine, EqualRawKeysOfManyKeyGroupsAreSpread) {
  constexpr uint16_t kGroups = 20'000;
  SlotEngine engine({{kGroups, 0, kGroups}, false, 200, nullptr});
  Table* const table = engine.TableOf(kUnordered);
  for (uint16_t group = 0; group < kGroups; ++group) table->Intern(RawKey("the same", group));
  EXPECT_EQ(table->entry_count(), kGroups);
  EXPECT_LT(table->LongestProbe(), 200U);
}

TEST(Engine, AFailedOperationPoisonsTheBatch) {
  Raw raw;
  ExpectOk(raw.engine.Begin(1));
  ExpectOk(raw.Put(kUnordered, 3, "k", "v"));
  Table* const table = raw.engine.TableOf(kUnordered);
  ExpectError(raw.engine.Run({"merge", table, Access::kWrite}, [] { return Status::InvalidRequest("no"); }),
              Code::kInvalidRequest, "no");
  ExpectError(raw.engine.Commit(), Code::kInvalidRequest, "merge() of state 7");
  ExpectError(raw.Get(kUnordered, 3, "k").status(), Code::kInvalidRequest, "the batch must be aborted");
}

// What has expired is in no scan, whoever holds it, and a stamp is no part of a row.
TEST(Engine, ScansLeaveOutWhatExpired) {
  for (const bool complete : {false, true}) {
    Raw raw(complete);
    Entries folded;
    ExpectOk(raw.engine.Begin(1));
    ExpectOk(raw.engine.SetExpiry(kUnordered, {.expiry = {}, .stamps = true, .stamp_ms = 100}));
    ExpectOk(raw.Put(kUnordered, 3, "early", "1"));
    ExpectOk(raw.engine.SetExpiry(kUnordered, {.expiry = {}, .stamps = true, .stamp_ms = 200}));
    ExpectOk(raw.Put(kUnordered, 3, "late", "2"));
    FoldInto(raw.TakePiece(), &folded);
    ExpectOk(raw.engine.Commit());
    const std::vector<std::string> all = {"3early=1", "3late=2"};
    const std::vector<std::string> late = {"3late=2"};
    EXPECT_EQ(raw.Scan(kUnordered, {2, 6, {}, {}}), all);

    Raw over(complete);
    if (complete) ExpectOk(over.engine.Load(std::make_shared<MapBase>(folded)));
    ExpectOk(over.engine.SetBase(std::make_shared<MapBase>(folded), 1));
    EXPECT_EQ(over.Scan(kUnordered, {2, 6, {}, {}}), all);
    for (Raw* const one : {&raw, &over}) {
      ExpectOk(one->engine.SetExpiry(kUnordered, {.expiry = {100, 0}}));  // as of a version that was opened
      EXPECT_EQ(one->Scan(kUnordered, {2, 6, {}, {}}), late);
      ExpectError(one->engine.SetExpiry(kUnordered, {.expiry = {99, 0}}), Code::kInvalidRequest, "cutoff");
    }
  }
}

TEST(Engine, WhatExpiredIsPutAsIfAbsent) {
  Raw raw;
  ExpectOk(raw.engine.Begin(1));
  ExpectOk(raw.engine.SetExpiry(kUnordered, {.expiry = {}, .stamps = true, .stamp_ms = 100}));
  const auto put_if_absent = [&raw] {
    Table* const table = raw.engine.TableOf(kUnordered);
    return Value(raw.engine.Run({"put", table, Access::kWrite}, [&]() -> Result<bool> {
      return table->PutIfAbsent(table->Intern(RawKey("k", 3)), "\x01v");
    }));
  };
  EXPECT_TRUE(put_if_absent());
  EXPECT_FALSE(put_if_absent());
  ExpectOk(raw.engine.SetExpiry(kUnordered, {.expiry = {100, 0}, .stamps = true, .stamp_ms = 101}));
  EXPECT_TRUE(put_if_absent());
  EXPECT_FALSE(put_if_absent());
}

TEST(Engine, TimersHaveNoTimeToLive) {
  Raw raw;
  ExpectOk(raw.engine.Begin(1));
  ExpectError(raw.engine.SetExpiry(kOrdered, {.expiry = {1, 0}}), Code::kInvalidRequest, "timers have no time to live");
}

// Random changes of tables that keep an order and that do not, against a map: scans of ranges, through deltas, bases,
// spills and evictions.
class ScanModel {
 public:
  ScanModel(uint64_t seed, bool complete) : random_(seed), complete_(complete), raw_(complete) {}

  void Run() {
    for (int64_t sequence = 1; sequence <= 25 && !::testing::Test::HasFailure(); ++sequence) {
      ExpectOk(raw_.engine.Begin(sequence));
      for (int64_t i = Pick(40); i >= 0; --i) Operate();
      TakeAll();
      if (!complete_ && Pick(4) == 0) {  // a spill
        ExpectOk(raw_.engine.Reset());
        ExpectOk(raw_.engine.SetBase(std::make_shared<MapBase>(entries_), sequence));
        for (int64_t i = Pick(10); i >= 0; --i) Operate();
        TakeAll();
      }
      ExpectOk(raw_.engine.Commit());
      if (!complete_ && Pick(3) == 0) ExpectOk(raw_.engine.SetBase(std::make_shared<MapBase>(entries_), sequence));
      if (Pick(3) == 0) ExpectOk(raw_.engine.EvictClean());
      Check();
    }
  }

 private:
  int64_t Pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  // Eight bytes that order them, as an ordered state has, and more that are often a beginning of each other.
  std::string PickKey() {
    std::string key(8, static_cast<char>(Pick(3) - 1));
    key[7] = static_cast<char>(Pick(20));
    return key + std::string(static_cast<size_t>(Pick(9)), static_cast<char>(Pick(2)));
  }
  uint16_t PickState() { return Pick(2) == 0 ? kOrdered : kUnordered; }
  void Operate() {
    const std::string key = PickKey();
    const auto key_group = static_cast<uint16_t>(2 + (static_cast<size_t>(key[7]) + key.size()) % 4);
    const uint16_t state_id = PickState();
    const std::string full = store_key::Make(key_group, state_id, key);
    if (Pick(3) == 0) {
      ExpectOk(raw_.Remove(state_id, key_group, key));
      oracle_.erase(full);
    } else {
      const std::string value = std::to_string(Pick(1000));
      ExpectOk(raw_.Put(state_id, key_group, key, value));
      oracle_[full] = value;
    }
    if (Pick(10) == 0) Check();
  }
  void TakeAll() {
    do {
      FoldInto(raw_.TakePiece(), &entries_);
    } while (raw_.engine.figures().dirty_bytes > 0);
  }
  void Check() {
    const auto first = static_cast<uint16_t>(2 + Pick(4));
    const auto end = static_cast<uint16_t>(first + Pick(3));
    const uint16_t state_id = PickState();
    const std::string lower = Pick(3) == 0 ? std::string() : PickKey();
    const std::string upper = Pick(3) == 0 ? std::string() : PickKey();
    std::vector<std::string> expected;
    for (const auto& [full, value] : oracle_) {
      const std::string key = full.substr(store_key::kPrefixBytes);
      const bool inside = key >= lower && (upper.empty() || key < upper);
      const uint16_t key_group = store_key::KeyGroup(full);
      const bool of_range = store_key::StateId(full) == state_id && key_group >= first && key_group < end;
      if (of_range && inside) expected.push_back(std::to_string(key_group) + key + "=" + value);
    }
    EXPECT_EQ(raw_.Scan(state_id, {first, end, lower, upper}), expected);
  }

  std::mt19937_64 random_;
  bool complete_;
  Raw raw_;
  Entries entries_;  // what a fold of all deltas has
  std::map<std::string, std::string> oracle_;
};

class Scans : public ::testing::TestWithParam<bool> {};

TEST_P(Scans, MergeOverlayAndBase) {
  for (uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ScanModel(seed, GetParam()).Run();
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Scans, ::testing::Bool(),
                         [](const auto& backend) { return backend.param ? "hashmap" : "rocksdb"; });

}  // namespace
}  // namespace holdfast::testing
