// Whoever chooses the keys of a stream chooses them so that they meet: in XXH64, which anybody can turn around, and
// which no seed helps. Tables must not care.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "codec/index_hash.h"
#include "codec/xxh64.h"
#include "state/arrays.h"
#include "state/listed_timers.h"
#include "state/map_base.h"
#include "state/slot_store.h"

namespace holdfast::testing {
namespace {

constexpr size_t kKeys = 20000;
// Of so many keys, at five eighths of a table's slots, the farthest lies some dozens from its place.
// All in one run: kKeys.
constexpr size_t kProbeMax = 1000;

uint64_t InverseOf(uint64_t odd) {
  uint64_t inverse = odd;
  for (int i = 0; i < 6; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}
// The eight bytes of which XXH64 makes this lane.
uint64_t BytesOfLane(uint64_t lane) {
  using namespace xxh64_detail;
  return std::rotr(lane * InverseOf(kPrime1), 31) * InverseOf(kPrime2);
}

std::string Sixteen(uint64_t first, uint64_t second) {
  std::string bytes(16, 0);
  std::memcpy(bytes.data(), &first, 8);
  std::memcpy(bytes.data() + 8, &second, 8);
  return bytes;
}

// Sixteen bytes each, of one XXH64 under this seed; without zeros, which an encoded string escapes.
std::vector<std::string> Colliding(size_t count, uint64_t seed = 0) {
  using namespace xxh64_detail;
  std::mt19937_64 random(7);
  std::vector<std::string> keys;
  while (keys.size() < count) {
    const uint64_t first = random();
    const uint64_t state = std::rotl((seed + kPrime5 + 16) ^ Round(0, first), 27) * kPrime1 + kPrime4;
    std::string bytes = Sixteen(first, BytesOfLane(state ^ 0x1234567890ABCDEF));
    if (bytes.find('\0') == std::string::npos) keys.push_back(std::move(bytes));
  }
  return keys;
}

std::vector<std::optional<std::string>> Texts(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

std::unique_ptr<Store> StoreOfTexts(bool complete) {
  Type keys = Primitive(TypeId::kStruct, 0);
  keys.children = {Primitive(TypeId::kString, 0, "name")};
  return Value(
      Store::Make(keys, {.max_parallelism = 64, .first_key_group = 0, .end_key_group = 64, .complete = complete}));
}

size_t LongestProbe(Store* store, uint16_t state_id) {
  return static_cast<SlotStore*>(store)->engine()->TableOf(state_id)->LongestProbe();
}

TEST(ChosenKeysOfXxh64, MeetInXxh64UnderAnySeed) {  // so that seeding it would be no remedy
  using namespace xxh64_detail;
  const std::string one = Sixteen(1, 2);
  const std::string other =
      Sixteen(BytesOfLane(Round(0, 1) ^ uint64_t{1} << 36), BytesOfLane(Round(0, 2) ^ uint64_t{1} << 63));
  ASSERT_NE(one, other);
  std::mt19937_64 random(7);
  for (int i = 0; i < 100; ++i) {
    const uint64_t seed = random();
    EXPECT_EQ(Xxh64Inline(one.data(), 16, seed), Xxh64Inline(other.data(), 16, seed));
  }
  EXPECT_NE(IndexHash(one), IndexHash(other));
}

TEST(ChosenKeysOfXxh64, AreWhatTheySay) {
  const auto keys = Colliding(1000);
  std::set<uint64_t> hashes;
  for (const std::string& key : keys) hashes.insert(Xxh64Inline(key.data(), key.size()));
  EXPECT_EQ(hashes.size(), 1U);
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
}

// Sixteen bytes each, of one std::hash as GCC's library has it: MurmurHash64A, whose seed stands in its source.
std::vector<std::string> CollidingInStdHash(size_t count) {
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  const auto mixed = [](uint64_t word) { return word ^ word >> 47; };  // its own inverse
  const auto of_word = [&](uint64_t word) { return mixed(word * kMultiplier) * kMultiplier; };
  const auto word_of = [&](uint64_t hashed) { return mixed(hashed * InverseOf(kMultiplier)) * InverseOf(kMultiplier); };
  const uint64_t begins = 0xc70f6907 ^ 18 * kMultiplier;  // with the two bytes that end an encoded string
  std::mt19937_64 random(7);
  std::vector<std::string> keys;
  while (keys.size() < count) {
    const uint64_t first = random();
    const uint64_t after_first = (begins ^ of_word(first)) * kMultiplier;
    std::string bytes = Sixteen(first, word_of(after_first ^ 0x1234567890ABCDEF));
    if (bytes.find('\0') == std::string::npos) keys.push_back(std::move(bytes));
  }
  return keys;
}

std::string Encoded(const std::string& text) { return text + std::string("\0\1", 2); }

class ChosenKeys : public ::testing::TestWithParam<bool> {};

TEST_P(ChosenKeys, DoNotMakeABatchOfValuesQuadratic) {
  auto store = StoreOfTexts(GetParam());
  FoldTable* sums = Value(store->ReducingState(0, Int64(), "sum"));
  const auto keys = Colliding(kKeys);
  const std::vector<std::optional<int64_t>> ones(kKeys, 1);
  ExpectOk(store->Begin(1));
  ExpectOk(sums->AddOnly(Strings(Texts(keys)), Ints(ones)));
  EXPECT_LT(LongestProbe(store.get(), 0), kProbeMax);
  EXPECT_EQ(IntsOf(sums->Add(Strings({keys[5], keys[19999]}), Ints({1, 1}))),
            (std::vector<std::optional<int64_t>>{2, 2}));
  const OwnedArray delta = Value(store->TakeDelta());
  ExpectOk(store->Commit());
  ExpectOk(store->EvictClean());  // moves what stays, in the order of the old index
  EXPECT_LT(LongestProbe(store.get(), 0), kProbeMax);
  auto follower = StoreOfTexts(GetParam());
  ExpectOk(follower->ApplyDelta(delta, 1));
  EXPECT_LT(LongestProbe(follower.get(), 0), kProbeMax);
}

TEST_P(ChosenKeys, DoNotMakeABatchOfListsQuadratic) {
  auto store = StoreOfTexts(GetParam());
  ListTable* lists = Value(store->ListState(0, String()));
  const auto keys = Strings(Texts(Colliding(kKeys)));
  ExpectOk(store->Begin(1));
  ExpectOk(lists->Append(keys, keys));
  EXPECT_LT(LongestProbe(store.get(), 0), kProbeMax);
}

TEST_P(ChosenKeys, OfOneMapDoNotMakeABatchQuadratic) {
  auto store = StoreOfTexts(GetParam());
  MapTable* maps = Value(store->MapState(0, String(), Int64()));
  const std::string key("the one");
  const std::string encoded = Encoded(key);
  const auto map_keys = Colliding(kKeys, Xxh64Inline(encoded.data(), encoded.size()));
  ExpectOk(store->Begin(1));
  ExpectOk(maps->Put(Strings(std::vector<std::optional<std::string>>(kKeys, key)), Strings(Texts(map_keys)),
                     Ints(std::vector<std::optional<int64_t>>(kKeys, 1))));
  EXPECT_LT(LongestProbe(store.get(), 0), kProbeMax);
  EXPECT_EQ(IntsOf(maps->Count(Strings({key}))), (std::vector<std::optional<int64_t>>{kKeys}));
}

TEST(ChosenKeysOfTimers, DoNotMakeAListQuadratic) {
  const auto keys = CollidingInStdHash(kKeys);
#ifdef __GLIBCXX__
  std::set<size_t> hashes;
  for (const std::string& key : keys) hashes.insert(std::hash<std::string>()(Encoded(key)));
  EXPECT_EQ(hashes.size(), 1U);
#endif
  ListedTimers timers;
  for (const std::string& key : keys) {
    const std::string encoded = Encoded(key);
    timers.Ask(encoded, IndexHash(encoded));
  }
  EXPECT_LT(timers.LongestProbe(), kProbeMax);

  auto store = StoreOfTexts(/*complete=*/false);
  TimerTable* table = Value(store->Timers(0x8000));
  ExpectOk(store->Begin(1));
  const std::vector<std::optional<int64_t>> times(kKeys, 7);
  const std::vector<std::optional<std::string>> names(kKeys, "");
  ExpectOk(table->Register(Strings(Texts(keys)), Ints(times), Strings(names)));
  const OwnedArray listed = Value(table->List(Strings(Texts(keys))));
  EXPECT_EQ(listed.array().children[0]->length, static_cast<int64_t>(kKeys));
}

INSTANTIATE_TEST_SUITE_P(Backends, ChosenKeys, ::testing::Bool(),
                         [](const auto& backend) { return backend.param ? "hashmap" : "rocksdb"; });

}  // namespace
}  // namespace holdfast::testing
