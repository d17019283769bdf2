// The options of a base, as text: RocksDB reads them by name, so that no struct of its is known here. docs/rfcs/0002
// has the measurements behind them.
#include <sys/resource.h>

#include <array>
#include <string>

#include "rocksdb/errors.h"
#include "rocksdb/handles.h"

namespace holdfast::rocks {

namespace {

struct Compression {
  const char* name;
  const char* rocksdb_name;
};
constexpr std::array<Compression, 6> kCompressions{{{"none", "kNoCompression"},
                                                    {"snappy", "kSnappyCompression"},
                                                    {"lz4", "kLZ4Compression"},
                                                    {"lz4hc", "kLZ4HCCompression"},
                                                    {"zlib", "kZlibCompression"},
                                                    {"zstd", "kZSTD"}}};
constexpr int kCompactionThreadsMax = 64;
constexpr int kRunsMin = 2;
constexpr int kRunsMax = 1000;

Status CheckRange(const char* name, int value, int least, int most) {
  if (least <= value && value <= most) return Status::Ok();
  return Status::InvalidRequest(std::string(name) + ": expected " + std::to_string(least) + " to " +
                                std::to_string(most) + ", found " + std::to_string(value));
}

Result<std::string> RocksDbCompression(const std::string& name) {
  std::string names;
  for (const Compression& compression : kCompressions) {
    if (name == compression.name) return std::string(compression.rocksdb_name);
    names += std::string(names.empty() ? "" : ", ") + compression.name;
  }
  return Status::InvalidRequest("compression: expected one of " + names + ", found '" + name + "'");
}

// Under a limit of the address space (spark.executor.pyspark.memory sets one) every mapped byte of a base counts, read
// or not: then blocks are read into the block cache instead.
bool MayMap() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
}

std::string TableText(const BaseOptions& options) {
  const std::string cache = options.block_cache_bytes == 0
                                ? "no_block_cache=true;"
                                : "block_cache=" + std::to_string(options.block_cache_bytes) + ";";
  return "block_based_table_factory={filter_policy=bloomfilter:10:false;block_size=4096;format_version=5;" + cache +
         "};";
}

std::string OptionsText(const BaseOptions& options, const std::string& compression) {
  return
      // Reading.
      std::string("allow_mmap_reads=") + (MayMap() ? "true" : "false") +
      ";max_open_files=-1;max_file_opening_threads=1;compression=" + compression + ";" + TableText(options) +
      // Merging runs. The memtable is never used, nor the log of writes: a base is made of ingested files only.
      "compaction_style=kCompactionStyleUniversal;level0_file_num_compaction_trigger=" +
      std::to_string(options.max_runs) + ";level0_slowdown_writes_trigger=" + std::to_string(kRunsMax * 2) +
      ";level0_stop_writes_trigger=" + std::to_string(kRunsMax * 3) +
      ";max_background_jobs=" + std::to_string(options.compaction_threads + 1) +
      ";max_subcompactions=" + std::to_string(options.compaction_threads) +
      ";write_buffer_size=65536;avoid_flush_during_shutdown=true;avoid_flush_during_recovery=true;"
      // A disk that is full stays full: report it at once rather than retry in the background.
      "max_bgerror_resume_count=0;"
      // Leave no more behind than the files of the base.
      "create_if_missing=true;info_log_level=FATAL_LEVEL;keep_log_file_num=1;stats_dump_period_sec=0;"
      "stats_persist_period_sec=0;manifest_preallocation_size=4096;";
}

}  // namespace

Result<OptionsHandle> MakeOptions(const CApi& api, const BaseOptions& options) {
  HOLDFAST_RETURN_IF_ERROR(CheckRange("compaction_threads", options.compaction_threads, 1, kCompactionThreadsMax));
  HOLDFAST_RETURN_IF_ERROR(CheckRange("max_runs", options.max_runs, kRunsMin, kRunsMax));
  HOLDFAST_ASSIGN_OR_RETURN(const std::string compression, RocksDbCompression(options.compression));
  OptionsHandle defaults(api.options_create(), api.options_destroy);
  OptionsHandle made(api.options_create(), api.options_destroy);
  char* error = nullptr;
  api.get_options_from_string(defaults.get(), OptionsText(options, compression).c_str(), made.get(), &error);
  if (error != nullptr) {
    // Our own text: a RocksDB that does not know one of these options is not one that this version was made for.
    Status status =
        Status::Incompatible("the RocksDB that is loaded refuses Holdfast's options: " + std::string(error) +
                             "; use the rocksdbjni of a supported pyspark (HOLDFAST_ROCKSDB_LIBRARY)");
    api.free(error);
    return status;
  }
  return made;
}

}  // namespace holdfast::rocks
