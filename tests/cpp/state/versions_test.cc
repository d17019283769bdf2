#include "overlay/versions.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

TEST(Versions, ABatchNeedsASequenceAboveTheStore) {
  Versions versions;
  EXPECT_EQ(versions.Begin(0).code(), Code::kInvalidRequest);
  ASSERT_TRUE(versions.Begin(1).ok());
  EXPECT_EQ(versions.Begin(2).code(), Code::kInvalidRequest) << "a batch is in progress";
  versions.Commit();
  EXPECT_EQ(versions.sequence(), 1);
  EXPECT_EQ(versions.Begin(1).code(), Code::kInvalidRequest);
  EXPECT_EQ(versions.Begin(Versions::kSequenceMax + 1).code(), Code::kInvalidRequest);
}

TEST(Versions, WhatIsAboveTheBaseIsPending) {
  Versions versions;
  std::vector<uint32_t> marks;
  for (int64_t sequence = 1; sequence <= 3; ++sequence) {
    ASSERT_TRUE(versions.Begin(sequence).ok());
    marks.push_back(versions.mark());
    versions.Account(0, 0, 100);
    versions.DeltaTaken();
    versions.Commit();
  }
  EXPECT_EQ(versions.pending_bytes(), 300);
  ASSERT_TRUE(versions.SetBase(2, false, false).ok());
  EXPECT_FALSE(versions.IsPending(marks[1]));
  EXPECT_TRUE(versions.IsPending(marks[2]));
  EXPECT_EQ(versions.pending_bytes(), 100);
  EXPECT_EQ(versions.SetBase(1, false, false).code(), Code::kInvalidRequest) << "bases never go back";
  EXPECT_EQ(versions.SetBase(4, false, false).code(), Code::kInvalidRequest) << "nor ahead";
  ASSERT_TRUE(versions.SetBase(3, false, false).ok());
  EXPECT_EQ(versions.pending_bytes(), 0);
  EXPECT_LT(0U, versions.mark());
}

TEST(Versions, ChangesAfterASpillOfTheSameBatchArePending) {
  Versions versions;
  ASSERT_TRUE(versions.Begin(1).ok());
  const uint32_t before = versions.mark();
  EXPECT_EQ(versions.SetBase(1, false, /*changed=*/true).code(), Code::kInvalidRequest);
  versions.DeltaTaken();
  ASSERT_TRUE(versions.SetBase(1, false, /*changed=*/false).ok());
  EXPECT_FALSE(versions.IsPending(before));
  EXPECT_TRUE(versions.IsPending(versions.mark()));
  versions.DeltaTaken();
  versions.Commit();
  EXPECT_EQ(versions.sequence(), 1);
}

TEST(Versions, AResetThatDropsChangesNeedsABaseThatHasThem) {
  Versions versions;
  ASSERT_TRUE(versions.Begin(1).ok());
  versions.DeltaTaken();
  versions.Commit();
  ASSERT_TRUE(versions.Begin(2).ok());
  versions.DeltaTaken();
  versions.Reset();
  EXPECT_EQ(versions.CheckReadable().code(), Code::kInvalidRequest);
  EXPECT_EQ(versions.SetBase(1, true, false).code(), Code::kInvalidRequest) << "lacks what batch 2 changed";
  EXPECT_TRUE(versions.SetBase(2, true, false).ok());
  EXPECT_TRUE(versions.CheckReadable().ok());
}

TEST(Versions, PiecesOfOneDeltaShareASequence) {
  Versions versions;
  ASSERT_TRUE(versions.SetBase(4, true, false).ok());
  EXPECT_EQ(versions.BeginApply(4).code(), Code::kInvalidRequest) << "the base has it already";
  EXPECT_TRUE(versions.BeginApply(5).ok());
  EXPECT_TRUE(versions.BeginApply(5).ok());
  EXPECT_TRUE(versions.BeginApply(6).ok());
  EXPECT_EQ(versions.BeginApply(5).code(), Code::kInvalidRequest);
  EXPECT_EQ(versions.sequence(), 6);
  ASSERT_TRUE(versions.SetBase(6, false, false).ok());
  EXPECT_FALSE(versions.IsPending(0));
}

}  // namespace
}  // namespace holdfast
