#include "rocksdb/fixture.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace holdfast::testing {

void BaseTest::SetUp() {
  const char* library = std::getenv("HOLDFAST_ROCKSDB_LIBRARY");
  ASSERT_NE(library, nullptr)
      << "set HOLDFAST_ROCKSDB_LIBRARY to librocksdbjni-linux64.so, unpacked from the rocksdbjni jar in pyspark/jars "
         "(python -c 'from holdfast import rocksdb_library as r; print(r.locate().path)' unpacks it and says where)";
  HOLDFAST_ASSERT_OK(LoadRocksDb(library));
  std::string made = (fs::temp_directory_path() / "holdfast-rocksdb-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  folder_ = made;
}

void BaseTest::TearDown() {
  if (!folder_.empty()) fs::remove_all(folder_);
}

Result<std::vector<std::string>> MakeBase(const std::string& parent, const std::string& directory, const Batch& batch,
                                          const BaseOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(auto writer, BaseWriter::Make(parent, directory, options));
  for (const auto& [key, value] : batch) {
    const Change change{key, value ? Slice(*value) : Slice(), !value.has_value()};
    HOLDFAST_RETURN_IF_ERROR(writer->Add({&change, 1}));
  }
  return writer->Finish();
}

void Apply(const Batch& batch, Entries* entries) {
  for (const auto& [key, value] : batch) {
    if (value.has_value()) {
      (*entries)[key] = *value;
    } else {
      entries->erase(key);
    }
  }
}

Batch AsBatch(const Entries& entries) { return {entries.begin(), entries.end()}; }

Result<Entries> ReadAll(BaseReader& base) {
  HOLDFAST_ASSIGN_OR_RETURN(auto iterator, base.Scan("", ""));
  Entries entries;
  for (; iterator->Valid(); iterator->Next()) {
    entries.emplace_hint(entries.end(), iterator->key(), iterator->value());
  }
  HOLDFAST_RETURN_IF_ERROR(iterator->status());
  return entries;
}

Result<Entries> ReadAll(const std::string& directory, const BaseOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(auto base, OpenBase(directory, options));
  return ReadAll(*base);
}

Result<Entries> Get(BaseReader& base, const std::vector<std::string>& keys) {
  class Collector final : public GetSink {
   public:
    explicit Collector(const std::vector<std::string>& keys) : keys_(keys) {}
    void Found(size_t index, Slice value) override {
      EXPECT_TRUE(entries.emplace(keys_.at(index), value).second) << "found twice: " << keys_.at(index);
    }
    Entries entries;

   private:
    const std::vector<std::string>& keys_;
  };
  const std::vector<Slice> slices(keys.begin(), keys.end());
  Collector collector(keys);
  HOLDFAST_RETURN_IF_ERROR(base.MultiGet(slices, collector));
  return std::move(collector.entries);
}

std::map<std::string, std::string> FilesOf(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return files;
}

void WriteFile(const std::string& path, const std::string& bytes) {
  fs::remove(path);  // never through a hard link
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string NumberedKey(int number) {
  char text[16];
  std::snprintf(text, sizeof(text), "key-%06d", number);
  return text;
}

}  // namespace holdfast::testing
