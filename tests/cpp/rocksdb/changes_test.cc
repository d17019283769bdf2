// Sorting changes: key order as memcmp has it, the last change of a key only.
#include "rocksdb/changes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "holdfast/status.h"

namespace holdfast::rocks {
namespace {

using Expected = std::map<std::string, std::pair<std::string, bool>>;

// What ForEachLatest gives, which must come in ascending order.
Expected Drain(Changes* changes) {
  Expected drained;
  std::string last;
  const Status status = changes->ForEachLatest([&](const Change& change) -> Status {
    EXPECT_TRUE(drained.empty() || Slice(last) < change.key) << "out of order";
    last = change.key;
    drained[last] = {std::string(change.value), change.deleted};
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok());
  return drained;
}

void AddBoth(const std::string& key, const std::string& value, bool deleted, Changes* changes, Expected* expected) {
  changes->Add(key, value, deleted);
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
      std::string key(random() % bound, '\0');  // zeros, as the padding of a short key is
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

TEST(Changes, LongKeysThatDifferAtTheEnd) {
  Changes changes;
  Expected expected;
  for (int i = 0; i < 100; ++i) {
    AddBoth(std::string(100000, 'k') + std::to_string(i * 37 % 100), std::string(60000, 'v'), false, &changes,
            &expected);
  }
  EXPECT_EQ(Drain(&changes), expected);
}

TEST(Changes, AVisitorsErrorStopsTheVisit) {
  Changes changes;
  for (const char* key : {"a", "b", "c"}) changes.Add(key, "", false);
  int visited = 0;
  const Status status = changes.ForEachLatest([&](const Change& change) -> Status {
    ++visited;
    return change.key == "b" ? Status::Unavailable("disk full") : Status::Ok();
  });
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(visited, 2);
}

}  // namespace
}  // namespace holdfast::rocks
