#include "codec/xxh64.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "holdfast/key_codec.h"

namespace holdfast {
namespace {

constexpr uint64_t kPrime32 = 2654435761U;
constexpr uint64_t kPrime64 = 11400714785074694797ULL;

// The buffer that the reference implementation's own sanity check hashes.
std::string SanityBuffer(size_t length) {
  std::string buffer;
  uint64_t generator = kPrime32;
  for (size_t i = 0; i < length; ++i) {
    buffer.push_back(static_cast<char>(generator >> 56));
    generator *= kPrime64;
  }
  return buffer;
}

TEST(Xxh64, AgreesWithThePublishedVectors) {
  const struct {
    size_t length;
    uint64_t seed;
    uint64_t hash;
  } vectors[] = {
      {0, 0, 0xEF46DB3751D8E999ULL},          {0, kPrime32, 0xAC75FDA2929B17EFULL},
      {1, 0, 0xE934A84ADB052768ULL},          {1, kPrime32, 0x5014607643A9B4C3ULL},
      {4, 0, 0x9136A0DCA57457EEULL},          {14, 0, 0x8282DCC4994E35C8ULL},
      {14, kPrime32, 0xC3BD6BF63DEB6DF0ULL},  {222, 0, 0xB641AE8CB691C174ULL},
      {222, kPrime32, 0x20CB8AB7AE10C14AULL},
  };
  const std::string buffer = SanityBuffer(222);
  for (const auto& vector : vectors) {
    EXPECT_EQ(Xxh64(buffer.data(), vector.length, vector.seed), vector.hash) << vector.length << " " << vector.seed;
  }
  EXPECT_EQ(Xxh64("abc", 3), 0x44BC2CF5AD770999ULL);
}

TEST(Xxh64, IsTheSameAtEveryAlignmentAndInEveryPieces) {
  const std::string buffer = SanityBuffer(108);
  for (size_t length = 0; length <= 100; ++length) {
    const uint64_t expected = Xxh64(buffer.data(), length, length);
    for (size_t shift = 1; shift < 8; ++shift) {
      const std::string shifted = std::string(shift, 'x') + buffer.substr(0, length);
      EXPECT_EQ(Xxh64(shifted.data() + shift, length, length), expected) << length << " at " << shift;
    }
    for (size_t split = 0; split <= length; ++split) {
      Xxh64Stream stream(length);
      stream.Update(buffer.data(), split);
      stream.Update(buffer.data() + split, length - split);
      EXPECT_EQ(stream.Digest(), expected) << length << " split at " << split;
    }
    Xxh64Stream bytes(length);
    for (size_t i = 0; i < length; ++i) bytes.Update(buffer.data() + i, 1);
    EXPECT_EQ(bytes.Digest(), expected) << length << " byte by byte";
    EXPECT_EQ(bytes.length(), length);
  }
}

TEST(Xxh64File, HashesWhatTheFileHolds) {
  const std::string path = ::testing::TempDir() + "holdfast_xxh64_" + std::to_string(::getpid());
  const std::string content = SanityBuffer((1 << 20) + 33);
  std::ofstream(path, std::ios::binary) << content;
  const auto hashed = Xxh64File(path);
  ::unlink(path.c_str());
  ASSERT_TRUE(hashed.ok()) << hashed.status().message();
  EXPECT_EQ(hashed.value().first, Xxh64(content.data(), content.size()));
  EXPECT_EQ(hashed.value().second, content.size());
}

TEST(Xxh64File, SaysWhichFileIsMissing) {
  const auto hashed = Xxh64File("/nonexistent/delta.arrow");
  ASSERT_FALSE(hashed.ok());
  EXPECT_EQ(hashed.status().code(), Code::kUnavailable);
  EXPECT_NE(hashed.status().message().find("/nonexistent/delta.arrow"), std::string::npos);
}

}  // namespace
}  // namespace holdfast
