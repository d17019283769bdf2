// Changes: given out in key order as memcmp has it, the last one of a key only, in memory that goes by keys.
#include "rocksdb/changes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "holdfast/status.h"

namespace holdfast::rocks {
namespace {

using Expected = std::map<std::string, std::pair<std::string, bool>>;

// What Drain gives, which must come in ascending order.
Expected Drain(Changes* changes) {
  Expected drained;
  std::string last;
  const Status status = changes->Drain([&](const Change& change) -> Status {
    EXPECT_TRUE(drained.empty() || Slice(last) < change.key) << "out of order";
    last = change.key;
    drained[last] = {std::string(change.value), change.deleted};
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok());
  return drained;
}

Status AddOne(Slice key, Slice value, bool deleted, Changes* changes) {
  const Change change{key, value, deleted};
  return changes->Add({&change, 1});
}

void AddBoth(const std::string& key, const std::string& value, bool deleted, Changes* changes, Expected* expected) {
  EXPECT_TRUE(AddOne(key, value, deleted, changes).ok());
  (*expected)[key] = {value, deleted};
}

TEST(Changes, NoChangesVisitNothing) {
  Changes changes;
  EXPECT_TRUE(changes.empty());
  EXPECT_TRUE(Drain(&changes).empty());
}

TEST(Changes, KeysOfAllLengthsThatShareBeginnings) {
  std::mt19937 random(7);
  for (const size_t bound : {2U, 9U, 17U, 64U}) {
    Changes changes;
    Expected expected;
    for (int i = 0; i < 5000; ++i) {
      std::string key(1 + random() % bound, '\0');  // zeros, as the padding of a short key is
      for (char& byte : key) byte = static_cast<char>(random() % 8 == 0 ? random() % 256 : 0);
      AddBoth(key, std::to_string(i), random() % 4 == 0, &changes, &expected);
    }
    EXPECT_EQ(Drain(&changes), expected);
  }
}

TEST(Changes, StoreKeys) {
  std::mt19937_64 random(8);
  Changes changes;
  Expected expected;
  for (int i = 0; i < 50000; ++i) {
    std::string key = {0, static_cast<char>(random() % 4), 0, 1, '\x80', 0, 0, 0};
    const uint64_t number = random() % 20000;
    for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(number >> shift));
    AddBoth(key, std::to_string(i), false, &changes, &expected);
  }
  EXPECT_EQ(Drain(&changes), expected);
}

TEST(Changes, SoManyThatTheyAreSplitByTheirKeyGroups) {
  std::mt19937_64 random(9);
  Changes changes;
  Expected expected;
  for (int i = 0; i < 200000; ++i) {
    const uint64_t number = random() % 30000;
    std::string key = {static_cast<char>(number % 16 * 16), static_cast<char>(number % 7), 0, 1};
    if (number % 100 == 0) key.resize(1 + number % 3);
    const size_t length = number % 3 * 10;  // keys that end within the sorted words, and beyond them
    key.append(length, 'k');
    key += std::to_string(number);
    AddBoth(key, std::to_string(i), random() % 4 == 0, &changes, &expected);
  }
  EXPECT_EQ(Drain(&changes), expected);
}

// In order to some point, where a key comes again, or one that belongs before the last, in the middle of what is added
// at once.
TEST(Changes, KeysThatComeInOrderForSomeTime) {
  for (const size_t ordered : {0U, 1U, 63U, 64U, 1000U, 70000U}) {
    for (const bool again : {false, true}) {
      Changes changes;
      Expected expected;
      std::vector<std::string> keys;
      for (size_t i = 0; i < ordered; ++i) keys.push_back("k" + std::to_string(1000000 + i * 2));
      const size_t place = ordered / 2;
      const std::string later = "k" + std::to_string(1000000 + place * 2 + (again ? 0 : 1));
      for (const std::string& key : {later, std::string("a"), std::string("z"), later}) keys.push_back(key);
      std::vector<Change> many;
      std::vector<std::string> values;
      for (size_t i = 0; i < keys.size(); ++i) values.push_back(std::string(i % 5, 'v') + std::to_string(i));
      for (size_t i = 0; i < keys.size(); ++i) {
        many.push_back({keys[i], values[i], i % 7 == 0});
        expected[keys[i]] = {values[i], i % 7 == 0};
      }
      ASSERT_TRUE(changes.Add(std::span<const Change>(many).first(place)).ok());
      ASSERT_TRUE(changes.Add(std::span<const Change>(many).subspan(place)).ok());
      EXPECT_EQ(Drain(&changes), expected);
      EXPECT_TRUE(changes.empty());
    }
  }
}

TEST(Changes, KeysInOrderTakeNoTable) {
  Changes ordered, others;
  for (int i = 0; i < 50000; ++i) {
    ASSERT_TRUE(AddOne("k" + std::to_string(1000000 + i), "value", false, &ordered).ok());
    ASSERT_TRUE(AddOne("k" + std::to_string(1000000 + i * 7919 % 50000), "value", false, &others).ok());
  }
  EXPECT_LT(ordered.memory_bytes() + (size_t{1} << 19), others.memory_bytes());
  EXPECT_EQ(Drain(&ordered).size(), Drain(&others).size());
}

TEST(Changes, LongKeysThatDifferAtTheEnd) {
  Changes changes;
  Expected expected;
  for (int i = 0; i < 100; ++i) {
    AddBoth(std::string(100000, 'k') + std::to_string(i * 37 % 100), std::string(60000, 'v'), false, &changes,
            &expected);
  }
  EXPECT_EQ(Drain(&changes), expected);
}

TEST(Changes, ManyAtOnceWithTheSameKeysAmongThem) {
  std::mt19937_64 random(10);
  Changes changes;
  Expected expected;
  std::vector<std::string> keys, values;
  for (int i = 0; i < 1000; ++i) {
    keys.push_back(std::to_string(random() % 40));
    values.push_back(std::to_string(i));
  }
  std::vector<Change> many;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool deleted = random() % 4 == 0;
    many.push_back({keys[i], values[i], deleted});
    expected[keys[i]] = {values[i], deleted};
  }
  ASSERT_TRUE(changes.Add(many).ok());
  EXPECT_EQ(Drain(&changes), expected);
  EXPECT_TRUE(changes.empty());
}

TEST(Changes, ValuesThatGrowAndShrink) {
  std::mt19937_64 random(11);
  Changes changes;
  Expected expected;
  for (int i = 0; i < 20000; ++i) {
    const auto size = static_cast<size_t>(random() % (random() % 10 == 0 ? 3000 : 20));
    AddBoth(std::to_string(random() % 50), std::string(size, static_cast<char>('a' + i % 26)), random() % 10 == 0,
            &changes, &expected);
  }
  EXPECT_LT(changes.memory_bytes(), 1U << 20) << "values of 20 MB in all went through";
  EXPECT_EQ(Drain(&changes), expected);
}

TEST(Changes, WhatCannotBeAKeyOrAValueIsRefusedAndNothingIsAdded) {
  const size_t too_large = (size_t{1} << 31) + 1;
  const std::string bytes = "bytes";
  const Change cases[] = {
      {"", "value", false}, {{bytes.data(), too_large}, "", false}, {"key", {bytes.data(), too_large}, false}};
  for (const Change& wrong : cases) {
    Changes changes;
    const Change both[] = {{"a", "1", false}, wrong};
    EXPECT_EQ(changes.Add(both).code(), Code::kInvalidRequest);
    EXPECT_TRUE(changes.empty());
  }
}

TEST(Changes, AVisitorsErrorStopsTheVisit) {
  Changes changes;
  for (const char* key : {"a", "b", "c"}) EXPECT_TRUE(AddOne(key, "", false, &changes).ok());
  int visited = 0;
  const Status status = changes.Drain([&](const Change& change) -> Status {
    ++visited;
    return change.key == "b" ? Status::Unavailable("disk full") : Status::Ok();
  });
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(visited, 2);
}

}  // namespace
}  // namespace holdfast::rocks
